/** A core may always be asked so many at once, or it could never show that it is well again. */
const FEWEST = 32;
/** A healthy core answers several thousand a second: the last of so many waits for a fraction of a second. */
const MOST = 2_048;
/** However many requests wait, undici and the queues hold no more. */
const MAX_IN_FLIGHT = 4_096;

/** Shares of the time limit: of a queue in the core, and of an answer that is almost too late. */
const QUEUE = 0.1;
const LATE = 0.75;
/** Windows in the time that is allowed to a queue. */
const WINDOWS = 8;
/** A queue shows in so many windows running, a burst in one. */
const MIN_WINDOWS = 3;
/** Fewer late answers than this prove nothing about the core. */
const MIN_LATE = 16;
const LOWERED_TO = 0.25;
/** The quickest answer is that of one such period or two. */
const PERIOD_MS = 10_000;
/** A queue that lasts for so long is most likely latency. */
const FORGET_QUEUE_MS = 20_000;

/**
 * How many requests a core may be asked at once. In front of a core that is asked for more than it can do, a queue grows
 * until nobody in it is answered in time. Latency alone is no sign of that, nor is one late answer. A queue is there when
 * more requests come than are answered while answers flow, and even the quickest answer of a window waits.
 */
export class ConcurrencyLimit {
  readonly #queueMs: number;
  readonly #lateMs: number;
  readonly #least: number;
  #value = MOST;
  #inFlight = 0;
  /** Requests in excess of answers since there was no queue. */
  #queued = 0;
  #queueWindows = 0;
  #mayRise = true;
  readonly #base = new Quickest();
  #window = new Window(0);
  #late = 0;
  #loweredAt = Number.NEGATIVE_INFINITY;

  /**
   * @param timeoutMs after which an answer is given up
   * @param connections that requests can be sent on at once
   */
  constructor(timeoutMs: number, connections: number) {
    this.#queueMs = timeoutMs * QUEUE;
    this.#lateMs = timeoutMs * LATE;
    // One client alone gets half: it can use every connection.
    this.#least = 2 * connections;
  }

  get value(): number {
    return this.#value;
  }

  /** Requests that were handed to the core and not let go of: sent, or waiting for a connection. */
  get inFlight(): number {
    return this.#inFlight;
  }

  get hasRoom(): boolean {
    return this.#inFlight < this.#value;
  }

  get isFull(): boolean {
    return this.#inFlight >= MAX_IN_FLIGHT;
  }

  enter(): void {
    this.#inFlight += 1;
    this.#window.asked += 1;
  }

  leave(): void {
    this.#inFlight -= 1;
  }

  /**
   * Notes an answer that began, or was given up.
   * @param askedAt and `now` are of performance.now()
   */
  learn(askedAt: number, now: number): void {
    const tookMs = now - askedAt;
    this.#window.answered += 1;
    this.#window.quickestMs = Math.min(this.#window.quickestMs, tookMs);
    if (tookMs < this.#lateMs) this.#inTime();
    // What was asked before the limit was lowered tells nothing of what that did.
    else if (askedAt > this.#loweredAt && ++this.#late >= MIN_LATE)
      this.#lower(FEWEST, this.#inFlight * LOWERED_TO, now);
    if (now - this.#window.startedAt >= this.#queueMs / WINDOWS) this.#judge(now);
  }

  #inTime(): void {
    this.#late = 0;
    if (this.#mayRise) this.#value = Math.min(this.#value + 1, MOST);
  }

  /** Ends a window. */
  #judge(now: number): void {
    const { startedAt, asked, answered, quickestMs } = this.#window;
    const lastedMs = now - startedAt;
    this.#window = new Window(now);
    // After a silence it is not known how many could have been answered.
    if (!this.#base.isKnown) this.#base.note(quickestMs, now);
    if (lastedMs > this.#queueMs) {
      this.#queueWindows = 0;
      return;
    }
    const waitedMs = quickestMs - this.#base.ms;
    // A count of long ago is forgotten: what looks like a queue for good is latency.
    const before = this.#queued * (1 - lastedMs / FORGET_QUEUE_MS);
    const isShort = waitedMs < this.#queueMs / 2 && asked <= answered;
    this.#queued = isShort ? 0 : within(before + asked - answered, 0, this.#inFlight);
    this.#mayRise = waitedMs < this.#queueMs;
    const allowed = (answered / lastedMs) * this.#queueMs;
    if (this.#queued <= allowed / 4) this.#base.note(quickestMs, now);
    const isQueue = this.#inFlight > this.#least && this.#queued > allowed && !this.#mayRise;
    this.#queueWindows = isQueue ? this.#queueWindows + 1 : 0;
    if (this.#queueWindows >= MIN_WINDOWS) this.#lower(this.#least, this.#inFlight - this.#queued + allowed, now);
  }

  #lower(least: number, wanted: number, now: number): void {
    this.#value = Math.min(this.#value, Math.max(least, Math.floor(wanted)));
    this.#late = 0;
    this.#queueWindows = 0;
    this.#loweredAt = now;
  }
}

const within = (value: number, least: number, most: number): number => Math.min(Math.max(value, least), most);

/** What happened in a short time. */
class Window {
  readonly startedAt: number;
  asked = 0;
  answered = 0;
  quickestMs = Number.POSITIVE_INFINITY;

  constructor(startedAt: number) {
    this.startedAt = startedAt;
  }
}

/** The time of the quickest answer lately, ms. */
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
