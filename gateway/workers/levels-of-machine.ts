import cluster, { type Worker } from 'node:cluster';
import { boundedMap } from '../../shared/bounded-map.ts';
import { startDeadline } from '../limiter/breaker.ts';
import { credentialOf } from '../limiter/credential.ts';
import { KnownKeys } from '../limiter/known-keys.ts';
import type { PlanTable } from '../limiter/plans.ts';
import { type FromWorkerLocally, type LocalAnswer, type LocalQuestion, Outbox } from './local-messages.ts';

/** A worker that misses this deadline is not waited for until it sends something. */
const ANSWER_WITHIN_MS = 500;
/** The workers' data on a key is collected again after this time, because Redis may have been back. */
const FRESH_MS = 100;
const MAX_KEYS = 50_000;

/** Workers were asked about a key; these requests wait for their answers. */
interface Gathering {
  readonly waiting: { readonly worker: Worker; readonly question: LocalQuestion }[];
  readonly missing: Set<Worker>;
  readonly endDeadline: () => void;
}

/**
 * Local decisions for all workers of a machine, taken in their primary. So a key has one allowance, and a key known to
 * one worker is known to all. For each key in question, every worker reports what it last heard from Redis. This is
 * repeated after 100 ms, and when a worker has newer data than the primary.
 */
export class LevelsOfMachine {
  readonly #known: KnownKeys;
  readonly #gatheredAt = boundedMap<string, number>(MAX_KEYS);
  readonly #gatherings = new Map<string, Gathering>();
  readonly #outboxes = new WeakMap<Worker, Outbox<LocalAnswer, string>>();
  /** Workers that missed a deadline and have sent nothing since. They are not waited for. */
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

  #answer(worker: Worker, { ask, number, id, digest, use }: LocalQuestion): void {
    this.#outboxOf(worker).addFirst({ number, verdict: this.#known[ask](credentialOf(id, digest, use)) });
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
