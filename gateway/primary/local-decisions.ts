import { boundedMap } from '../../shared/bounded-map.ts';
import { MILLISECOND, monotonicClock } from '../limiter/bucket.ts';
import { type Clients, type LocalDecisions, MAX_CLIENTS } from '../limiter/clients.ts';
import { type Credential, credentialOf } from '../limiter/credential.ts';
import type { Verdict } from '../limiter/limiter.ts';
import {
  ANSWER_WITHIN_MS,
  type AskedOfPrimary,
  type AskedOfWorker,
  type Channel,
  type LocalQuestion,
} from './channel.ts';

/** Shorter than a worker waits for the primary. */
const GATHERED_WITHIN_MS = 500;
/** An answer reaches the worker within this time. If it does not, the worker has decided itself. */
const TRAVEL_MS = 100;
/** After this time the workers' data on a key is collected again, because Redis may have answered meanwhile. */
const FRESH_MS = 100;

type Worker = Pick<Channel<AskedOfWorker, AskedOfPrimary>, 'ask'>;

/**
 * Local decisions for all workers of a machine, made in their primary: a key has one allowance, and a key known to one
 * worker is known to all, replacements included. For each key in question, every worker reports the last decision
 * of Redis. This is repeated after 100 ms, and when a worker has newer data than the primary. At the beginning of an
 * outage, and before it is replaced, a worker also reports all its keys, because only it may know them.
 */
export class LevelsOfMachine {
  readonly #known: Clients;
  readonly #workers: () => readonly Worker[];
  readonly #gatheredAt = boundedMap<string, number>(MAX_CLIENTS);
  readonly #gatherings = new Map<string, Promise<void>>();
  #outage: Collection | undefined;

  constructor(known: Clients, workers: () => readonly Worker[]) {
    this.#known = known;
    this.#workers = workers;
  }

  async answer(
    name: 'decide' | 'peek',
    { id, digest, use, repliedAt, askedAt, owes }: LocalQuestion,
  ): Promise<Verdict | undefined> {
    if (!this.#gatherings.has(id) && !this.#isCurrent(id, repliedAt)) this.#gatherings.set(id, this.#gather(id));
    await this.#gatherings.get(id);
    // After a stall of this process, the worker has already decided, so the request would be charged twice.
    if (monotonicClock() - askedAt > (ANSWER_WITHIN_MS - TRAVEL_MS) * MILLISECOND) return undefined;
    const credential = credentialOf(id, digest, use);
    return name === 'decide' ? this.#known.decide(credential, owes) : this.#known.peek(credential);
  }

  /** Call this at intervals. Once per outage, it asks each worker for all its keys. */
  watch(isRedisAway: boolean): void {
    if (!isRedisAway) {
      if (this.#outage !== undefined) this.#outage.isOver = true;
      this.#outage = undefined;
      return;
    }
    this.#outage ??= newCollection();
    for (const worker of this.#workers()) if (!this.#outage.asked.has(worker)) void this.#collect(worker, this.#outage);
  }

  /** Asks a worker that is about to be replaced for all its keys. */
  takeOver(worker: Worker): Promise<void> {
    return this.#collect(worker, newCollection());
  }

  async #collect(worker: Worker, outage: Collection): Promise<void> {
    outage.asked.add(worker);
    let next: 'first' | 'next' = 'first';
    while (!outage.isOver) {
      const askedAt = monotonicClock();
      const page = await worker.ask('keys', next);
      next = 'next';
      // A worker that did not answer in time is asked again.
      if (page === undefined) outage.asked.delete(worker);
      if (page === undefined || page.length === 0) return;
      for (const [id, known] of page) {
        // More keys would evict those that were used later, because workers send the most recently used keys first.
        if (outage.collected.size === MAX_CLIENTS) return;
        outage.collected.add(id);
        // A change may outdate more keys than this one, so the worker is asked again from the start.
        if (!this.#known.takeOver(id, known, askedAt)) next = 'first';
      }
    }
  }

  #isCurrent(id: string, repliedAt: number): boolean {
    const gatheredAt = this.#gatheredAt.get(id) ?? Number.NEGATIVE_INFINITY;
    return performance.now() - gatheredAt <= FRESH_MS && repliedAt <= this.#known.repliedAt(id);
  }

  async #gather(id: string): Promise<void> {
    const askedAt = monotonicClock();
    const answers = await Promise.all(this.#workers().map((worker) => worker.ask('key', id, GATHERED_WITHIN_MS)));
    for (const known of answers) if (known !== undefined) this.#known.takeOver(id, known, askedAt);
    this.#gatherings.delete(id);
    this.#gatheredAt.set(id, performance.now());
  }
}

/** The keys that workers report. */
interface Collection {
  readonly asked: Set<Worker>;
  readonly collected: Set<string>;
  isOver: boolean;
}

const newCollection = (): Collection => ({ asked: new Set(), collected: new Set(), isOver: false });

/**
 * A worker's local decisions. The primary makes them because it knows what all workers know. If it is gone, does not
 * answer in time or does not know the key, the worker decides from its own data.
 */
export function keysOfMachine(own: Clients, primary: Channel<AskedOfPrimary, AskedOfWorker>): LocalDecisions {
  const about = ({ id, digest, use }: Credential, owes = false) => ({
    id,
    digest,
    use,
    repliedAt: own.repliedAt(id),
    askedAt: monotonicClock(),
    owes,
  });
  return {
    decide: async (credential, owes) =>
      (await primary.ask('decide', about(credential, owes))) ?? own.decide(credential, owes),
    peek: async (credential) => (await primary.ask('peek', about(credential))) ?? own.peek(credential),
  };
}
