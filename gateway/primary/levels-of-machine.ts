import { boundedMap } from '../../shared/bounded-map.ts';
import type { Clients } from '../limiter/clients.ts';
import { monotonicClock } from '../limiter/clock.ts';
import { credentialOf } from '../limiter/credential.ts';
import type { Verdict } from '../limiter/limiter.ts';
import type { Channel } from './channel.ts';
import type { AskedOfPrimary, AskedOfWorker, LocalQuestion } from './messages.ts';

/** Shorter than a worker waits for the primary. */
const ANSWER_WITHIN_MS = 500;
/** The workers' data on a key is collected again after this time, because Redis may have been back. */
const FRESH_MS = 100;
const MAX_KEYS = 50_000;

/**
 * Local decisions for all workers of a machine, taken in their primary. So a key has one allowance, and a key known to
 * one worker is known to all, also to one that replaces it. For each key in question, every worker reports what it last
 * heard from Redis. This is repeated after 100 ms, and when a worker has newer data than the primary.
 */
export class LevelsOfMachine {
  readonly #known: Clients;
  readonly #workers: () => readonly Channel<AskedOfWorker, AskedOfPrimary>[];
  readonly #gatheredAt = boundedMap<string, number>(MAX_KEYS);
  readonly #gatherings = new Map<string, Promise<void>>();

  constructor(known: Clients, workers: () => readonly Channel<AskedOfWorker, AskedOfPrimary>[]) {
    this.#known = known;
    this.#workers = workers;
  }

  async answer(
    name: 'decide' | 'peek',
    { id, digest, use, heardAt, owes }: LocalQuestion,
  ): Promise<Verdict | undefined> {
    const gathering = this.#gatherings.get(id);
    if (gathering !== undefined) await gathering;
    else if (!this.#isCurrent(id, heardAt)) await this.#gather(id);
    const credential = credentialOf(id, digest, use);
    return name === 'decide' ? this.#known.decide(credential, owes) : this.#known.peek(credential);
  }

  #isCurrent(id: string, heardAt: number): boolean {
    const gatheredAt = this.#gatheredAt.get(id) ?? Number.NEGATIVE_INFINITY;
    return performance.now() - gatheredAt <= FRESH_MS && heardAt <= this.#known.heardAt(id);
  }

  #gather(id: string): Promise<void> {
    const gathering = this.#askAll(id);
    this.#gatherings.set(id, gathering);
    return gathering;
  }

  async #askAll(id: string): Promise<void> {
    const askedAt = monotonicClock();
    const told = await Promise.all(this.#workers().map((worker) => worker.ask('key', id, ANSWER_WITHIN_MS)));
    for (const known of told) if (known !== undefined) this.#known.learn(id, known, askedAt);
    this.#gatherings.delete(id);
    this.#gatheredAt.set(id, performance.now());
  }
}
