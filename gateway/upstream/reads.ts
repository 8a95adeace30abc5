import type { CoreCounts } from './core-counts.ts';
import type { Core, Cores } from './cores.ts';
import type { Forwarding } from './forward.ts';
import { type Lane, STALLED_AFTER_MS } from './lane.ts';
import type { PipelinedConnection } from './pipelined-connection.ts';
import { Read } from './read.ts';
import type { Attempt } from './read-attempt.ts';
import { SlowClients } from './slow-clients.ts';

/** Reads with small answers: pipelined, asked again where another connection or core does better, the first answer wins. */

const LOOK_EVERY_MS = 20;
/** An answer to a request asked so much later proves that the core is well, and the one in front slow. */
const OVERTAKEN_BY_MS = 20;
/** Asked again without such a proof, to find out. */
const PROBES = 4;
const PROBE_AGAIN_AFTER_MS = 500;
/** Part of the time limit after which a silent core's reads are asked of another. */
const SILENT_AFTER = 0.1;

/** The place of a read that is not under way any more. */
const OVER = -1;

export class Reads {
  readonly cores: Cores;
  readonly counts: CoreCounts;
  readonly slowClients = new SlowClients();
  readonly #silentAfterMs: number;
  /** A list: V8 lets what was in a Set that requests come into and go out of grow old. */
  readonly #underWay: Read[] = [];
  readonly #probes = new Map<Lane, { left: number; until: number }>();
  #timer: NodeJS.Timeout | undefined;

  constructor(cores: Cores, counts: CoreCounts, timeoutMs: number) {
    this.cores = cores;
    this.counts = counts;
    this.#silentAfterMs = timeoutMs * SILENT_AFTER;
  }

  /**
   * Ends when the answer has been handed over.
   * @throws {AnswerTooLarge} for an answer that is to be streamed
   * @throws the last attempt's fault
   */
  forward(forwarding: Forwarding): Promise<void> {
    const read = new Read(this, forwarding, this.#underWay.length);
    this.#underWay.push(read);
    this.#timer ??= setInterval(() => setImmediate(() => this.#look()), LOOK_EVERY_MS).unref();
    read.ask(this.cores.next());
    return read.done;
  }

  /** The last one takes its place. */
  over(read: Read): void {
    if (read.place === OVER) return;
    const last = this.#underWay.pop() as Read;
    this.#underWay[read.place] = last;
    last.place = read.place;
    if (last === read) this.#underWay.pop();
    read.place = OVER;
  }

  /** Called after the poll phase: an answer that waits in a socket while our own process stands still is no late one. */
  #look(): void {
    const now = performance.now();
    for (const read of [...this.#underWay]) read.look(now, this.#silentAfterMs);
    for (const core of this.cores.all)
      for (const lane of [core.quickLane, core.slowLane])
        for (const connection of lane.connections) {
          connection.endUnwanted();
          if (connection.stalledMs(now) >= STALLED_AFTER_MS) this.#unblock(core, lane, connection, now);
        }
    if (this.#underWay.length > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  /** Asks again what waits behind a slow answer. */
  #unblock(core: Core, lane: Lane, connection: PipelinedConnection, now: number): void {
    const front = connection.front as Attempt | undefined;
    const isProven = front === undefined || core.newestAnswered > front.askedAt + OVERTAKEN_BY_MS;
    if (front !== undefined && isProven) this.slowClients.add(front.client, now);
    const probed = new Set<string>();
    for (const attempt of connection.blocked as Attempt[]) {
      if (!attempt.isWanted || !attempt.read.mayAskAgain) continue;
      if (!isProven && (probed.has(attempt.client) || !this.#mayProbe(lane, now))) continue;
      probed.add(attempt.client);
      attempt.read.askAgain(this.cores.other(core) ?? core, now);
    }
  }

  #mayProbe(lane: Lane, now: number): boolean {
    let probes = this.#probes.get(lane);
    if (probes === undefined || probes.until <= now) {
      probes = { left: PROBES, until: now + PROBE_AGAIN_AFTER_MS };
      this.#probes.set(lane, probes);
    }
    probes.left -= 1;
    return probes.left >= 0;
  }
}
