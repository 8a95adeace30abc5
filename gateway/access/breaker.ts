import type { Logger } from '../../shared/logger.ts';
import { type Credential, credentialOf } from './credential.ts';
import { AccessUnavailable, type RemoteLimiter } from './limiter.ts';

/** While the breaker is open, Redis is asked so often whether it is back; clients are not made to try it out. */
const PROBE_EVERY_MS = 100;
/** An outage that comes back within this time is the same one. */
const SETTLED_AFTER_MS = 1_000;
/** A pause of Redis (a fork, a slow command, a lost packet) seldom lasts for as many; an outage misses every one. */
const MISSES_OF_AN_OUTAGE = 3;

/** A secret that no key has: asking with it runs the script, and writes nothing. */
const NO_SECRET = '-';

/** Open while a node is away. Tells once that it went, and once that it is back to stay. */
export class Breaker {
  isOpen = false;
  readonly #shared: RemoteLimiter;
  readonly #logger: Logger;
  readonly #names: { readonly node?: string };
  /** Deadlines that were missed in a row, and when the last one was. */
  #misses = 0;
  #missedAt = 0;
  /** An answer is late, and has not come yet. */
  #isLate = false;
  #isOutage = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(shared: RemoteLimiter, node: string, logger: Logger) {
    this.#shared = shared;
    this.#names = node === '' ? {} : { node };
    this.#logger = logger;
  }

  /** False while it is open or an answer is late: whoever can do without Redis does not wait for it. */
  get isWell(): boolean {
    return !this.isOpen && !this.#isLate;
  }

  /** An answer came. */
  heard(isLate: boolean): void {
    this.#isLate = false;
    if (!isLate) this.#misses = 0;
  }

  /** @param since when the time began that has passed without an answer; time that was counted before is not counted again */
  missed(since: number, credential: Credential): void {
    if (since < this.#missedAt) return;
    this.#missedAt = performance.now();
    this.#isLate = true;
    this.#misses += 1;
    if (this.#misses < MISSES_OF_AN_OUTAGE) return;
    this.open(new AccessUnavailable(`Redis missed ${MISSES_OF_AN_OUTAGE} deadlines in a row.`), credential);
  }

  /** @param id of the key that could not be decided on: it is asked for until an answer comes in time */
  open(reason: AccessUnavailable, { id }: Credential): void {
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
