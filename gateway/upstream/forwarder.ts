import type { ServerResponse } from 'node:http';
import type { Family } from '../../shared/process/counts.ts';
import type { Logger } from '../../shared/process/logger.ts';
import type { Attempt } from './attempt.ts';
import { Call, type CallContext, type Forwarding } from './call.ts';
import type { Core, CoreState } from './core.ts';
import { familiesOf } from './core-counts.ts';
import { CoreNames } from './core-names.ts';
import type { CoreAddress } from './core-url.ts';
import { Cores } from './cores.ts';
import { type Lane, STALLED_AFTER_MS } from './lane.ts';
import type { PipelinedConnection } from './pipelined-connection.ts';
import { RecentClients } from './recent.ts';
import type { UpstreamRequest } from './request-head.ts';

export interface Forwarder {
  /**
   * Forwards a request to a core and its answer to the client. Ends when the answer has been handed over.
   * @param extraHeaders flat list, sent after the core's own headers
   * @throws {HttpError} 502, 503 or 504 if nothing has been sent; otherwise the client's connection is closed
   */
  forward(request: UpstreamRequest, response: ServerResponse, extraHeaders: readonly string[]): Promise<void>;
  /** The next core in turn, for requests that reach it another way. */
  nextCore(): CoreAddress;
  /** The present limit of concurrent requests for all cores. */
  readonly limit: number;
  states(): CoreState[];
  /** Cores that have left and still have to answer. */
  draining(): CoreState[];
  /** How many names of cores cannot be resolved at present. */
  namesLost(): number;
  counted(): Family[];
  close(): void;
}

/**
 * Forwards to one core, or to several in turn. Small answers are taken whole, large ones are streamed. Reads are
 * pipelined where they are likely to be answered first, and sent at most twice. Writes have their own connection and are
 * sent once; another core gets them only if they certainly never arrived.
 * @param urls entries of CORE_URL
 * @returns once their names have been resolved, or took too long
 */
export async function createForwarder(urls: readonly string[], timeoutMs: number, logger: Logger): Promise<Forwarder> {
  const cores = new Cores(timeoutMs);
  const names = new CoreNames(urls, logger, (addresses) => cores.set(addresses));
  await names.start();
  const calls = new Calls(cores, timeoutMs);

  return {
    forward(request, response, extraHeaders) {
      const askedAt = performance.now();
      return calls.forward({ request, response, extraHeaders, askedAt, deadline: askedAt + timeoutMs });
    },
    nextCore: () => cores.next().address,
    get limit() {
      return cores.limit;
    },
    states: () => cores.states(),
    draining: () => cores.draining(),
    namesLost: () => names.lost,
    counted: () => familiesOf(cores.counts()),
    close() {
      names.close();
      cores.close();
    },
  };
}

const LOOK_EVERY_MS = 20;
/** If a request sent this much later is answered, the core is well and the oldest request is slow. */
const OVERTAKEN_BY_MS = 20;
/** Requests that are hedged without such a proof, to find out. */
const PROBES = 4;
const PROBE_AGAIN_AFTER_MS = 500;
/** The fraction of the time limit after which the reads of a silent core are sent to another. */
const SILENT_AFTER = 0.1;

/** The index of a call that was removed. */
const REMOVED = -1;

/** What a client reads on one path is as slow the next time. So one request of each kind is enough for a probe. */
const kindOf = ({ request: { client, target } }: Attempt): string => `${client} ${target.split('?', 1)[0]}`;

/**
 * The requests to the cores. Reads are pipelined, and hedged if another connection or core is likely to be faster: the
 * first answer wins. Writes have their own connection and are sent once.
 */
class Calls implements CallContext {
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
   * @throws {HttpError} for the last attempt's fault, if nothing was sent; otherwise the client's connection is closed
   */
  forward(forwarding: Forwarding): Promise<void> {
    const call = new Call(this, forwarding, this.#underWay.length);
    this.#underWay.push(call);
    this.#timer ??= setInterval(() => setImmediate(() => this.#look()), LOOK_EVERY_MS).unref();
    call.ask(this.cores.next());
    return call.done;
  }

  /** Moves the last call to its index. */
  remove(call: Call): void {
    if (call.place === REMOVED) return;
    const last = this.#underWay.pop() as Call;
    this.#underWay[call.place] = last;
    last.place = call.place;
    if (last === call) this.#underWay.pop();
    call.place = REMOVED;
  }

  /** Called after the poll phase: an answer that waits in a socket because this process stalls is not late. */
  #look(): void {
    const now = performance.now();
    for (const call of [...this.#underWay]) call.checkDeadlines(now, this.timeoutMs * SILENT_AFTER);
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

  /** Hedges the requests that wait behind a slow answer. */
  #unblock(core: Core, lane: Lane, connection: PipelinedConnection, now: number): void {
    const front = connection.front as Attempt | undefined;
    const isProven = front === undefined || core.newestAnswered > front.askedAt + OVERTAKEN_BY_MS;
    if (front !== undefined && isProven) this.slowClients.add(front.client, now);
    const probed = new Set<string>();
    for (const attempt of connection.blocked as Attempt[]) {
      if (!attempt.isWanted || !attempt.call.hasAttemptsLeft) continue;
      const kind = kindOf(attempt);
      if (!isProven && (probed.has(kind) || !this.#takeProbe(lane, now))) continue;
      probed.add(kind);
      attempt.call.hedge(this.cores.other(core) ?? core, now);
    }
  }

  #takeProbe(lane: Lane, now: number): boolean {
    let probes = this.#probes.get(lane);
    if (probes === undefined || probes.until <= now) {
      probes = { left: PROBES, until: now + PROBE_AGAIN_AFTER_MS };
      this.#probes.set(lane, probes);
    }
    probes.left -= 1;
    return probes.left >= 0;
  }
}
