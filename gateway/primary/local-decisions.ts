import { boundedMap } from '../../shared/bounded-map.ts';
import { MILLISECOND, monotonicClock } from '../limiter/bucket.ts';
import { type Clients, MAX_CLIENTS } from '../limiter/clients.ts';
import { credentialOf } from '../limiter/credential.ts';
import { type LocalDecisions, NO_DECISION, StoreUnavailable } from '../limiter/limiter.ts';
import {
  ANSWER_WITHIN_MS,
  type AskedOfPrimary,
  type AskedOfWorker,
  type Channel,
  type LocalQuestion,
} from './channel.ts';

/** Shorter than the time that a worker waits for the primary. */
const GATHERED_WITHIN_MS = 500;
/** An answer reaches the worker within this time. Otherwise the worker has decided by itself. */
const TRAVEL_MS = 100;
/** After this time the workers' data on a key is collected again, because Redis may have answered by then. */
const FRESH_MS = 100;

/** How long a worker that is being replaced has to report its keys. Nobody waits, and the worker is asked only once. */
const HANDED_OVER_WITHIN_MS = 10_000;

type Worker = Pick<Channel<AskedOfWorker, AskedOfPrimary>, 'ask' | 'insist'>;

/**
 * Local decisions for all workers of a machine, made in their primary: a key has one allowance, and a key known to one
 * worker is known to all, including replacements. For each key in question, every worker reports Redis' last decision
 * on it. The reports are repeated after 100 ms, and when a worker has newer data than the primary. At the beginning of
 * an outage, and before it is replaced, a worker also reports all its keys, because it may be the only one that knows
 * them.
 */
export function levelsOfMachine(known: Clients, workers: () => readonly Worker[]) {
  const gatheredAt = boundedMap<string, number>(MAX_CLIENTS);
  const gatherings = new Map<string, Promise<void>>();
  let outage: Collection | undefined;

  async function answer(question: LocalQuestion): Promise<AskedOfPrimary['decide'][1]> {
    const { id, digest, use, repliedAt, askedAt, charge } = question;
    if (!gatherings.has(id) && !isCurrent(id, repliedAt)) gatherings.set(id, gather(id));
    await gatherings.get(id);
    // After a stall of this process, the worker has already decided. A decision here would charge the request twice.
    if (monotonicClock() - askedAt > (ANSWER_WITHIN_MS - TRAVEL_MS) * MILLISECOND) return undefined;
    return known.decide(credentialOf(id, digest, use), charge) ?? 'not verified';
  }

  /** Call this at intervals. Once per outage, it asks each worker for all its keys. */
  function watch(isRedisAway: boolean): void {
    if (!isRedisAway) {
      if (outage !== undefined) outage.isOver = true;
      outage = undefined;
      return;
    }
    outage ??= newCollection();
    for (const worker of workers()) if (!outage.asked.has(worker)) void collect(worker, outage);
  }

  /** Asks a worker that is about to be replaced for all its keys. */
  const takeOver = (worker: Worker): Promise<void> => collect(worker, newCollection(), HANDED_OVER_WITHIN_MS);

  async function collect(worker: Worker, of: Collection, insistsMs?: number): Promise<void> {
    of.asked.add(worker);
    let next: 'first' | 'next' = 'first';
    while (!of.isOver) {
      const askedAt = monotonicClock();
      const asking = insistsMs === undefined ? worker.ask('keys', next) : worker.insist('keys', next, insistsMs);
      const page = await asking;
      next = 'next';
      // A worker that did not answer in time is asked again.
      if (page === undefined) of.asked.delete(worker);
      if (page === undefined || page.length === 0) return;
      for (const [id, one] of page) {
        // Further keys would evict more recently used ones, because workers send the most recently used keys first.
        if (of.collected.size === MAX_CLIENTS) return;
        of.collected.add(id);
        // The change may affect other keys too, so the worker is asked again from the start.
        if (!known.takeOver(id, one, askedAt)) next = 'first';
      }
    }
  }

  function isCurrent(id: string, repliedAt: number): boolean {
    const at = gatheredAt.get(id) ?? Number.NEGATIVE_INFINITY;
    return performance.now() - at <= FRESH_MS && repliedAt <= known.repliedAt(id);
  }

  async function gather(id: string): Promise<void> {
    const askedAt = monotonicClock();
    const answers = await Promise.all(workers().map((worker) => worker.ask('key', id, GATHERED_WITHIN_MS)));
    for (const one of answers) if (one !== undefined) known.takeOver(id, one, askedAt);
    gatherings.delete(id);
    gatheredAt.set(id, performance.now());
  }

  return { answer, watch, takeOver };
}

/** The keys that workers report. */
interface Collection {
  readonly asked: Set<Worker>;
  readonly collected: Set<string>;
  isOver: boolean;
}

const newCollection = (): Collection => ({ asked: new Set(), collected: new Set(), isOver: false });

const NO_PRIMARY =
  'Redis is unavailable, the primary process did not answer in time, and this worker has not verified the key.';

/**
 * A worker's local decisions. The primary makes them because it knows what all workers know. If the primary is gone,
 * does not answer in time or does not know the key, the worker decides from its own data.
 */
export function keysOfMachine(own: Clients, primary: Channel<AskedOfPrimary, AskedOfWorker>): LocalDecisions {
  return {
    async decide(credential, charge) {
      const { id, digest, use } = credential;
      const question = { id, digest, use, repliedAt: own.repliedAt(id), askedAt: monotonicClock(), charge };
      const answer = await primary.ask('decide', question);
      if (typeof answer === 'object') return answer;
      const verdict = own.decide(credential, charge);
      if (verdict === undefined && answer === undefined) throw new StoreUnavailable(NO_PRIMARY, NO_DECISION);
      return verdict;
    },
  };
}
