import type { Logger } from '../../shared/process/logger.ts';
import type { LocalDecisions } from './clients.ts';
import { monotonicClock } from './clock.ts';
import { type Credential, credentialOf } from './credential.ts';
import {
  type Limiter,
  NO_DECISION,
  type Question,
  type RemoteLimiter,
  StoreUnavailable,
  type Verdict,
} from './limiter.ts';

export interface OutageOptions {
  readonly logger: Logger;
  /** The node of Redis that decides on a key; empty if there is only one. Each node can be away by itself. */
  readonly nodeOf?: ((credential: Credential) => string) | undefined;
  /** Called for a local admission for which the store may have charged as well. */
  readonly onUnknown?: () => void;
  /** Called with a verdict that arrived after its request was decided locally. Its levels are the newest. */
  readonly onLate?: (credential: Credential, verdict: Verdict, askedAt: number) => void;
}

/**
 * A limiter that survives an outage of Redis. Slow is not away: a decision waits for its answer up to the deadline.
 * Redis is away once its connection is lost, it answers with an error, or a call stayed unanswered until the deadline.
 * Verified keys are then decided locally, and all others are refused with Retry-After, until Redis answers a probe in
 * time.
 */
export function surviveOutages(
  shared: RemoteLimiter,
  locals: LocalDecisions,
  { logger, nodeOf = () => '', onUnknown = () => {}, onLate = () => {} }: OutageOptions,
): Limiter & { nodesAway(): number; stop(): void } {
  const contacts = new Map<string, Contact>();

  function contactFor(credential: Credential): Contact {
    const node = nodeOf(credential);
    let contact = contacts.get(node);
    if (contact === undefined) {
      contact = new Contact(shared, node, logger);
      contacts.set(node, contact);
    }
    return contact;
  }

  /** @param owes whether Redis is to charge for the request later: not if Redis may have done so already */
  async function decideHere(credential: Credential, owes: boolean): Promise<Verdict> {
    const verdict = await locals.decide(credential, owes);
    if (verdict === undefined) throw unknownKey();
    if (!owes && verdict.outcome === 'admitted') onUnknown();
    return verdict;
  }

  function ask(credential: Credential, contact: Contact): Promise<Verdict> {
    const { promise, resolve } = Promise.withResolvers<Verdict>();
    const askedAt = monotonicClock();
    const here = (owes: boolean) => {
      question.isOpen = false;
      resolve(decideHere(credential, owes));
    };
    const question = {
      credential,
      isOpen: true,
      answered(verdict: Verdict) {
        if (!question.isOpen) return onLate(credential, verdict, askedAt);
        question.isOpen = false;
        // Unreadable data is neither a fault of Redis nor a verdict on the key.
        if (verdict.outcome !== 'undecided') resolve(verdict);
        else resolve(decideHere(credential, true).then(withoutData, () => verdict));
      },
      late(wasSent: boolean) {
        contact.lose('Redis did not answer in time.', credential);
        here(!wasSent);
      },
      failed(fault: StoreUnavailable, mayHaveRun: boolean) {
        contact.lose(fault.message, credential);
        here(!mayHaveRun);
      },
    };
    shared.ask(question);
    return promise;
  }

  return {
    decide(credential) {
      const contact = contactFor(credential);
      return contact.isAway ? decideHere(credential, true) : ask(credential, contact);
    },
    /** A failed peek does not begin an outage; only decisions do. */
    async peek(credential) {
      try {
        if (!contactFor(credential).isAway) return await shared.peek(credential);
      } catch (fault) {
        if (!(fault instanceof StoreUnavailable)) throw fault;
      }
      const verdict = await locals.peek(credential);
      if (verdict === undefined) throw unknownKey();
      return verdict;
    },
    nodesAway: () => [...contacts.values()].filter(({ isAway }) => isAway).length,
    stop() {
      for (const contact of contacts.values()) contact.stop();
    },
  };
}

/** A verdict from what is known of a key whose data in the store is bad, which raises the alarm. */
const withoutData = (verdict: Verdict): Verdict =>
  'rejected' in verdict ? { ...verdict, rejected: ' data' } : verdict;

const unknownKey = () => new StoreUnavailable('Redis is away, and the key was not seen before.', NO_DECISION);

/** While a node is away, probes test it at this interval, so that no client's request has to. */
const PROBE_EVERY_MS = 50;
/** An outage that follows within this time counts as the same one. */
const SETTLED_AFTER_MS = 1_000;

/** No key has this secret: a question with it runs the script but writes nothing. */
const NO_SECRET = '-';

/** The contact with one node. Logs the beginning of an outage once, and its end once. */
class Contact {
  isAway = false;
  readonly #shared: RemoteLimiter;
  readonly #logger: Logger;
  readonly #names: { readonly node?: string };
  #isOutage = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(shared: RemoteLimiter, node: string, logger: Logger) {
    this.#shared = shared;
    this.#names = node === '' ? {} : { node };
    this.#logger = logger;
  }

  /** @param id the key that got no decision. Probes ask about it until one is answered in time */
  lose(reason: string, { id }: Credential): void {
    if (this.isAway) return;
    this.isAway = true;
    if (!this.#isOutage) this.#logger.error({ ...this.#names, reason }, 'decisions are local');
    this.#isOutage = true;
    this.#schedule(() => this.#probe(id), PROBE_EVERY_MS);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  #probe(id: string): void {
    const end = (isBack: boolean) => {
      if (!probe.isOpen) return;
      probe.isOpen = false;
      if (isBack) this.#regain();
      else this.#schedule(() => this.#probe(id), PROBE_EVERY_MS);
    };
    const probe: Question & { isOpen: boolean } = {
      credential: credentialOf(id, NO_SECRET),
      isOpen: true,
      answered: () => end(true),
      late: () => end(false),
      failed: () => end(false),
    };
    this.#shared.ask(probe);
  }

  #regain(): void {
    this.isAway = false;
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
