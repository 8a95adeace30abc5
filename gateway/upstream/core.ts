import { FairShare } from '../../shared/fair-share.ts';
import { Counter, type Family, Histogram, Label } from '../../shared/process/counts.ts';
import { ConcurrencyLimit, QueueLimit, Resends } from './concurrency-limit.ts';
import { answerTo } from './connect.ts';
import type { CoreAddress } from './core-addresses.ts';
import { FAULT_KINDS, type FaultKind } from './faults.ts';
import { pathOf, type UpstreamRequest } from './headers.ts';
import { HandshakeWire } from './tunnel.ts';
import { FLOWING_MS, MAX_DEPTH, type PendingRequest, Wire } from './wire.ts';

const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/** The last failure of a core, and its Unix time in ms. */
interface LastFault {
  readonly at: number;
  readonly kind: FaultKind;
}

/** Metrics of one core: its response times and failures. */
export class CoreCounts {
  readonly #kind = new Label('kind', FAULT_KINDS);
  readonly #seconds: Histogram;
  readonly #faults: Counter;
  readonly #resends: Counter;
  lastFault: LastFault | undefined;
  /** Whether the last attempt failed. */
  isFailing = false;

  /** @param origin the value of the label `core` */
  constructor(origin: string) {
    const core = new Label('core', [origin]);
    this.#seconds = new Histogram(
      {
        name: 'gateway_upstream_duration_seconds',
        help: 'Time until a core began to respond or failed, including the wait for a connection.',
      },
      SECONDS,
      core,
    );
    this.#faults = new Counter(
      { name: 'gateway_upstream_errors_total', help: 'Failed attempts to get a response from a core, by kind.' },
      core,
      this.#kind,
    );
    this.#resends = new Counter(
      {
        name: 'gateway_upstream_asked_again_total',
        help: 'Reads sent twice because the first response was late, or too large for a shared connection.',
      },
      core,
    );
    this.#resends.declare(origin);
    for (const kind of FAULT_KINDS) this.#faults.declare(origin, kind);
  }

  answered(milliseconds: number): void {
    this.isFailing = false;
    this.#seconds.observe(milliseconds / 1_000);
  }

  /** @param kind undefined if the core is not to blame */
  failed(kind: FaultKind | undefined): void {
    if (kind === undefined) return;
    this.#faults.add(0, this.#kind.positionOf(kind));
    this.lastFault = { at: Date.now(), kind };
    this.isFailing = true;
  }

  /** Counts a read that was sent again because this core was late. */
  resent(): void {
    this.#resends.add();
  }

  families(): Family[] {
    return [this.#seconds.family(), this.#faults.family(), this.#resends.family()];
  }
}

/** How many wires (connections) the reads share, and how many requests may each have a wire of their own. */
const SHARED = 16;
const OWN = 64;
const CONNECT_TIMEOUT_MS = 1_000;
const PROBE_TIMEOUT_MS = 1_500;
/** Less than the core's own keep-alive of 5 s, so that no wire is used while the core closes it. */
const KEEP_ALIVE_MS = 4_000;

/** The maximum depth of a wire whose responses flow, so that one slow response delays no more reads than this. */
const DEPTH = 64;
/** A read considers only this many wires at first, so that one write carries many requests. It avoids stalled ones. */
const FEW = 4;
/** A read prefers wires that have waited for a response for less than this, so that few queue behind a slow one. */
const FRESH_MS = 3;
/** After this long without a response, a read prefers any other wire. */
export const LATE_AFTER_MS = 40;

/** How long a client counts as slow. */
export const NOTED_MS = 10_000;
/** How long a client's responses on one path count as large. The first large one is requested twice. */
export const LARGE_NOTED_MS = 600_000;
const SUSPECTED_MS = 1_000;

/** How often a read or a write tests a silent core. Writes do so less often, because they cannot be repeated. */
const TRY_EVERY_MS = { read: 1_000, write: 10_000 };
/** How often a read may be sent twice just to find out whether only one response or the whole core is slow. */
const PROBE_EVERY_MS = 100;

export interface CoreOptions {
  /** The time limit for a response. */
  readonly timeoutMs: number;
  /** How many requests the core gets at a time (CORE_CONCURRENCY); undefined for no such limit. */
  readonly concurrency: number | undefined;
}

export class Core {
  readonly address: CoreAddress;
  readonly counts: CoreCounts;
  readonly limit: ConcurrencyLimit | QueueLimit;
  /**
   * These limit the requests that have a wire of their own. Reads cannot use the wires of writes, because a large
   * response to a read holds its wire until the client has received all of it. With CORE_CONCURRENCY, all requests have
   * a wire of their own and share its number of places. Large responses then move to places of their own.
   */
  readonly reads: FairShare;
  readonly writes: FairShare;
  readonly large: FairShare | undefined;
  /**
   * The wires that reads share. A client that has blocked others uses the slow ones when it may not have another wire
   * of its own.
   */
  readonly quick: SharedWires;
  readonly slow: SharedWires;
  /** Wires that get no new requests, but on which responses are still due. */
  retired: Wire[] = [];
  ready = true;
  notReadyBecause: string | undefined;
  /** When it became ready, became not ready, or began to drain: Unix time in ms. */
  since = Date.now();
  /** Whether a request has waited too long for this core, and the core has answered none since. */
  isSilent = false;
  #triedAt = Number.NEGATIVE_INFINITY;
  /** Whether its responses repeat the attempt's X-Request-Id and so can be matched. Only then are wires reused. */
  echoes = false;
  /** When the latest of the answered requests was sent, by performance.now(). */
  newestAnswered = Number.NEGATIVE_INFINITY;
  /** When it last answered a client (Unix time in ms, 0 before the first response), and how long that took. */
  #answeredAt = 0;
  #answeredMs = 0;
  readonly resends: Resends;
  #probedAt = Number.NEGATIVE_INFINITY;
  /** Wires that carry one request at a time, and the idle ones among them. */
  readonly #own: (Wire | HandshakeWire)[] = [];
  readonly #idle: Wire[] = [];

  constructor(
    address: CoreAddress,
    { timeoutMs, concurrency }: CoreOptions,
    counts = new CoreCounts(address.origin),
    resends = new Resends(),
  ) {
    this.address = address;
    this.counts = counts;
    this.resends = resends;
    const line = concurrency === undefined ? undefined : new FairShare(concurrency);
    this.reads = line ?? new FairShare(OWN);
    this.writes = line ?? new FairShare(OWN);
    this.large = line && new FairShare(OWN);
    this.limit = line === undefined ? new ConcurrencyLimit(timeoutMs) : new QueueLimit(timeoutMs, line);
    this.quick = new SharedWires(() => this.#newWire(true));
    this.slow = new SharedWires(() => this.#newWire(true));
  }

  /** Whether all requests share the places of CORE_CONCURRENCY, and wait in one line. */
  get #hasLine(): boolean {
    return this.reads === this.writes;
  }

  /** The address in logs and metrics. */
  get origin(): string {
    return this.address.origin;
  }

  /** The wires that a client may share; undefined if the client needs one of its own. */
  wiresFor({ client, target, upgrade }: UpstreamRequest, now: number): SharedWires | undefined {
    if (this.#hasLine || upgrade !== undefined) return undefined;
    const { id, slowUntil, largeUntil, largePath } = client;
    if (largeUntil > now && largePath === pathOf(target)) return undefined;
    if (slowUntil <= now) return this.quick;
    return this.reads.hasRoomFor(id) ? undefined : this.slow;
  }

  /**
   * Marks a client as slow if its read takes eight times as long as those of others. If that is not certain, the client
   * is suspected: its next read gets a wire of its own, which settles the question.
   * @param blocker the request whose late response held up others until now
   */
  noteSlow(answered: PendingRequest, blocker: PendingRequest | undefined, now: number): void {
    const late = blocker ?? answered;
    const { client } = late.request;
    const tookMs = now - late.sentAt;
    const isSlow = tookMs >= FLOWING_MS && this.newestAnswered > now - tookMs / 8;
    const isKnown = client.slowUntil > now;
    if (blocker === undefined && !isKnown) return;
    if (isSlow) client.slowUntil = now + NOTED_MS;
    else if (!isKnown && this.mayProbe(now)) client.slowUntil = now + SUSPECTED_MS;
    else if (blocker === undefined && client.slowUntil <= now + SUSPECTED_MS) client.slowUntil = 0;
  }

  /**
   * Returns a wire for one request. Its connection is new if responses carry no ids, because a late response could be
   * mistaken for the next one. On a reused one, the response must carry an id.
   */
  takeOwn({ upgrade }: UpstreamRequest): Wire | HandshakeWire {
    const idle = upgrade === undefined ? this.#idle.pop() : undefined;
    if (!this.echoes) idle?.end();
    if (idle !== undefined) return idle;
    const wire = upgrade === undefined ? this.#newWire(false) : new HandshakeWire(this.address, upgrade);
    this.#own.push(wire);
    return wire;
  }

  giveBack(wire: Wire | HandshakeWire): void {
    if (wire instanceof Wire) this.#idle.push(wire);
    else this.#own.splice(this.#own.indexOf(wire), 1);
  }

  /** Sends no more requests on a shared wire, and closes it once nobody waits for a response on it. */
  retire(wire: Wire): void {
    if (this.retired.includes(wire)) return;
    this.quick.remove(wire);
    this.retired.push(wire);
    wire.retire();
  }

  fallSilent(now: number): void {
    if (!this.isSilent) this.#triedAt = now;
    this.isSilent = true;
  }

  /** Whether this request may test a silent core. A probe is not a test, because it can succeed while requests hang. */
  mayTry(kind: 'read' | 'write', now: number): boolean {
    if (now - this.#triedAt < TRY_EVERY_MS[kind]) return false;
    this.#triedAt = now;
    return true;
  }

  /**
   * Whether a read may be sent twice, or on a wire of its own, only to check whether the core is slow. False while half
   * of the core's limit is in use: a single client can cause that, and such reads would add to the load.
   */
  mayProbe(now: number): boolean {
    if (now - this.#probedAt < PROBE_EVERY_MS || 2 * this.limit.inFlight >= this.limit.value) return false;
    this.#probedAt = now;
    return true;
  }

  /** Notes that the core has begun to answer. All times are from performance.now(). */
  answered(createdAt: number, sentAt: number, now: number): void {
    this.limit.noteAnswer(createdAt, now);
    this.counts.answered(now - createdAt);
    this.newestAnswered = Math.max(this.newestAnswered, sentAt);
    this.isSilent = false;
    this.#answeredAt = Date.now();
    this.#answeredMs = now - createdAt;
    this.resends.noteAnswer();
  }

  setReady(ready: boolean, because?: string): void {
    if (this.ready !== ready) this.since = Date.now();
    this.ready = ready;
    this.notReadyBecause = ready ? undefined : because;
  }

  /** Probes whether the core is ready. */
  async probe(): Promise<void> {
    try {
      const status = (await answerTo(this.address, '/readyz', PROBE_TIMEOUT_MS))?.status;
      // A core that is ready again has probably restarted, so it no longer counts as silent.
      if (!this.ready && status !== undefined) this.isSilent = false;
      this.setReady(status === 200, status === undefined ? '/readyz did not answer.' : `/readyz returned ${status}.`);
    } catch (fault) {
      this.setReady(false, (fault as Error).message);
    }
  }

  state(isDraining: boolean): CoreState {
    return {
      origin: this.origin,
      ready: this.ready,
      isDraining,
      isSilent: this.isSilent,
      inFlight: this.limit.inFlight,
      queued: this.reads.waiting + (this.#hasLine ? 0 : this.writes.waiting),
      limit: this.limit.value,
      since: this.since,
      reason: this.notReadyBecause,
      lastAnswer: this.#answeredAt === 0 ? undefined : { at: this.#answeredAt, ms: this.#answeredMs },
      lastFault: this.counts.lastFault,
    };
  }

  close(): void {
    for (const wire of [...this.quick.all, ...this.slow.all, ...this.retired, ...this.#own]) wire.close();
  }

  #newWire(needsEcho: boolean): Wire {
    const { url, connect } = this.address;
    return new Wire(url, { connect, connectTimeoutMs: CONNECT_TIMEOUT_MS, keepAliveMs: KEEP_ALIVE_MS, needsEcho });
  }
}

/** A few pipelined wires to one core. */
export class SharedWires {
  readonly all: Wire[] = [];
  readonly #open: () => Wire;

  constructor(open: () => Wire) {
    this.#open = open;
  }

  /**
   * Sends a read on the wire that is likely to answer first.
   * @returns the wire; undefined if all are full
   */
  send(pending: PendingRequest, now: number): Wire | undefined {
    const wire =
      this.#flowing(now, FRESH_MS, FEW) ??
      this.#another(FEW) ??
      this.#flowing(now, LATE_AFTER_MS, SHARED) ??
      this.#another(SHARED) ??
      this.#leastBad(now);
    if (wire.depth === MAX_DEPTH) return undefined;
    wire.send(pending, now);
    return wire;
  }

  remove(wire: Wire): void {
    this.all.splice(this.all.indexOf(wire), 1);
  }

  /** Among the first `of` wires, the first one whose responses flow. */
  #flowing(now: number, withinMs: number, of: number): Wire | undefined {
    for (let at = 0; at < of; at++) {
      const wire = this.all[at];
      if (wire === undefined) return undefined;
      if (wire.depth < DEPTH && wire.stalledMs(now) < withinMs) return wire;
    }
    return undefined;
  }

  #another(most: number): Wire | undefined {
    if (this.all.length >= most) return undefined;
    const wire = this.#open();
    this.all.push(wire);
    return wire;
  }

  #leastBad(now: number): Wire {
    const cost = (wire: Wire) =>
      wire.depth === MAX_DEPTH ? Number.POSITIVE_INFINITY : wire.stalledMs(now) + 20 * wire.depth;
    return this.all.reduce((best, wire) => (cost(wire) < cost(best) ? wire : best));
  }
}

/** The state of a core as one process sees it, for operators. */
export interface CoreState {
  readonly origin: string;
  /** A single core is not probed. Instead, its last response or failed connection counts. */
  readonly ready: boolean;
  /** Whether it was removed from CORE_URL and gets no new requests. */
  readonly isDraining: boolean;
  /** Whether requests go to other cores because this one has stopped answering. */
  readonly isSilent: boolean;
  /** Requests that were handed to the core and have not finished; `queued` counts those that wait for a connection. */
  readonly inFlight: number;
  readonly queued: number;
  readonly limit: number;
  /** When it became ready, became not ready, or began to drain. All times here are Unix times in ms. */
  readonly since: number;
  readonly reason: string | undefined;
  /** The last response to a client's request. */
  readonly lastAnswer: { readonly at: number; readonly ms: number } | undefined;
  readonly lastFault: LastFault | undefined;
}

/** Chooses between the cores for each attempt. */
export interface CoreChoice {
  first(kind: 'read' | 'write', now: number): Core;
  next(tried?: readonly Core[]): Core;
  other(than: Core): Core | undefined;
  isOnlyReady(core: Core): boolean;
  areAll(tried: readonly Core[]): boolean;
  readonly isAnswerProof: boolean;
}
