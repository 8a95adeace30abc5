import type { Logger } from '../../shared/logger.ts';
import { type Credential, credentialOf } from './credential.ts';
import { KnownKeys } from './known-keys.ts';
import { AccessUnavailable, type Limiter } from './limiter.ts';
import type { PlanTable } from './plans.ts';
import type { Verdict } from './verdict.ts';

/** While the breaker is open, Redis is asked so often whether it is back; clients are not made to try it out. */
const PROBE_EVERY_MS = 100;
/** An outage that comes back within this time is the same one. */
const SETTLED_AFTER_MS = 1_000;

/** A secret that no key has: asking with it runs the script, and writes nothing. */
const NO_SECRET = '-';

/**
 * A limiter that goes on without its Redis. The first decision that fails opens a breaker: from then on keys that were
 * seen before are decided here, at once, and Redis is probed until it answers. Keys that were not are told to come back.
 * @param shared decides in Redis, and gives up after its deadline
 * @param nodeOf which of several nodes decides on a key: each has a breaker of its own, so that one that is away takes no
 *   other along. Empty where there is but one.
 */
export function surviveOutages(
  shared: Limiter,
  plans: () => PlanTable,
  logger: Logger,
  nodeOf: (credential: Credential) => string = () => '',
): Limiter & { nodesAway(): number; stop(): void } {
  const known = new KnownKeys(plans);
  const breakers = new Map<string, Breaker>();

  function breakerOf(credential: Credential): Breaker {
    const node = nodeOf(credential);
    let breaker = breakers.get(node);
    if (breaker === undefined) {
      breaker = new Breaker(shared, node, logger);
      breakers.set(node, breaker);
    }
    return breaker;
  }

  async function decide(credential: Credential): Promise<Verdict> {
    const breaker = breakerOf(credential);
    if (breaker.isOpen) return decideLocally(credential);
    try {
      const verdict = await shared.decide(credential);
      // Data that no decision can be taken on says nothing against Redis, and nothing against the key.
      if (verdict.outcome === 'undecided') return known.decide(credential) ?? verdict;
      known.note(credential, verdict);
      return verdict;
    } catch (fault) {
      if (!(fault instanceof AccessUnavailable)) throw fault;
      breaker.open(fault, credential);
      return decideLocally(credential);
    }
  }

  function decideLocally(credential: Credential): Verdict {
    return known.decide(credential) ?? notSeen();
  }

  function notSeen(): never {
    throw new AccessUnavailable('Redis is away, and the key was not seen before.');
  }

  /** A peek that fails opens no breaker: decisions do. */
  async function peek(credential: Credential): Promise<Verdict> {
    try {
      if (!breakerOf(credential).isOpen) return await shared.peek(credential);
    } catch (fault) {
      if (!(fault instanceof AccessUnavailable)) throw fault;
    }
    return known.peek(credential) ?? notSeen();
  }

  return {
    decide,
    peek,
    nodesAway: () => [...breakers.values()].filter(({ isOpen }) => isOpen).length,
    stop() {
      for (const breaker of breakers.values()) breaker.stop();
    },
  };
}

/** Open while a node is away. Tells once that it went, and once that it is back to stay. */
class Breaker {
  isOpen = false;
  readonly #shared: Limiter;
  readonly #logger: Logger;
  readonly #names: { readonly node?: string };
  #isOutage = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(shared: Limiter, node: string, logger: Logger) {
    this.#shared = shared;
    this.#names = node === '' ? {} : { node };
    this.#logger = logger;
  }

  /** @param id of the key that could not be decided on: it is asked for until an answer comes */
  open(reason: AccessUnavailable, { id }: Credential): void {
    if (this.isOpen) return;
    this.isOpen = true;
    if (!this.#isOutage)
      this.#logger.error({ ...this.#names, reason: (reason.cause as Error).message }, 'decisions are local');
    this.#isOutage = true;
    this.#schedule(() => this.#tryAgain(id), PROBE_EVERY_MS);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  #tryAgain(id: string): void {
    this.#shared.decide(credentialOf(id, NO_SECRET)).then(
      () => this.#close(),
      () => this.#schedule(() => this.#tryAgain(id), PROBE_EVERY_MS),
    );
  }

  #close(): void {
    this.isOpen = false;
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
