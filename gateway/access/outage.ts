import type { Logger } from '../../shared/logger.ts';
import type { Credential } from './credential.ts';
import { KnownKeys } from './known-keys.ts';
import { AccessUnavailable, type Limiter } from './limiter.ts';
import type { Verdict } from './verdict.ts';

/** While the breaker is open, Redis is asked so often whether it is back; clients are not made to try it out. */
const PROBE_EVERY_MS = 100;
/** An outage that comes back within this time is the same one. */
const SETTLED_AFTER_MS = 1_000;

/** A key that nobody has: asking for it runs the script, and writes nothing. */
const NOBODY: Credential = { id: '000000000000', digest: '' };

/**
 * A limiter that goes on without its Redis. The first decision that fails opens the breaker: from then on keys that were
 * seen before are decided here, at once, and Redis is probed until it answers. Keys that were not are told to come back.
 * @param shared decides in Redis, and gives up after its deadline
 */
export function surviveOutages(shared: Limiter, logger: Logger, known = new KnownKeys()): Limiter & { stop(): void } {
  const breaker = new Breaker(() => shared.decide(NOBODY), logger);

  async function decideShared(credential: Credential): Promise<Verdict> {
    try {
      const verdict = await shared.decide(credential);
      // Data that no decision can be taken on says nothing against Redis, and nothing against the key.
      if (verdict.outcome === 'undecided') return known.decide(credential) ?? verdict;
      known.note(credential, verdict);
      return verdict;
    } catch (fault) {
      if (!(fault instanceof AccessUnavailable)) throw fault;
      breaker.open(fault);
      return decideLocally(credential);
    }
  }

  function decideLocally(credential: Credential): Verdict {
    const verdict = known.decide(credential);
    if (verdict === undefined) throw new AccessUnavailable('Redis is away, and the key was not seen before.');
    return verdict;
  }

  return {
    async decide(credential) {
      return breaker.isOpen ? decideLocally(credential) : await decideShared(credential);
    },
    stop: () => breaker.stop(),
  };
}

/** Open while Redis is away. Tells once that it went, and once that it is back to stay. */
class Breaker {
  isOpen = false;
  readonly #probe: () => Promise<unknown>;
  readonly #logger: Logger;
  #isOutage = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(probe: () => Promise<unknown>, logger: Logger) {
    this.#probe = probe;
    this.#logger = logger;
  }

  open(reason: AccessUnavailable): void {
    if (this.isOpen) return;
    this.isOpen = true;
    if (!this.#isOutage) this.#logger.error({ reason: (reason.cause as Error).message }, 'decisions are local');
    this.#isOutage = true;
    this.#schedule(() => this.#tryAgain(), PROBE_EVERY_MS);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  #tryAgain(): void {
    this.#probe().then(
      () => this.#close(),
      () => this.#schedule(() => this.#tryAgain(), PROBE_EVERY_MS),
    );
  }

  #close(): void {
    this.isOpen = false;
    this.#schedule(() => {
      this.#isOutage = false;
      this.#logger.info('decisions are shared again');
    }, SETTLED_AFTER_MS);
  }

  #schedule(task: () => void, delayMs: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(task, delayMs).unref();
  }
}
