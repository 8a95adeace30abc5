import type { Logger } from '../../shared/process/logger.ts';
import { Call, type CallContext, type Destination, type Done } from './call.ts';
import { type Core, LATE_AFTER_MS, NOTED_MS } from './core.ts';
import { CoreNames } from './core-addresses.ts';
import { Cores } from './cores.ts';
import { pathOf, type UpstreamRequest } from './headers.ts';
import type { PendingRequest, Wire } from './wire.ts';

const LOOK_EVERY_MS = 20;
/** If a request sent this much later is answered, the core is well and the oldest request is slow. */
const OVERTAKEN_BY_MS = 20;
/** The fraction of the time limit after which the reads of a silent core are sent to another. */
const SILENT_AFTER = 0.1;

/** The index of a call that was removed. */
const REMOVED = -1;

/**
 * Forwards to one core, or to several in turn. Small answers are read as a whole, large ones are streamed. Reads are
 * pipelined where they are likely to be answered first, and sent at most twice. Writes have their own connection and
 * are sent once; another core gets them only if they certainly never arrived.
 */
export class Forwarder implements CallContext {
  readonly cores: Cores;
  readonly timeoutMs: number;
  readonly #names: CoreNames;
  /** A list, not a Set: when requests come and go in a Set, V8 moves them to its old generation. */
  readonly #underWay: Call[] = [];
  #timer: NodeJS.Timeout | undefined;

  /** @param urls entries of CORE_URL */
  constructor(urls: readonly string[], timeoutMs: number, logger: Logger) {
    this.timeoutMs = timeoutMs;
    this.cores = new Cores(timeoutMs);
    this.#names = new CoreNames(urls, logger, (addresses) => this.cores.set(addresses));
  }

  /** Resolves the names of the cores. Returns after that, or when it takes too long. */
  start(): Promise<void> {
    return this.#names.start();
  }

  /** How many names of cores cannot be resolved at present. */
  get namesLost(): number {
    return this.#names.lost;
  }

  /**
   * Forwards a request to a core and its answer to the client. If a part has been sent when a fault occurs, the client's
   * connection is closed.
   * @param extraHeaders flat list, sent after the core's own headers
   */
  forward(request: UpstreamRequest, destination: Destination, extraHeaders: readonly string[], done: Done): void {
    const call = new Call(this, request, destination, extraHeaders, done, this.#underWay.length);
    this.#underWay.push(call);
    this.#timer ??= setInterval(() => setImmediate(() => this.#sweep()), LOOK_EVERY_MS).unref();
    call.send();
  }

  close(): void {
    this.#names.close();
    this.cores.close();
  }

  /** Removes a call by moving the last one to its index. */
  remove(call: Call): void {
    if (call.place === REMOVED) return;
    const last = this.#underWay.pop() as Call;
    this.#underWay[call.place] = last;
    last.place = call.place;
    if (last === call) this.#underWay.pop();
    call.place = REMOVED;
  }

  /** Runs after the poll phase, because an answer that waits in a socket while this process stalls is not late. */
  #sweep(): void {
    const now = performance.now();
    for (const call of [...this.#underWay]) call.checkDeadlines(now, this.timeoutMs * SILENT_AFTER);
    for (const core of this.cores.open) {
      for (const wire of [...core.quick.all, ...core.slow.all, ...core.retired]) wire.endUnwanted();
      // Reads may still wait on a retired wire, if too many had been sent twice when it was retired.
      for (const wire of [...core.quick.all, ...core.retired])
        if (wire.stalledMs(now) >= LATE_AFTER_MS) this.#passBy(core, wire, now);
      core.retired = core.retired.filter(({ depth }) => depth > 0);
    }
    if (this.#underWay.length > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  /** Sends the requests behind a late answer again, elsewhere. The wire ends after that answer. */
  #passBy(core: Core, wire: Wire, now: number): void {
    const { front } = wire;
    // Requests that were sent again before have left a place here, for which no call waits.
    const behind = wire.blocked.filter((one) => one instanceof Call && one.mayBeResent) as Call[];
    if (front !== undefined && core.newestAnswered <= front.sentAt + OVERTAKEN_BY_MS) {
      // All answers of the core may be late, not only the first.
      const probe = behind.findLast((call) => kindOf(call) !== kindOf(front)) ?? behind.at(-1);
      if (probe !== undefined && core.mayProbe(now)) probe.resend(this.cores.other(core) ?? core, now);
      return;
    }
    if (front !== undefined) front.request.client.slowUntil = now + NOTED_MS;
    const isOwnFault = (call: Call) => call.client === front?.request.client.id;
    const inOrder = [...behind.filter((call) => !isOwnFault(call)), ...behind.filter(isOwnFault)];
    for (const call of inOrder) call.resend(this.cores.other(core) ?? core, now, isOwnFault(call));
    core.retire(wire);
  }
}

/** What a client reads on one path is expected to be equally slow each time. */
const kindOf = ({ request: { client, target } }: PendingRequest): string => `${client.id} ${pathOf(target)}`;
