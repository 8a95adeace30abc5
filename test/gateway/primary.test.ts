import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type { KnownPage } from '../../gateway/limiter/client.ts';
import { Clients } from '../../gateway/limiter/clients.ts';
import { createApiKey, credentialOf } from '../../gateway/limiter/credential.ts';
import type { AskedOfPrimary, AskedOfWorker, Channel } from '../../gateway/primary/channel.ts';
import { levelsOfMachine } from '../../gateway/primary/local-decisions.ts';
import { nextWait } from '../../gateway/primary/workers.ts';
import { redisUnderTest } from '../support/limiters.ts';
import { emptyDatabase } from '../support/redis-database.ts';

/** What the primary does for its workers. At the beginning of an outage, it collects their keys and levels. */

const { url } = await emptyDatabase();
const redis = await redisUnderTest(url);
const verdict = await redis.limiter.decide(await redis.createKey());

/** Returns a worker that has read `count` keys from Redis, the first key most recently. Its replies can be delayed. */
function workerWith(count: number) {
  const known = new Clients(() => redis.plans);
  const keys = Array.from({ length: count }, () => createApiKey().credential);
  for (const key of keys.toReversed()) known.note(key, verdict);
  let pages = known.pages();
  const asked: string[] = [];
  const worker = {
    known,
    keys,
    asked,
    /** Runs after the worker has sent a reply and before it arrives. */
    onAnswer: async (_page: KnownPage): Promise<unknown> => undefined,
    isSilent: false,
    async ask(name: string, question: unknown) {
      if (name !== 'keys') return undefined;
      asked.push(question as string);
      if (worker.isSilent) return undefined;
      if (question === 'first') pages = known.pages();
      const page = structuredClone(pages.next().value ?? []);
      await worker.onAnswer(page);
      return page;
    },
  };
  return worker;
}

function primaryOf(...workers: ReturnType<typeof workerWith>[]) {
  const known = new Clients(() => redis.plans);
  const channels = workers as unknown as Channel<AskedOfWorker, AskedOfPrimary>[];
  const levels = levelsOfMachine(known, () => channels);
  const outcomeOf = ({ id, digest }: { id: string; digest: string }) =>
    known.decide(credentialOf(id, digest), 'not again')?.outcome;
  const outcomes = (keys: readonly { id: string; digest: string }[]) => new Set(keys.map(outcomeOf));
  /** Starts the outage and waits until all workers have replied. */
  const begin = async () => {
    levels.watch(true);
    await nextTurn();
  };
  return { known, levels, outcomes, begin };
}

test.for([
  ['while the reply that contains it is in transit', 2],
  ['before the request for it reaches its worker', 1],
] as const)('a key that changes %s is not decided by the primary, while other keys are', async ([, changesAt]) => {
  const worker = workerWith(600);
  const { known, outcomes, begin } = primaryOf(worker);
  const changed = worker.keys[300] as (typeof worker.keys)[number];
  // As with a confirmed change, the worker is notified first.
  const change = () => {
    for (const one of [worker.known, known]) one.noteChange(changed.id);
  };
  worker.onAnswer = async () => worker.asked.length === changesAt && change();
  await begin();
  const others = worker.keys.filter((key) => key !== changed);
  expect(outcomes([changed])).toEqual(new Set([undefined]));
  expect(outcomes(others)).toEqual(new Set(['admitted']));
});

test('if workers hold more keys than the primary can, it keeps those that each worker used last', async () => {
  const workers = [workerWith(40_000), workerWith(40_000)];
  const { outcomes, begin } = primaryOf(...workers);
  await begin();
  for (const { keys } of workers) {
    expect(outcomes(keys.slice(0, 24_000))).toEqual(new Set(['admitted']));
    expect(outcomes(keys.slice(26_000))).toEqual(new Set([undefined]));
  }
});

test('the wait before a worker restarts doubles up to half a minute, and resets after a healthy period', () => {
  let last = 0;
  const waits = (count: number, servedMs: number) =>
    Array.from({ length: count }, () => {
      last = nextWait(last, servedMs);
      return last;
    });
  expect(waits(11, 0)).toEqual([100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000]);
  expect(waits(2, 29_999)).toEqual([30_000, 30_000]);
  expect(waits(1, 30_000)).toEqual([100]);
  expect(waits(2, 5)).toEqual([200, 400]);
});
