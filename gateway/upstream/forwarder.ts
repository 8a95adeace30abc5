import { boundedMap } from '../../shared/bounded-map.ts';
import type { Family } from '../../shared/process/counts.ts';
import type { Logger } from '../../shared/process/logger.ts';
import { every } from '../../shared/process/repeat.ts';
import type { Destination, Done } from './answer.ts';
import { Call, type CallContext } from './call.ts';
import { Resends } from './concurrency-limit.ts';
import {
  Core,
  type CoreChoice,
  type CoreCounts,
  type CoreOptions,
  type CoreState,
  LATE_AFTER_MS,
  NOTED_MS,
} from './core.ts';
import { type CoreAddress, CoreNames } from './core-addresses.ts';
import { pathOf, type UpstreamRequest } from './headers.ts';
import type { PendingRequest, Wire } from './wire.ts';

const LOOK_EVERY_MS = 20;
/** If a request sent this much later than the oldest is answered, the core is healthy and only the oldest is slow. */
const OVERTAKEN_BY_MS = 20;
/** The fraction of the time limit after which the reads of a silent core are sent to another core. */
const SILENT_AFTER = 0.1;

/** The index of a call that was removed. */
const REMOVED = -1;

/**
 * Forwards requests to one core, or to several in turn. Small responses are read as a whole, large ones are streamed.
 * Reads are pipelined on the connection that is likely to answer first, and are sent at most twice. Each write has its
 * own connection and is sent once; another core gets it only if it certainly did not reach the first.
 */
export class Forwarder implements CallContext {
  readonly cores: Cores;
  readonly timeoutMs: number;
  readonly #names: CoreNames;
  /** An array rather than a Set: V8 moves requests that pass through a Set to its old generation. */
  readonly #underWay: Call[] = [];
  #timer: NodeJS.Timeout | undefined;

  /** @param urls entries of CORE_URL */
  constructor(urls: readonly string[], options: CoreOptions, logger: Logger) {
    this.timeoutMs = options.timeoutMs;
    this.cores = new Cores(options);
    this.#names = new CoreNames(urls, logger, (addresses) => this.cores.set(addresses));
  }

  /**
   * Starts to resolve the names of the cores. The promise resolves after the first round, or earlier if that takes too
   * long.
   */
  start(): Promise<void> {
    return this.#names.start();
  }

  /** How many core names currently cannot be resolved. */
  get namesLost(): number {
    return this.#names.lost;
  }

  /**
   * Forwards a request to a core, and the core's response to the client. If a fault occurs after part of the response
   * has been sent, the client's connection is closed.
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

  /** Runs after the poll phase, because a response that waits in a socket while this process stalls is not late. */
  #sweep(): void {
    const now = performance.now();
    for (const call of [...this.#underWay]) call.checkDeadlines(now, this.timeoutMs * SILENT_AFTER);
    for (const core of this.cores.open) {
      for (const wire of [...core.quick.all, ...core.slow.all, ...core.retired]) wire.endUnwanted();
      // Reads may still wait on a retired wire, if too many reads had been sent twice when it was retired.
      for (const wire of [...core.quick.all, ...core.retired])
        if (wire.stalledMs(now) >= LATE_AFTER_MS) this.#passBy(core, wire, now);
      core.retired = core.retired.filter(({ depth }) => depth > 0);
    }
    if (this.#underWay.length > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  /** Resends, on other wires, the requests behind a late response. The wire is closed after that response. */
  #passBy(core: Core, wire: Wire, now: number): void {
    const { front } = wire;
    // Requests that were already sent again have left placeholders, which are not calls.
    const behind = wire.blocked.filter((one) => one instanceof Call && one.mayBeResent) as Call[];
    if (front !== undefined && core.newestAnswered <= front.sentAt + OVERTAKEN_BY_MS) {
      // All responses from the core may be late, not only this one. Resending one request shows which.
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

/** A client's reads of one path are expected to be equally slow. */
const kindOf = ({ request: { client, target } }: PendingRequest): string => `${client.id} ${pathOf(target)}`;

/** Probes are sent several times a second, because a stopping core serves requests for only about a second. */
const PROBE_EVERY_MS = 250;
/** How long writes avoid a core whose last attempt failed. Without reads, only a write shows that it works again. */
const AVOIDED_MS = 2_000;
/** A core with more than twice as many requests in flight as another, plus this many, is skipped: it may be silent. */
const AHEAD = 4;
/** The maximum number of removed cores whose counts are still reported. */
const MAX_PAST = 32;

/**
 * Chooses a core for each request. If there are several, they are probed, so that a core that is stopping gets no new
 * requests. A single core is not probed.
 */
class Cores implements CoreChoice {
  readonly #options: CoreOptions;
  readonly #endLooking = every(PROBE_EVERY_MS, () => this.#look());
  readonly #leaving = new Set<Core>();
  readonly #past = boundedMap<string, CoreCounts>(MAX_PAST);
  readonly #resends = new Resends();
  #all: readonly Core[] = [];
  #turn = 0;

  constructor(options: CoreOptions) {
    this.#options = options;
  }

  /** The cores that get requests: at least one. */
  get all(): readonly Core[] {
    return this.#all;
  }

  /** All cores, including removed ones with requests in flight. */
  get open(): readonly Core[] {
    return this.#leaving.size === 0 ? this.#all : [...this.#all, ...this.#leaving];
  }

  /** The limit of concurrent requests for all ready cores together. */
  get limit(): number {
    return this.#sumOf('value');
  }

  /** How many requests one client may have in progress. */
  get limitPerClient(): number {
    return this.#options.concurrency === undefined ? Number.POSITIVE_INFINITY : this.#sumOf('perClient');
  }

  #sumOf(part: 'value' | 'perClient'): number {
    let [all, ready, answering] = [0, 0, 0];
    for (const { limit, ready: isReady, isSilent } of this.#all) {
      const own = limit[part];
      all += own;
      if (isReady) ready += own;
      if (isReady && !isSilent) answering += own;
    }
    return answering || ready || all;
  }

  /** Sets the cores for new requests. A removed core finishes its requests in flight. */
  set(addresses: readonly CoreAddress[]): void {
    const before = this.#all;
    const wanted = new Map(addresses.toReversed().map((address) => [address.origin, address]));
    const open = new Map(this.open.map((core) => [core.origin, core]));
    this.#all = addresses
      .filter((address) => wanted.get(address.origin) === address)
      .map((address) => open.get(address.origin) ?? this.#open(address));
    for (const core of this.#all) this.#leaving.delete(core);
    for (const core of before) if (!wanted.has(core.origin)) this.#leave(core);
    const [only] = this.#all;
    if (only !== undefined && this.#all.length === 1) only.isSilent = false;
    if (before.length === 0) return;
    for (const core of this.#all) if (!before.includes(core)) this.#welcome(core);
  }

  /**
   * The core for a new request: the next in turn, or now and then a silent one. A write, which cannot be repeated, avoids
   * cores whose last attempt has just failed. Reads show sooner when such a core works again.
   */
  first(kind: 'read' | 'write', now: number): Core {
    if (this.#all.length === 1) return this.#all[0] as Core;
    const silent = this.#all.find((core) => core.ready && core.isSilent && core.mayTry(kind, now));
    return silent ?? this.next(kind === 'write' ? this.#failing() : []);
  }

  /** The cores whose last attempt has just failed. None if no other core is ready. */
  #failing(): readonly Core[] {
    const from = Date.now() - AVOIDED_MS;
    const failing = this.#all.filter(({ counts }) => counts.isFailing && (counts.lastFault?.at ?? 0) > from);
    return this.#all.some((core) => core.ready && !core.isSilent && !failing.includes(core)) ? failing : [];
  }

  /** The next core in turn. Skips cores that are busy, already tried or not ready, as long as there is another. */
  next(tried: readonly Core[] = []): Core {
    if (this.#all.length === 1) return this.#all[0] as Core;
    const others = this.#all.filter((core) => !tried.includes(core));
    const ready = others.filter((core) => core.ready);
    for (const candidates of [this.#usable(others), ready.filter(({ isSilent }) => !isSilent), ready, others])
      if (candidates.length > 0) return this.#inTurn(candidates) as Core;
    return this.#inTurn(this.#all) as Core;
  }

  isOnlyReady(core: Core): boolean {
    return this.#all.every((one) => one === core || !one.ready);
  }

  /** Another core that is ready and has room. */
  other(than: Core): Core | undefined {
    return this.#inTurn(this.#usable(this.#all.filter((core) => core !== than)));
  }

  areAll(tried: readonly Core[]): boolean {
    return this.#all.every((core) => tried.includes(core));
  }

  /** With several cores, a response does not prove that its core is ready: a core that is stopping still responds. */
  get isAnswerProof(): boolean {
    return this.#all.length === 1;
  }

  /** The states of the cores that get requests. */
  states(): CoreState[] {
    return this.#all.map((core) => core.state(false));
  }

  /** The states of the removed cores with requests in flight. */
  draining(): CoreState[] {
    return [...this.#leaving].map((core) => core.state(true));
  }

  /** The metric families, each with the series of all cores, including a limited number of removed ones. */
  counted(): Family[] {
    const each = [...this.open.map(({ counts }) => counts), ...this.#past.values()].map((counts) => counts.families());
    return (each[0] ?? []).map((family, at) => ({ ...family, values: each.flatMap((one) => one[at]?.values ?? []) }));
  }

  close(): void {
    this.#endLooking();
    for (const core of this.open) core.close();
  }

  /** A core that is added again continues its earlier counts. */
  #open(address: CoreAddress): Core {
    const counts = this.#past.get(address.origin);
    this.#past.delete(address.origin);
    return new Core(address, this.#options, counts, this.#resends);
  }

  #leave(core: Core): void {
    this.#leaving.add(core);
    core.since = Date.now();
  }

  /** A core that joins others must first prove that it is ready. */
  #welcome(core: Core): void {
    core.setReady(this.#all.length === 1, 'It was added and has not been probed yet.');
    if (!core.ready) void core.probe();
  }

  #look(): void {
    if (this.#all.length > 1) for (const core of this.#all) void core.probe();
    for (const core of this.#leaving) {
      if (core.limit.inFlight > 0) continue;
      this.#leaving.delete(core);
      this.#past.set(core.origin, core.counts);
      core.close();
    }
  }

  /** Takes turns among available cores only. Otherwise the neighbour of an unavailable one would get its turns too. */
  #inTurn(those: readonly Core[]): Core | undefined {
    return those[this.#turn++ % those.length];
  }

  /** The cores that are ready and can take more load. */
  #usable(those: readonly Core[]): Core[] {
    const ready = those.filter((core) => core.ready && !core.isSilent);
    const fewest = Math.min(...ready.map(({ limit }) => limit.inFlight));
    return ready.filter(({ limit }) => limit.hasRoom && limit.inFlight <= 2 * fewest + AHEAD);
  }
}
