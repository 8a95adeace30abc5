import { expect, test } from 'vitest';
import { decide, peek } from '../../gateway/limiter/decide.ts';
import type { Decision } from '../../gateway/limiter/limiter.ts';
import { readKey } from '../../gateway/stores/key-hash.ts';
import { keyOf } from '../../gateway/stores/redis/names.ts';
import { redisUnderTest, SECOND } from '../support/limiters.ts';
import { emptyDatabase } from '../support/redis-database.ts';

/** What a gateway admitted while Redis was away is charged afterwards. */

const { url } = await emptyDatabase();
const under = await redisUnderTest(url);

const charge = async (id: string, admitted: number, refused = 0) =>
  (await under.charger.charge([{ id, admitted, refused }]))[0];

const tokensIn = (decision: object | undefined) => (decision as Decision).buckets.map(({ tokens }) => tokens);

test('a charge takes tokens without a secret, counts as use, and is no strike', async () => {
  const { id } = await under.createKey({ minute: 10, day: 100 });
  const charged = await charge(id, 4, 3);
  expect(charged).toMatchObject({ forgiven: 0, decision: { mode: 'shared' } });
  expect(tokensIn((charged as { decision: Decision }).decision)).toEqual([6, 96]);
  const entry = await under.keys.get(id);
  expect(entry).toMatchObject({ admitted: 4, refused: 3, refusals: { lineUntil: 0, strikesUntil: 0 } });
  expect(entry?.usage.minutes).toMatchObject([{ admitted: 0, refused: 0 }]);
});

test('the minute bucket goes to one capacity below zero, the day bucket to zero, and more is forgiven', async () => {
  const { id } = await under.createKey({ minute: 10, day: 15 });
  const charged = await charge(id, 23);
  expect([charged, tokensIn((charged as { decision: Decision }).decision)]).toMatchObject([{ forgiven: 3 }, [-10, 0]]);
  expect(await charge(id, 2)).toMatchObject({ forgiven: 2 });
  expect(await under.redis.hmget(keyOf(id), 'minute_left', 'day_left', 'admitted')).toEqual([
    '-10.000000000000/10',
    '0.000000000000/15',
    '25',
  ]);
});

test('a bucket below zero refills to zero in a minute, and both twins read it alike, to the tick', async () => {
  const key = await under.createKey({ minute: 7, day: 100_000 });
  await charge(key.id, 12);
  for (const seconds of [0, 0.000001, 5, 37.123457, 12, 9, 58, 3]) {
    under.now += Math.round(seconds * SECOND);
    const said = (await under.limiter.peek(key)) as Decision;
    const { record, state } = readKey(key.id, await under.redis.hgetall(keyOf(key.id))) as never;
    expect(peek(record, state, key, under.plans, under.now)).toMatchObject({
      outcome: said.outcome,
      retryAt: said.retryAt,
      buckets: said.buckets,
    });
    // A refusal writes the level back, below zero and with a fraction.
    const decided = await under.limiter.decide(key);
    expect(decide(record, state, key, under.plans, under.now).verdict).toMatchObject({
      outcome: decided.outcome,
      buckets: (decided as Decision).buckets,
    });
  }
});

test('the time told to a key below zero is when a token is there', async () => {
  const key = await under.createKey({ minute: 60, day: 100_000 });
  await charge(key.id, 90);
  const refused = (await under.limiter.decide(key)) as Decision;
  expect([refused.outcome, (refused.retryAt as number) - under.now]).toEqual(['refused', 31 * SECOND]);
  under.now += 31 * SECOND;
  expect((await under.limiter.decide(key)).outcome).toBe('admitted');
});

test('a key that is gone is charged nothing, and stays gone', async () => {
  const { id } = await under.createKey();
  await under.redis.del(keyOf(id));
  expect(await charge(id, 3)).toBe('gone');
  expect(await under.redis.exists(keyOf(id))).toBe(0);
});
