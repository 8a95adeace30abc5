import { boundedMap } from '../../shared/bounded-map.ts';
import type { Family } from '../../shared/process/counts.ts';
import { Core, type CoreCounts, type CoreState, Resends } from './core.ts';
import type { CoreAddress } from './core-addresses.ts';

/** The cores behind the gateway: which exist, which are ready, and which is next. */

/** Several probes per second: a core that shuts down still serves for about a second. */
const PROBE_EVERY_MS = 250;
/** A core this far ahead of another in running requests is skipped: it may be silent. */
const AHEAD = 4;
/** Cores that recently left, whose counts are still reported. */
const MAX_PAST = 32;

/**
 * Chooses between the cores. If there are several, they are probed, so that one that shuts down gets no new requests. A
 * single core is not probed.
 */
export class Cores {
  readonly #timeoutMs: number;
  readonly #looking = setInterval(() => this.#look(), PROBE_EVERY_MS).unref();
  readonly #leaving = new Set<Core>();
  readonly #past = boundedMap<string, CoreCounts>(MAX_PAST);
  readonly #resends = new Resends();
  #all: readonly Core[] = [];
  #turn = 0;

  constructor(timeoutMs: number) {
    this.#timeoutMs = timeoutMs;
  }

  /** The cores that get requests: at least one. */
  get all(): readonly Core[] {
    return this.#all;
  }

  /** These include the cores that have left but still have to answer. */
  get open(): readonly Core[] {
    return this.#leaving.size === 0 ? this.#all : [...this.#all, ...this.#leaving];
  }

  /** The limit of concurrent requests for all ready cores together. */
  get limit(): number {
    let [all, ready, answering] = [0, 0, 0];
    for (const { limit, ready: isReady, isSilent } of this.#all) {
      all += limit.value;
      if (isReady) ready += limit.value;
      if (isReady && !isSilent) answering += limit.value;
    }
    return answering || ready || all;
  }

  /** Sets the cores for new requests. A core that is removed finishes its running requests. */
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

  /** The core for a new request: the next in turn, or now and then a silent one. */
  first(kind: 'read' | 'write', now: number): Core {
    if (this.#all.length === 1) return this.#all[0] as Core;
    return this.#all.find((core) => core.ready && core.isSilent && core.mayTry(kind, now)) ?? this.next();
  }

  /** The next core in turn. Skips cores that are not ready, busy or already tried, as long as there is another. */
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

  /** With several cores, an answer does not prove that its core is ready: one that shuts down still answers. */
  get isAnswerProof(): boolean {
    return this.#all.length === 1;
  }

  /** The states of the cores that get requests. */
  states(): CoreState[] {
    return this.#all.map((core) => core.state(false));
  }

  /** The states of the cores that have left and still have to answer. */
  draining(): CoreState[] {
    return [...this.#leaving].map((core) => core.state(true));
  }

  /** The metric families, each with the series of all cores, including a limited number of those that left. */
  counted(): Family[] {
    const each = [...this.open.map(({ counts }) => counts), ...this.#past.values()].map((counts) => counts.families());
    return (each[0] ?? []).map((family, at) => ({ ...family, values: each.flatMap((one) => one[at]?.values ?? []) }));
  }

  close(): void {
    clearInterval(this.#looking);
    for (const core of this.open) core.close();
  }

  /** A core that comes back continues its counts. */
  #open(address: CoreAddress): Core {
    const counts = this.#past.get(address.origin);
    this.#past.delete(address.origin);
    return new Core(address, this.#timeoutMs, counts, this.#resends);
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

  /** Takes turns among available cores only, or the neighbour of an unavailable one would get its turns too. */
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
