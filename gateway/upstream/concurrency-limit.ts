import type { FairShare } from '../../shared/fair-share.ts';

/** The limit never falls below this, because a core must be able to show that it has recovered. */
const FEWEST = 8;
/** A healthy core answers several thousand requests a second, so the last of this many waits a fraction of a second. */
const MOST = 2_048;
/** The maximum number of requests handed to one core, whatever the limit. */
const MAX_IN_FLIGHT = 4_096;

/**
 * Fractions of the time limit: the time allowed for a queue in the core, and the time after which responses are late.
 */
const QUEUE = 0.2;
const LATE = 0.75;
/** The number of windows within the time allowed for a queue. */
const WINDOWS = 16;
/** Random arrivals make the number of requests in flight vary by at most this many times its square root. */
const CHANCE = 5;
/** Fewer late responses prove nothing about the core. */
const MIN_LATE = 16;
const LOWERED_TO = 0.25;
/** The quickest response is taken from the last one or two periods of this length. */
const PERIOD_MS = 10_000;

/** A limit of the requests in progress at one core. */
abstract class Limit {
  #inFlight = 0;

  abstract get value(): number;

  /** How many requests one client may have in progress, if that is less than its fair part of the limit. */
  get perClient(): number {
    return Number.POSITIVE_INFINITY;
  }

  /** Requests handed to the core and not finished: sent, or waiting for a connection. */
  get inFlight(): number {
    return this.#inFlight;
  }

  get hasRoom(): boolean {
    return this.#inFlight < this.value;
  }

  get isFull(): boolean {
    return this.#inFlight >= MAX_IN_FLIGHT;
  }

  /** Counts a request that is handed to the core. @param _now from performance.now() */
  enter(_now: number): void {
    this.#inFlight += 1;
  }

  leave(): void {
    this.#inFlight -= 1;
  }
}

/**
 * Limits the concurrent requests to one core. In front of an overloaded core, a queue grows until no request in it is
 * answered in time. High latency alone is no sign of overload, nor is one late response. A queue exists if, while
 * responses flow, more requests arrive than are answered and even the quickest response in a window is delayed. If the
 * queue would last more than a fifth of the time limit (one second of five by default) at the current rate of
 * responses, the limit falls to as many requests as the core answers in that time.
 */
export class ConcurrencyLimit extends Limit {
  readonly #queueMs: number;
  readonly #lateMs: number;
  #value = MOST;
  /** How many more requests than responses there have been since the queue was last empty. */
  #queued = 0;
  #mayRise = true;
  readonly #base = new Quickest();
  #window = new Window(0);
  #late = 0;
  /** How many responses the core sent in the time allowed for a queue, as of `#inTimeAt`. Older ones count less. */
  #recent = 0;
  #inTimeAt = Number.NEGATIVE_INFINITY;
  /** When the core was last idle, and what `#recent` was then. */
  #busySince = Number.NEGATIVE_INFINITY;
  #recentBefore = 0;
  #loweredAt = Number.NEGATIVE_INFINITY;

  /** @param timeoutMs the time limit for a response */
  constructor(timeoutMs: number) {
    super();
    this.#queueMs = timeoutMs * QUEUE;
    this.#lateMs = timeoutMs * LATE;
  }

  override get value(): number {
    return this.#value;
  }

  override enter(now: number): void {
    if (this.inFlight === 0) {
      this.#recentBefore = this.#recentAt(now);
      this.#busySince = now;
    }
    super.enter(now);
    this.#window.sent += 1;
  }

  /**
   * Notes the beginning of a response, or a timeout.
   * @param sentAt when the request was sent; both times are from performance.now()
   */
  noteAnswer(sentAt: number, now: number): void {
    const tookMs = now - sentAt;
    this.#window.answered += 1;
    this.#window.quickestMs = Math.min(this.#window.quickestMs, tookMs);
    if (tookMs < this.#lateMs) this.#inTime(now);
    // Requests sent before the limit was lowered do not show its effect. A core that still answers other requests is
    // not overloaded.
    else if (sentAt > this.#loweredAt && ++this.#late >= MIN_LATE && now - this.#inTimeAt > this.#queueMs / 2)
      this.#lower(this.inFlight * LOWERED_TO, now);
    if (now - this.#window.startedAt >= this.#queueMs / WINDOWS) this.#judge(now);
  }

  #inTime(now: number): void {
    this.#late = 0;
    this.#recent = this.#recentAt(now) + 1;
    this.#inTimeAt = now;
    if (this.#mayRise) this.#value = Math.min(this.#value + 1, MOST);
  }

  #judge(now: number): void {
    const { startedAt, sent, answered, quickestMs } = this.#window;
    const lastedMs = now - startedAt;
    this.#window = new Window(now);
    // After a silence it is unknown how many requests could have been answered.
    if (!this.#base.isKnown) this.#base.note(quickestMs, now);
    if (lastedMs > this.#queueMs / 2) return;
    const isDelayed = quickestMs - this.#base.ms >= this.#queueMs / 4;
    const isShort = !isDelayed && sent <= answered;
    this.#queued = isShort ? 0 : within(this.#queued + sent - answered, 0, this.inFlight);
    const allowed = this.#allowed(now);
    const most = Math.max(allowed, CHANCE * Math.sqrt(this.inFlight));
    if (this.#queued <= most / 8) this.#base.note(quickestMs, now);
    if (isDelayed && this.#queued > most) this.#lower(allowed, now);
    this.#mayRise = this.#queued <= allowed;
  }

  #lower(wanted: number, now: number): void {
    this.#value = within(Math.floor(Math.min(this.#value, wanted)), Math.floor(this.#allowed(now)), MOST);
    this.#late = 0;
    this.#loweredAt = now;
  }

  /**
   * How many requests the core answers in the time allowed for a queue. If it was idle within that time, its rate since
   * then counts, unless that is lower.
   */
  #allowed(now: number): number {
    const recent = this.#recentAt(now);
    const left = Math.exp((this.#busySince - now) / this.#queueMs);
    return Math.max(FEWEST, recent, (recent - this.#recentBefore * left) / (1 - left || 1));
  }

  #recentAt(now: number): number {
    return this.#recent * Math.exp((this.#inTimeAt - now) / this.#queueMs);
  }
}

/** While the rate of a core is unknown, its limit is this many requests for each place, or FEWEST_AT_FIRST if that is more. */
const AT_FIRST = 64;
const FEWEST_AT_FIRST = 512;

/**
 * Limits the requests to a core that gets only so many at a time, while the rest wait in the gateway. Nothing needs to
 * be inferred: while requests wait, the core's responses show how many it can answer. Twice as many as in the time
 * allowed for a queue may wait, because a single client gets at most half of the limit. As clients take turns, one of
 * several that wait gets an equal part, and each has room for one request, even if the core answers none.
 */
export class QueueLimit extends Limit {
  readonly #queueMs: number;
  readonly #timeoutMs: number;
  readonly #line: FairShare;
  /** How long requests have waited, and the responses during that time. Both fade, so that recent ones count most. */
  #waitedMs = 0;
  #answered = 0;
  #at = performance.now();

  /** @param line the places of the requests that the core gets at a time */
  constructor(timeoutMs: number, line: FairShare) {
    super();
    this.#queueMs = timeoutMs * QUEUE;
    this.#timeoutMs = timeoutMs;
    this.#line = line;
  }

  override get value(): number {
    this.#pass(performance.now());
    if (this.#waitedMs < this.#queueMs / 4) return within(AT_FIRST * this.#line.places, FEWEST_AT_FIRST, MOST);
    const answeredInTime = (this.#answered / this.#waitedMs) * this.#queueMs;
    const fewest = FEWEST + 2 * this.#line.waitingClients;
    return within(Math.floor(this.#line.places + 2 * answeredInTime), fewest, MOST);
  }

  override get perClient(): number {
    return this.value / (this.#line.waitingClients + 1);
  }

  override enter(now: number): void {
    this.#pass(now);
    super.enter(now);
  }

  /** Notes the beginning of a response, or a timeout, which is no answer. */
  noteAnswer(sentAt: number, now: number): void {
    this.#pass(now);
    if (this.#line.waiting > 0 && now - sentAt < this.#timeoutMs) this.#answered += 1;
  }

  #pass(now: number): void {
    const ms = now - this.#at;
    const left = Math.exp(-ms / this.#queueMs);
    this.#waitedMs = this.#waitedMs * left + (this.#line.waiting > 0 ? ms : 0);
    this.#answered *= left;
    this.#at = now;
  }
}

const within = (value: number, least: number, most: number): number => Math.min(Math.max(value, least), most);

class Window {
  readonly startedAt: number;
  sent = 0;
  answered = 0;
  quickestMs = Number.POSITIVE_INFINITY;

  constructor(startedAt: number) {
    this.startedAt = startedAt;
  }
}

/** The duration of the quickest recent response, in ms. */
class Quickest {
  #older = Number.POSITIVE_INFINITY;
  #newer = Number.POSITIVE_INFINITY;
  #since = Number.NEGATIVE_INFINITY;

  get isKnown(): boolean {
    return this.#since > 0;
  }

  get ms(): number {
    return Math.min(this.#older, this.#newer);
  }

  note(ms: number, now: number): void {
    if (now - this.#since > PERIOD_MS) {
      this.#older = this.#newer;
      this.#newer = ms;
      this.#since = now;
    } else this.#newer = Math.min(this.#newer, ms);
  }
}

/** The number of reads that may be sent twice: this many at first, then one more for every ten responses. */
const MAX_RESENDS = 64;
const RESENDS_PER_ANSWER = 0.1;

/** The budget for resent reads. All cores share it, so healthy cores pay for resending reads of a silent one. */
export class Resends {
  #left = MAX_RESENDS;

  noteAnswer(): void {
    this.#left = Math.min(this.#left + RESENDS_PER_ANSWER, MAX_RESENDS);
  }

  /**
   * @param isOwnFault whether the read waits behind one from the same client
   * @returns false once the budget is used up, so that slow cores do not get every request twice
   */
  take(isOwnFault: boolean): boolean {
    if (this.#left < (isOwnFault ? MAX_RESENDS / 4 : 1)) return false;
    this.#left -= 1;
    return true;
  }
}
