/** A core gets at least so many at once, or it could never show that it is well again. */
const FEWEST = 32;
/** With a healthy core, at several thousand a second, the last of these waits for a fraction of a second. */
const MOST = 2_048;

/** Shares of the time limit after which an answer is late: where requests had to wait for a connection, and where none had. */
const LATE_QUEUED = 0.1;
const LATE_UNQUEUED = 0.5;
const LOWERED_TO = 0.75;

/**
 * How many requests a core may be asked at once. A queue of a fixed length is good for a fixed speed only: in front of a
 * core that has become slow, all who wait in it would wait until their time is over, and their answers be of use to nobody.
 * So the limit follows the answers: one that is late lowers it to less than what is under way, every other one raises it by
 * one (additive increase and multiplicative decrease, as in RFC 5681).
 */
export class ConcurrencyLimit {
  /** Requests that were handed to a connection and not let go of: sent, or waiting their turn. */
  inFlight = 0;
  readonly #timeoutMs: number;
  readonly #unqueued: number;
  #value = MOST;
  #loweredAt = Number.NEGATIVE_INFINITY;

  /**
   * @param timeoutMs after which an answer is given up
   * @param connections that requests can be sent on at once
   */
  constructor(timeoutMs: number, connections: number) {
    this.#timeoutMs = timeoutMs;
    // Half of what there is goes to a client that comes alone; it should be able to use every connection.
    this.#unqueued = 2 * connections;
  }

  get value(): number {
    return this.#value;
  }

  get hasRoom(): boolean {
    return this.inFlight < this.#value;
  }

  /**
   * To be told when an answer begins, or is given up.
   * @param askedAt and `now` are of performance.now()
   */
  learn(askedAt: number, now: number): void {
    const isQueue = this.#value > this.#unqueued;
    if (now - askedAt < this.#timeoutMs * (isQueue ? LATE_QUEUED : LATE_UNQUEUED))
      this.#value = Math.min(this.#value + 1, MOST);
    // What was asked before the limit was lowered tells nothing of what that did.
    else if (askedAt > this.#loweredAt) this.#lower(isQueue ? this.#unqueued : FEWEST, now);
  }

  #lower(least: number, now: number): void {
    this.#value = Math.max(least, Math.floor(Math.min(this.#value, this.inFlight) * LOWERED_TO));
    this.#loweredAt = now;
  }
}
