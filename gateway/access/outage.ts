import type { Logger } from '../../shared/logger.ts';
import { Breaker } from './breaker.ts';
import type { Credential } from './credential.ts';
import type { LocalDecisions } from './known-keys.ts';
import { AccessUnavailable, type Limiter, type Question, type RemoteLimiter } from './limiter.ts';
import type { Verdict } from './verdict.ts';

/** A key that was not seen before waits this many deadlines for its answer, but no longer than this time. */
const PATIENT_DEADLINES = 10;
const PATIENT_MS = 1_000;

export interface OutageOptions {
  readonly logger: Logger;
  /** The deadline of a decision in Redis. */
  readonly timeoutMs: number;
  /**
   * Which of several nodes decides on a key: each has a breaker of its own, so that one that is away takes no other along.
   * Empty where there is but one.
   */
  readonly nodeOf?: ((credential: Credential) => string) | undefined;
}

/**
 * A limiter that goes on without its Redis. While an answer is late, keys that were seen before are decided here, and others
 * go on waiting for that same answer. An error, a lost connection or several missed deadlines in a row open a breaker: then
 * keys that were not seen before are told at once to come back, and Redis is probed until it answers in time.
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
    const asked = new Asked(credential, { breaker, locals, patienceMs });
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
    /** A peek that fails opens no breaker: decisions do. */
    async peek(credential) {
      try {
        if (breakerOf(credential).isWell) return await shared.peek(credential);
      } catch (fault) {
        if (!(fault instanceof AccessUnavailable)) throw fault;
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

const unknownKey = () => new AccessUnavailable('Redis is away, and the key was not seen before.');

interface AskedParts {
  readonly breaker: Breaker;
  readonly locals: LocalDecisions;
  readonly patienceMs: number;
}

/** A decision that Redis was asked for: from there, or taken here where that takes too long. */
class Asked implements Question {
  readonly credential: Credential;
  readonly verdict: Promise<Verdict>;
  isOpen = true;
  readonly #parts: AskedParts;
  readonly #resolve: (verdict: Verdict) => void;
  readonly #reject: (fault: unknown) => void;
  readonly #askedAt = performance.now();
  #isAskedHere = false;
  #otherwise: () => unknown = () => {};

  constructor(credential: Credential, parts: AskedParts) {
    const { promise, resolve, reject } = Promise.withResolvers<Verdict>();
    this.credential = credential;
    this.verdict = promise;
    this.#parts = parts;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  answered(verdict: Verdict, isLate: boolean): void {
    const { breaker, locals } = this.#parts;
    breaker.heard(isLate);
    // Data that no decision can be taken on says nothing against Redis, and nothing against the key.
    if (verdict.outcome === 'undecided') return void this.#decideHere(() => this.#settle(verdict));
    locals.note(this.credential, verdict, this.#isAskedHere);
    this.#settle(verdict);
  }

  late(since: number): void {
    const { breaker, patienceMs } = this.#parts;
    breaker.missed(since, this.credential);
    if (!this.isOpen) return;
    const isPatient = performance.now() - this.#askedAt < patienceMs;
    void this.#decideHere(() => isPatient || this.#fail(unknownKey()));
  }

  failed(fault: AccessUnavailable): void {
    this.#parts.breaker.open(fault, this.credential);
    void this.#decideHere(() => this.#fail(unknownKey()));
  }

  /** @param otherwise where the key is not known here: the last one given counts */
  async #decideHere(otherwise: () => unknown): Promise<void> {
    if (!this.isOpen) return;
    this.#otherwise = otherwise;
    if (this.#isAskedHere) return;
    this.#isAskedHere = true;
    const verdict = await this.#parts.locals.decide(this.credential);
    this.#isAskedHere = verdict !== undefined;
    if (verdict === undefined) this.#otherwise();
    else this.#settle(verdict);
  }

  #settle(verdict: Verdict): void {
    this.isOpen = false;
    this.#resolve(verdict);
  }

  #fail(fault: AccessUnavailable): void {
    this.isOpen = false;
    this.#reject(fault);
  }
}
