import type { Attempt } from './attempt.ts';
import { Call, type Forwarding, type Surroundings } from './call.ts';
import type { Core } from './core.ts';
import type { Cores } from './cores.ts';
import { type Lane, STALLED_AFTER_MS } from './lane.ts';
import type { PipelinedConnection } from './pipelined-connection.ts';
import { RecentClients } from './recent-clients.ts';

/**
 * The requests to the cores. Reads are pipelined, and repeated if another connection or core is likely to be faster; the
 * first answer wins. Writes have their own connection and are sent once.
 */

const LOOK_EVERY_MS = 20;
/** If a request sent this much later is answered, the core is well and the oldest request is slow. */
const OVERTAKEN_BY_MS = 20;
/** Requests repeated without such a proof, to find out. */
const PROBES = 4;
const PROBE_AGAIN_AFTER_MS = 500;
/** The fraction of the time limit after which the reads of a silent core are sent to another. */
const SILENT_AFTER = 0.1;

/** The index of a call that has ended. */
const OVER = -1;

/** What a client reads on one path is as slow the next time. So one request of each kind is enough for a probe. */
const kindOf = ({ request: { client, target } }: Attempt): string => `${client} ${target.split('?', 1)[0]}`;

export class Calls implements Surroundings {
  readonly cores: Cores;
  readonly slowClients = new RecentClients();
  readonly largeClients = new RecentClients();
  readonly timeoutMs: number;
  /** A list, not a Set: when requests come and go in a Set, V8 moves them to its old generation. */
  readonly #underWay: Call[] = [];
  readonly #probes = new WeakMap<Lane, { left: number; until: number }>();
  #timer: NodeJS.Timeout | undefined;

  constructor(cores: Cores, timeoutMs: number) {
    this.cores = cores;
    this.timeoutMs = timeoutMs;
  }

  /**
   * Ends when the answer has been handed over.
   * @throws the last attempt's fault, if nothing was sent; otherwise the client's connection is closed
   */
  forward(forwarding: Forwarding): Promise<void> {
    const call = new Call(this, forwarding, this.#underWay.length);
    this.#underWay.push(call);
    this.#timer ??= setInterval(() => setImmediate(() => this.#look()), LOOK_EVERY_MS).unref();
    call.ask(this.cores.next());
    return call.done;
  }

  /** Moves the last call to its index. */
  over(call: Call): void {
    if (call.place === OVER) return;
    const last = this.#underWay.pop() as Call;
    this.#underWay[call.place] = last;
    last.place = call.place;
    if (last === call) this.#underWay.pop();
    call.place = OVER;
  }

  /** Called after the poll phase: an answer that waits in a socket because this process stalls is not late. */
  #look(): void {
    const now = performance.now();
    for (const call of [...this.#underWay]) call.look(now, this.timeoutMs * SILENT_AFTER);
    for (const core of this.cores.open)
      for (const lane of [core.quickLane, core.slowLane])
        for (const connection of lane.connections) {
          connection.endUnwanted();
          if (connection.stalledMs(now) >= STALLED_AFTER_MS) this.#unblock(core, lane, connection, now);
        }
    if (this.#underWay.length > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  /** Repeats the requests that wait behind a slow answer. */
  #unblock(core: Core, lane: Lane, connection: PipelinedConnection, now: number): void {
    const front = connection.front as Attempt | undefined;
    const isProven = front === undefined || core.newestAnswered > front.askedAt + OVERTAKEN_BY_MS;
    if (front !== undefined && isProven) this.slowClients.add(front.client, now);
    const probed = new Set<string>();
    for (const attempt of connection.blocked as Attempt[]) {
      if (!attempt.isWanted || !attempt.call.mayAskAgain) continue;
      const kind = kindOf(attempt);
      if (!isProven && (probed.has(kind) || !this.#mayProbe(lane, now))) continue;
      probed.add(kind);
      attempt.call.askAgain(this.cores.other(core) ?? core, now);
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
