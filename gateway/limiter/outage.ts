import { Counter, type Family, Label } from '../../shared/process/counts.ts';
import type { Logger } from '../../shared/process/logger.ts';
import { every } from '../../shared/process/repeat.ts';
import { monotonicClock } from './bucket.ts';
import type { Client, Debt } from './client.ts';
import type { Clients } from './clients.ts';
import { type Credential, credentialOf } from './credential.ts';
import {
  type Decision,
  type Limiter,
  type LocalCharge,
  type LocalDecisions,
  NO_DECISION,
  type Question,
  type RemoteLimiter,
  StoreUnavailable,
  type Verdict,
} from './limiter.ts';

interface OutageOptions {
  readonly logger: Logger;
  /** Finds the Redis node that decides for a key; undefined if there is only one. Nodes can fail independently. */
  readonly nodeOf: ((credential: Credential) => string) | undefined;
  /** Called for a request that was admitted locally, but may have been charged by the store as well. */
  readonly onUnknown: () => void;
  /**
   * Called with a verdict that arrived after its request was decided locally. Its levels are the newest.
   * @param decidedHere undefined if the request could not be decided locally either
   */
  readonly onLate: (...late: Parameters<Clients['noteLate']>) => void;
}

/**
 * A limiter that survives a Redis outage. A slow Redis is not an outage: a decision waits for its reply up to the
 * deadline. Redis is unavailable once its connection is lost, it replies with an error, or a call misses the deadline.
 * Verified keys are then decided locally, and all others are refused with Retry-After, until Redis answers a probe in
 * time.
 */
export function surviveOutages(
  shared: RemoteLimiter,
  locals: LocalDecisions,
  { logger, nodeOf, onUnknown, onLate }: OutageOptions,
): Limiter & { nodesAway(): number; outage(): string | undefined; stop(): void } {
  const contacts = new Map<string, Contact>();

  function contactFor(credential: Credential): Contact {
    const node = nodeOf?.(credential) ?? '';
    let contact = contacts.get(node);
    if (contact === undefined) {
      contact = new Contact(shared, node, logger);
      contacts.set(node, contact);
    }
    return contact;
  }

  async function decideHere(credential: Credential, charge: LocalCharge): Promise<Verdict> {
    const verdict = await locals.decide(credential, charge);
    if (verdict === undefined) throw new StoreUnavailable(NOT_VERIFIED, NO_DECISION);
    if (charge === 'not again' && verdict.outcome === 'admitted') onUnknown();
    return verdict;
  }

  function ask(credential: Credential, contact: Contact): Promise<Verdict> {
    const { promise, resolve } = Promise.withResolvers<Verdict>();
    const askedAt = monotonicClock();
    let decidedHere: Promise<Verdict> | undefined;
    const here = (charge: LocalCharge) => {
      question.isOpen = false;
      decidedHere = decideHere(credential, charge);
      resolve(decidedHere);
    };
    const noteLate = (verdict: Verdict) => {
      const note = (decided?: Verdict) => onLate(credential, verdict, askedAt, decided);
      void decidedHere?.then(note, () => note());
    };
    const question = {
      credential,
      isOpen: true,
      answered(verdict: Verdict) {
        if (!question.isOpen) return noteLate(verdict);
        question.isOpen = false;
        // Unreadable data is neither a Redis fault nor a verdict on the key.
        if (verdict.outcome !== 'undecided') resolve(verdict);
        else resolve(decideHere(credential, 'later').then(withoutData, () => verdict));
      },
      late(wasSent: boolean) {
        contact.lose('Redis did not answer in time.', credential);
        here(wasSent ? 'not again' : 'later');
      },
      failed(fault: StoreUnavailable, mayHaveRun: boolean) {
        contact.lose(fault.message, credential);
        here(mayHaveRun ? 'not again' : 'later');
      },
    };
    shared.ask(question);
    return promise;
  }

  return {
    decide(credential) {
      const contact = contactFor(credential);
      return contact.isAway ? decideHere(credential, 'later') : ask(credential, contact);
    },
    /** A failed peek does not begin an outage; only decisions do. */
    async peek(credential) {
      try {
        if (!contactFor(credential).isAway) return await shared.peek(credential);
      } catch (fault) {
        if (!(fault instanceof StoreUnavailable)) throw fault;
      }
      return await decideHere(credential, 'peek');
    },
    nodesAway: () => [...contacts.values()].filter(({ isAway }) => isAway).length,
    /** The cause of the current outage; undefined if there is none. */
    outage: () => [...contacts.values()].find(({ outage }) => outage !== undefined)?.outage,
    stop() {
      for (const contact of contacts.values()) contact.stop();
    },
  };
}

/** A local verdict on a key whose data in the store is bad. The gateway logs an error for it. */
const withoutData = (verdict: Verdict): Verdict => ('rejected' in verdict ? { ...verdict, rejected: 'data' } : verdict);

const NOT_VERIFIED =
  'Redis is unavailable, and this gateway has not verified the key in the last 15 minutes, or not since it was last changed.';

/** While a node is unavailable, probes test it at this interval, so that no client's request has to. */
const PROBE_EVERY_MS = 50;
/** An outage that begins within this time after the last one counts as the same outage. */
const SETTLED_AFTER_MS = 1_000;

/** No key has this secret: a decision with it runs the script but writes nothing. */
const NO_SECRET = '-';

/** Tracks whether one node is available. Logs the start and the end of each outage once. */
class Contact {
  isAway = false;
  /** The fault that began the current outage. */
  outage: string | undefined;
  readonly #shared: RemoteLimiter;
  readonly #logger: Logger;
  readonly #names: { readonly node?: string };
  #timer: NodeJS.Timeout | undefined;

  constructor(shared: RemoteLimiter, node: string, logger: Logger) {
    this.#shared = shared;
    this.#names = node === '' ? {} : { node };
    this.#logger = logger;
  }

  /** @param id the key that got no decision. Probes use this key, until Redis answers one of them in time */
  lose(reason: string, { id }: Credential): void {
    if (this.isAway) return;
    this.isAway = true;
    if (this.outage === undefined) this.#logger.error({ ...this.#names, reason }, 'decisions are local');
    this.outage ??= reason;
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
      this.outage = undefined;
      this.#logger.info(this.#names, 'decisions are shared again');
    }, SETTLED_AFTER_MS);
  }

  #schedule(task: () => void, delayMs: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(task, delayMs).unref();
  }
}

/** The outcome of a charge. After `not run`, the call can be repeated. */
export type Charged =
  | { readonly decision: Decision; readonly forgiven: number }
  /** The key was deleted, or its data allows no decision. */
  | 'gone'
  | 'not run'
  | 'unknown';

export interface Charger {
  /** The most keys that one call can charge. */
  readonly atOnce: number;
  /** Whether the store answers for this key now. Never throws. */
  answers(id: string): Promise<boolean>;
  /** Charges each key for the requests that were decided without the store. Never throws. */
  charge(debts: readonly (Debt & { readonly id: string })[]): Promise<readonly Charged[]>;
}

const FATES = ['charged', 'forgiven', 'unknown'];

const EVERY_MS = 250;
/** The number of concurrent calls if each can charge only one key. */
const CALLS_AT_ONCE = 8;

/**
 * Charges the requests that were admitted while the store was unavailable, as soon as the store answers again. No debt
 * is sent twice. Debts that the store forgives, and those with an unknown outcome, are counted.
 */
export class Debts {
  readonly #clients: Clients;
  readonly #charger: Charger;
  readonly #endSettling: () => void;
  #isUnderWay = false;
  readonly #counted = new Counter(
    {
      name: 'gateway_local_admissions_total',
      help: 'Requests admitted while Redis was unavailable, by the outcome of their charge.',
    },
    new Label('fate', FATES),
  );

  constructor(clients: Clients, charger: Charger) {
    this.#clients = clients;
    this.#charger = charger;
    for (const fate of FATES) this.#counted.declare(fate);
    this.#endSettling = every(EVERY_MS, () => this.settle());
  }

  /** Counts a request that was admitted locally, but may have been charged by the store as well. */
  readonly noteUnknown = (): void => this.#counted.addMany(1, 'unknown');

  /** Charges all debts if the store answers. */
  async settle(): Promise<void> {
    if (this.#isUnderWay) return;
    this.#isUnderWay = true;
    const debtors = this.#clients.debtors();
    const size = this.#charger.atOnce;
    const parts = Array.from({ length: Math.ceil(debtors.length / size) }, (_, at) =>
      debtors.slice(at * size, (at + 1) * size),
    );
    const lanes = Math.min(parts.length, size === 1 ? CALLS_AT_ONCE : 1);
    await Promise.all(
      Array.from({ length: lanes }, async () => {
        for (let part = parts.shift(); part !== undefined; part = parts.shift()) await this.#settlePart(part);
      }),
    );
    this.#isUnderWay = false;
  }

  counted(): Family[] {
    return [this.#counted.family()];
  }

  /** Charges what it can before the process stops. */
  async stop(): Promise<void> {
    this.#endSettling();
    await this.settle();
  }

  async #settlePart(debtors: readonly Client[]): Promise<void> {
    if (!(await this.#charger.answers((debtors[0] as Client).id))) return;
    const debts = debtors.map((client) => ({ ...client.debt, id: client.id }));
    const ends = await this.#charger.charge(debts);
    for (const [at, end] of ends.entries()) {
      const [client, debt] = [debtors[at] as Client, debts[at] as Debt];
      if (end === 'not run') continue;
      const forgiven = typeof end === 'object' ? end.forgiven : debt.admitted;
      this.#clients.settle(client, debt, typeof end === 'object' ? end.decision : undefined);
      this.#counted.addMany(forgiven, end === 'unknown' ? 'unknown' : 'forgiven');
      this.#counted.addMany(debt.admitted - forgiven, 'charged');
    }
  }
}

/**
 * A deadline has this many parts. A stall of the event loop counts as one part, however long it lasts. With shorter
 * parts, a busy event loop would miss some of them, and the deadline would pass later.
 */
const PARTS = 10;
/** How many times `onPart` is called before the deadline. */
const CALLS = 5;

interface Deadline {
  /** How many parts have passed; undefined once the deadline is stopped. */
  passed: number | undefined;
  readonly onMissed: () => void;
  readonly onPart: () => void;
}

/** The running deadlines by their length. Deadlines of one length share a timer, which stops when none is left. */
const RUNNING = new Map<number, Deadline[]>();

/**
 * Calls `onMissed` every `ms` milliseconds, or up to a tenth later, and `onPart` five times as often. A stall or a lack
 * of CPU time in this process never causes a missed deadline: only the parts in which the event loop turned count.
 * Before `onMissed` is called, every socket is read once more.
 * @returns a function that stops the deadline
 */
export function startDeadline(ms: number, onMissed: () => void, onPart = () => {}): () => void {
  const partMs = ms / PARTS;
  const running = RUNNING.get(ms) ?? beginParts(ms, partMs);
  // The part in progress does not count, because the deadline began in the middle of it.
  const deadline: Deadline = { passed: -1, onMissed, onPart };
  running.push(deadline);
  return () => {
    if (deadline.passed === undefined) return;
    deadline.passed = undefined;
    running[running.indexOf(deadline)] = running.at(-1) as Deadline;
    running.pop();
  };
}

function beginParts(ms: number, partMs: number): Deadline[] {
  const running: Deadline[] = [];
  RUNNING.set(ms, running);
  const end = every(partMs, () => {
    if (running.length === 0) {
      end();
      RUNNING.delete(ms);
    }
    for (const deadline of [...running]) takePart(deadline);
  });
  return running;
}

function takePart(deadline: Deadline): void {
  if (deadline.passed === undefined) return;
  deadline.passed += 1;
  if (deadline.passed <= 0) return;
  if (deadline.passed % (PARTS / CALLS) === 0) deadline.onPart();
  // Timers run before the poll phase, in which sockets are read, and immediates after it.
  if (deadline.passed % PARTS === 0) setImmediate(() => deadline.passed !== undefined && deadline.onMissed());
}
