import type { Logger } from '../../shared/process/logger.ts';
import { Breaker } from './breaker.ts';
import type { Credential } from './credential.ts';
import type { LocalDecisions } from './known-keys.ts';
import { type Limiter, type Question, type RemoteLimiter, StoreUnavailable, type Verdict } from './limiter.ts';

/** An unknown key waits this many deadlines for its answer, but no longer than PATIENT_MS. */
const PATIENT_DEADLINES = 10;
const PATIENT_MS = 1_000;

export interface OutageOptions {
  readonly logger: Logger;
  /** The deadline of a decision in Redis. */
  readonly timeoutMs: number;
  /**
   * The node that decides on a key. Each node has its own breaker, so that one that is away does not affect the others.
   * Empty if there is only one.
   */
  readonly nodeOf?: ((credential: Credential) => string) | undefined;
}

/**
 * A limiter that survives an outage of Redis. While an answer is late, known keys are decided locally; other keys keep
 * waiting for it. An error, a lost connection or several missed deadlines in a row open a breaker. Then unknown keys
 * are refused at once with Retry-After, and Redis is probed until it answers in time.
 */
export function surviveOutages(
  shared: RemoteLimiter,
  locals: LocalDecisions,
  { logger, timeoutMs, nodeOf = () => '' }: OutageOptions,
): Limiter & { nodesAway(): number; stop(): void } {
  const breakers = new Map<string, Breaker>();
  const patienceMs = Math.max(timeoutMs, Math.min(PATIENT_DEADLINES * timeoutMs, PATIENT_MS));

  function breakerOf(credential: Credential): Breaker {
    const node = nodeOf(credential);
    let breaker = breakers.get(node);
    if (breaker === undefined) {
      breaker = new Breaker(shared, node, logger);
      breakers.set(node, breaker);
    }
    return breaker;
  }

  function ask(credential: Credential, breaker: Breaker): Promise<Verdict> {
    const asked = new PendingDecision(credential, { breaker, locals, patienceMs });
    shared.ask(asked);
    return asked.verdict;
  }

  async function decideLocally(credential: Credential, breaker: Breaker): Promise<Verdict> {
    const verdict = await locals.decide(credential);
    if (verdict !== undefined) return verdict;
    if (breaker.isOpen) throw unknownKey();
    return await ask(credential, breaker);
  }

  return {
    decide(credential) {
      const breaker = breakerOf(credential);
      return breaker.isWell ? ask(credential, breaker) : decideLocally(credential, breaker);
    },
    /** A failed peek does not open the breaker; decisions do. */
    async peek(credential) {
      try {
        if (breakerOf(credential).isWell) return await shared.peek(credential);
      } catch (fault) {
        if (!(fault instanceof StoreUnavailable)) throw fault;
      }
      const verdict = await locals.peek(credential);
      if (verdict === undefined) throw unknownKey();
      return verdict;
    },
    nodesAway: () => [...breakers.values()].filter(({ isOpen }) => isOpen).length,
    stop() {
      for (const breaker of breakers.values()) breaker.stop();
    },
  };
}

const unknownKey = () => new StoreUnavailable('Redis is away, and the key was not seen before.');

interface PendingDependencies {
  readonly breaker: Breaker;
  readonly locals: LocalDecisions;
  readonly patienceMs: number;
}

/** A decision asked of Redis. If the answer takes too long, it is decided locally. */
class PendingDecision implements Question {
  readonly credential: Credential;
  readonly verdict: Promise<Verdict>;
  isOpen = true;
  readonly #deps: PendingDependencies;
  readonly #resolve: (verdict: Verdict) => void;
  readonly #reject: (fault: unknown) => void;
  readonly #askedAt = performance.now();
  #isAskedHere = false;
  #otherwise: () => unknown = () => {};

  constructor(credential: Credential, deps: PendingDependencies) {
    const { promise, resolve, reject } = Promise.withResolvers<Verdict>();
    this.credential = credential;
    this.verdict = promise;
    this.#deps = deps;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  answered(verdict: Verdict, isLate: boolean): void {
    const { breaker, locals } = this.#deps;
    breaker.heard(isLate);
    // Data that cannot be decided on is no verdict to go on from. Every gateway answers the same, whether it knows the key.
    if (verdict.outcome !== 'undecided')
      locals.note(this.credential, verdict, this.#isAskedHere, Math.floor(this.#askedAt * 1_000));
    this.#settle(verdict);
  }

  late(since: number): void {
    const { breaker, patienceMs } = this.#deps;
    breaker.missed(since, this.credential);
    if (!this.isOpen) return;
    const isPatient = performance.now() - this.#askedAt < patienceMs;
    void this.#decideHere(() => isPatient || this.#fail(unknownKey()));
  }

  failed(fault: StoreUnavailable): void {
    this.#deps.breaker.open(fault, this.credential);
    void this.#decideHere(() => this.#fail(unknownKey()));
  }

  /** @param otherwise called if the key is not known here; the last one given counts */
  async #decideHere(otherwise: () => unknown): Promise<void> {
    if (!this.isOpen) return;
    this.#otherwise = otherwise;
    if (this.#isAskedHere) return;
    this.#isAskedHere = true;
    const verdict = await this.#deps.locals.decide(this.credential);
    this.#isAskedHere = verdict !== undefined;
    if (verdict === undefined) this.#otherwise();
    else this.#settle(verdict);
  }

  #settle(verdict: Verdict): void {
    this.isOpen = false;
    this.#resolve(verdict);
  }

  #fail(fault: StoreUnavailable): void {
    this.isOpen = false;
    this.#reject(fault);
  }
}
