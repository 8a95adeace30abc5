/** The limit never falls below this, because a core must be able to show that it has recovered. */
const FEWEST = 32;
/** A healthy core answers several thousand requests a second, so the last of these waits a fraction of a second. */
const MOST = 2_048;
/** The maximum number of requests handed to one core, whatever the limit. */
const MAX_IN_FLIGHT = 4_096;

/** Fractions of the time limit: for a queue in the core, and for an answer that is almost too late. */
const QUEUE = 0.1;
const LATE = 0.75;
/** The number of windows within the time allowed for a queue. */
const WINDOWS = 8;
/** A queue shows in this many windows in a row, a burst in only one. */
const MIN_WINDOWS = 3;
/** Fewer late answers prove nothing about the core. */
const MIN_LATE = 16;
const LOWERED_TO = 0.25;
/** The quickest answer is taken from the last one or two such periods. */
const PERIOD_MS = 10_000;
/** What looks like a queue for this long is most likely latency. */
const FORGET_QUEUE_MS = 20_000;

/**
 * Limits the concurrent requests to one core. In front of an overloaded core a queue grows until no request in it is
 * answered in time. Latency alone is no sign of overload, nor is one late answer. A queue exists if more requests
 * arrive than are answered while answers flow, and if even the quickest answer in a window is delayed.
 */
export class ConcurrencyLimit {
  readonly #queueMs: number;
  readonly #lateMs: number;
  readonly #least: number;
  #value = MOST;
  #inFlight = 0;
  /** How many more requests than answers there were since the queue was last empty. */
  #queued = 0;
  #queueWindows = 0;
  #mayRise = true;
  readonly #base = new Quickest();
  #window = new Window(0);
  #late = 0;
  #inTimeAt = Number.NEGATIVE_INFINITY;
  #loweredAt = Number.NEGATIVE_INFINITY;

  /**
   * @param timeoutMs timeout of an answer
   * @param connections number of connections that can carry requests at the same time
   */
  constructor(timeoutMs: number, connections: number) {
    this.#queueMs = timeoutMs * QUEUE;
    this.#lateMs = timeoutMs * LATE;
    // A single client gets half of it, so it can use every connection.
    this.#least = 2 * connections;
  }

  get value(): number {
    return this.#value;
  }

  /** Requests handed to the core and not finished: sent, or waiting for a connection. */
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
    this.#window.sent += 1;
  }

  leave(): void {
    this.#inFlight -= 1;
  }

  /**
   * Notes the beginning of an answer, or a timeout.
   * @param sentAt when it was requested; both times are those of performance.now()
   */
  learn(sentAt: number, now: number): void {
    const tookMs = now - sentAt;
    this.#window.answered += 1;
    this.#window.quickestMs = Math.min(this.#window.quickestMs, tookMs);
    if (tookMs < this.#lateMs) this.#inTime(now);
    // Requests sent before the limit was lowered do not show its effect. A core that answers others is not overloaded.
    else if (sentAt > this.#loweredAt && ++this.#late >= MIN_LATE && now - this.#inTimeAt > this.#queueMs)
      this.#lower(FEWEST, this.#inFlight * LOWERED_TO, now);
    if (now - this.#window.startedAt >= this.#queueMs / WINDOWS) this.#judge(now);
  }

  #inTime(now: number): void {
    this.#late = 0;
    this.#inTimeAt = now;
    if (this.#mayRise) this.#value = Math.min(this.#value + 1, MOST);
  }

  #judge(now: number): void {
    const { startedAt, sent, answered, quickestMs } = this.#window;
    const lastedMs = now - startedAt;
    this.#window = new Window(now);
    // After a silence it is unknown how many could have been answered.
    if (!this.#base.isKnown) this.#base.note(quickestMs, now);
    if (lastedMs > this.#queueMs) {
      this.#queueWindows = 0;
      return;
    }
    const waitedMs = quickestMs - this.#base.ms;
    // Old counts fade: what looks like a permanent queue is latency.
    const before = this.#queued * (1 - lastedMs / FORGET_QUEUE_MS);
    const isShort = waitedMs < this.#queueMs / 2 && sent <= answered;
    this.#queued = isShort ? 0 : within(before + sent - answered, 0, this.#inFlight);
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

class Window {
  readonly startedAt: number;
  sent = 0;
  answered = 0;
  quickestMs = Number.POSITIVE_INFINITY;

  constructor(startedAt: number) {
    this.startedAt = startedAt;
  }
}

/** The duration of the quickest recent answer, in ms. */
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
