import { randomUUID } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { keyOf } from '../../gateway/stores/redis/names.ts';
import { bothLimiters, redisUnderTest } from '../support/limiters.ts';
import { emptyDatabase } from '../support/redis-database.ts';

const { url } = await emptyDatabase();
const TODAY = 20_000;

describe.for(bothLimiters(url))('with %s', ([, open]) => {
  test('each event of a key is claimed once a day', async () => {
    const { keys, createKey } = await open().then((under) => ({ ...under, createKey: () => under.createKey() }));
    const [{ id }, { id: other }] = [await createKey(), await createKey()];
    const claims = Array.from({ length: 20 }, () => keys.claim(id, 'day_80', TODAY, randomUUID()));
    expect((await Promise.all(claims)).filter((isClaimed) => isClaimed)).toEqual([true]);
    expect(await keys.claim(id, 'day_100', TODAY, randomUUID())).toBe(true);
    expect(await keys.claim(other, 'day_80', TODAY, randomUUID())).toBe(true);
    expect(await keys.claim(id, 'day_80', TODAY + 1, randomUUID())).toBe(true);
  });

  test('an event that waited past midnight does not undo the claim of the next day', async () => {
    const under = await open();
    const { id } = await under.createKey();
    expect(await under.keys.claim(id, 'banned', TODAY + 1, randomUUID())).toBe(true);
    expect(await under.keys.claim(id, 'banned', TODAY, randomUUID())).toBe(false);
    expect(await under.keys.claim(id, 'banned', TODAY + 1, randomUUID())).toBe(false);
  });

  test('whose claim got no answer in time is told again that it has it', async () => {
    const under = await open();
    const { id } = await under.createKey();
    for (let asked = 0; asked < 3; asked++) expect(await under.keys.claim(id, 'day_80', TODAY, 'first')).toBe(true);
    expect(await under.keys.claim(id, 'day_80', TODAY, 'second')).toBe(false);
    expect(await under.keys.claim(id, 'day_80', TODAY, 'first')).toBe(true);
  });

  test('a claim changes nothing else in a key', async () => {
    const under = await open();
    const { id } = await under.createKey();
    const before = await under.keys.get(id);
    await under.keys.claim(id, 'day_80', TODAY, randomUUID());
    expect(await under.keys.get(id)).toEqual(before);
  });

  test('an event of a revoked key is not claimed', async () => {
    const under = await open();
    const { id } = await under.createKey();
    await under.keys.remove(id);
    expect(await under.keys.claim(id, 'day_80', TODAY, randomUUID())).toBe(false);
  });
});

test('nothing is written for a key that does not exist', async () => {
  const under = await redisUnderTest(url);
  expect(await under.keys.claim('nobodys-key0', 'day_80', TODAY, randomUUID())).toBe(false);
  expect(await under.redis.exists(keyOf('nobodys-key0'))).toBe(0);
});
