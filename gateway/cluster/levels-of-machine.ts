import cluster, { type Worker } from 'node:cluster';
import { RecentlyUsed } from '../../shared/recently-used.ts';
import { credentialOf } from '../access/credential.ts';
import { startDeadline } from '../access/deadline.ts';
import { KnownKeys } from '../access/known-keys.ts';
import type { PlanTable } from '../access/plans.ts';
import { type FromWorkerLocally, type LocalAnswer, type LocalQuestion, Outbox } from './local-messages.ts';

/** A worker that misses it once is not waited for again until it says something. */
const ANSWER_WITHIN_MS = 500;
/** What workers know of a key is asked for again after this time: Redis may have been back. */
const FRESH_MS = 100;
const MAX_KEYS = 50_000;

/** Workers are asked about a key, and these requests wait for it. */
interface Gathering {
  readonly waiting: { readonly worker: Worker; readonly question: LocalQuestion }[];
  readonly missing: Set<Worker>;
  readonly endDeadline: () => void;
}

/**
 * Local decisions of all workers of a machine, taken in their primary: so that a key has one allowance, and is known to all
 * where it is known to one. Of each key that is asked about, every worker says what it last heard from Redis: again after
 * 100 ms, and where one has heard more than the primary knows.
 */
export class LevelsOfMachine {
  readonly #known: KnownKeys;
  readonly #gatheredAt = new RecentlyUsed<string, number>(MAX_KEYS);
  readonly #gatherings = new Map<string, Gathering>();
  readonly #outboxes = new WeakMap<Worker, Outbox<LocalAnswer, string>>();
  /** Missed a deadline and has not said anything since: not waited for. */
  readonly #silent = new WeakSet<Worker>();

  constructor(plans: () => PlanTable) {
    this.#known = new KnownKeys(plans);
  }

  /** Answers workers from now on. */
  listen(): void {
    cluster.on('message', (worker, message: Partial<FromWorkerLocally>) => {
      if (message.local !== undefined) this.#take(worker, message.local);
    });
  }

  #take(worker: Worker, { questions, heard }: FromWorkerLocally['local']): void {
    this.#silent.delete(worker);
    for (const { id, known } of heard) {
      if (known !== undefined) this.#known.learn(id, known);
      const gathering = this.#gatherings.get(id);
      gathering?.missing.delete(worker);
      if (gathering?.missing.size === 0) this.#settle(id, gathering);
    }
    for (const question of questions) this.#decide(worker, question);
  }

  #decide(worker: Worker, question: LocalQuestion): void {
    const { id, heardAt } = question;
    const gathering = this.#gatherings.get(id);
    const gatheredAt = this.#gatheredAt.get(id) ?? Number.NEGATIVE_INFINITY;
    const isCurrent = performance.now() - gatheredAt <= FRESH_MS && heardAt <= this.#known.heardAt(id);
    if (gathering !== undefined) gathering.waiting.push({ worker, question });
    else if (!isCurrent) this.#gather(id, { worker, question });
    else this.#answer(worker, question);
  }

  #answer(worker: Worker, { ask, number, id, digest }: LocalQuestion): void {
    this.#outboxOf(worker).addFirst({ number, verdict: this.#known[ask](credentialOf(id, digest)) });
  }

  #gather(id: string, first: Gathering['waiting'][number]): void {
    const asked = Object.values(cluster.workers ?? {}).filter((worker) => worker !== undefined);
    const missing = new Set(asked.filter((worker) => worker.isConnected() && !this.#silent.has(worker)));
    const endDeadline = startDeadline(ANSWER_WITHIN_MS, () => {
      for (const worker of missing) this.#silent.add(worker);
      this.#settle(id, gathering);
    });
    const gathering: Gathering = { waiting: [first], missing, endDeadline };
    this.#gatherings.set(id, gathering);
    for (const worker of missing) this.#outboxOf(worker).addSecond(id);
  }

  #settle(id: string, { waiting, endDeadline }: Gathering): void {
    endDeadline();
    this.#gatherings.delete(id);
    this.#gatheredAt.set(id, performance.now());
    for (const { worker, question } of waiting) this.#answer(worker, question);
  }

  #outboxOf(worker: Worker): Outbox<LocalAnswer, string> {
    const known = this.#outboxes.get(worker);
    if (known !== undefined) return known;
    const outbox = new Outbox<LocalAnswer, string>((answers, wanted) => {
      if (worker.isConnected()) worker.send({ local: { answers, wanted } }, () => {});
    });
    this.#outboxes.set(worker, outbox);
    return outbox;
  }
}
