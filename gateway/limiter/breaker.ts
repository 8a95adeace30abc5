import type { Logger } from '../../shared/process/logger.ts';
import { type Credential, credentialOf } from './credential.ts';
import { type RemoteLimiter, StoreUnavailable } from './limiter.ts';

/** A stall of the event loop counts as one of this many parts of a deadline, however long it is. */
const PARTS = 5;

/**
 * Calls `onMissed` every `ms`. A process that stalls or gets little CPU misses no deadline: the time is counted in
 * parts in which the event loop turned, and every socket is read once more before the call.
 * @param onMissed gets the beginning of the missed time, as of performance.now()
 * @returns a function that stops it
 */
export function startDeadline(ms: number, onMissed: (since: number) => void): () => void {
  let since = performance.now();
  let parts = 0;
  let hasEnded = false;
  const lookAgain = () => {
    if (hasEnded) return;
    const began = since;
    since = performance.now();
    onMissed(began);
  };
  const timer = setInterval(() => {
    parts += 1;
    // Timers run before the poll phase, in which sockets are read. Immediates run after it.
    if (parts % PARTS === 0) setImmediate(lookAgain);
  }, ms / PARTS);
  return () => {
    hasEnded = true;
    clearInterval(timer);
  };
}

/** Interval of probes to Redis while the breaker is open, so that no client request has to test it. */
const PROBE_EVERY_MS = 100;
/** Another outage within this time counts as the same one. */
const SETTLED_AFTER_MS = 1_000;
/** A pause of Redis (a fork, a slow command, a lost packet) seldom misses this many deadlines. An outage misses all. */
const MISSES_OF_AN_OUTAGE = 3;

/** A secret that no key has: asking with it runs the script, but writes nothing. */
const NO_SECRET = '-';

/** Open while a node is away. Logs the beginning of an outage once, and once that Redis is back for good. */
export class Breaker {
  isOpen = false;
  readonly #shared: RemoteLimiter;
  readonly #logger: Logger;
  readonly #names: { readonly node?: string };
  /** Missed deadlines in a row, and the time of the last one. */
  #misses = 0;
  #missedAt = 0;
  /** An answer is late and still pending. */
  #isLate = false;
  #isOutage = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(shared: RemoteLimiter, node: string, logger: Logger) {
    this.#shared = shared;
    this.#names = node === '' ? {} : { node };
    this.#logger = logger;
  }

  /** False while it is open or an answer is late: then no request waits for Redis if it can do without. */
  get isWell(): boolean {
    return !this.isOpen && !this.#isLate;
  }

  /** To be called for every answer. */
  heard(isLate: boolean): void {
    this.#isLate = false;
    if (!isLate) this.#misses = 0;
  }

  /** @param since when the missed time began; time that was already counted is not counted again */
  missed(since: number, credential: Credential): void {
    if (since < this.#missedAt) return;
    this.#missedAt = performance.now();
    this.#isLate = true;
    this.#misses += 1;
    if (this.#misses < MISSES_OF_AN_OUTAGE) return;
    this.open(new StoreUnavailable(`Redis missed ${MISSES_OF_AN_OUTAGE} deadlines in a row.`), credential);
  }

  /** @param id of the key that could not be decided; it is probed until an answer comes in time */
  open(reason: StoreUnavailable, { id }: Credential): void {
    this.#isLate = false;
    if (this.isOpen) return;
    this.isOpen = true;
    if (!this.#isOutage) this.#logger.error({ ...this.#names, reason: reason.message }, 'decisions are local');
    this.#isOutage = true;
    this.#schedule(() => this.#probe(id), PROBE_EVERY_MS);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  #probe(id: string): void {
    const tryAgain = () => {
      probe.isOpen = false;
      this.#schedule(() => this.#probe(id), PROBE_EVERY_MS);
    };
    const probe = {
      credential: credentialOf(id, NO_SECRET),
      isOpen: true,
      answered: () => probe.isOpen && this.#close(),
      late: () => probe.isOpen && tryAgain(),
      failed: () => probe.isOpen && tryAgain(),
    };
    this.#shared.ask(probe);
  }

  #close(): void {
    this.isOpen = false;
    this.#isLate = false;
    this.#misses = 0;
    this.#schedule(() => {
      this.#isOutage = false;
      this.#logger.info(this.#names, 'decisions are shared again');
    }, SETTLED_AFTER_MS);
  }

  #schedule(task: () => void, delayMs: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(task, delayMs).unref();
  }
}
