import { randomUUID } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { bothLimiters } from '../support/limiters.ts';
import { emptyDatabase } from '../support/redis-database.ts';

const { url } = await emptyDatabase();
const TODAY = 20_000;

describe.for(bothLimiters(url))('with %s', ([, open]) => {
  test('each key event can be claimed once a day', async () => {
    const under = await open();
    const { keys } = under;
    const [{ id }, { id: other }] = [await under.createKey(), await under.createKey()];
    const claims = Array.from({ length: 20 }, () => keys.claim(id, 'day_80', TODAY, randomUUID()));
    expect((await Promise.all(claims)).filter((isClaimed) => isClaimed)).toEqual([true]);
    expect(await keys.claim(id, 'day_100', TODAY, randomUUID())).toBe(true);
    expect(await keys.claim(other, 'day_80', TODAY, randomUUID())).toBe(true);
    expect(await keys.claim(id, 'day_80', TODAY + 1, randomUUID())).toBe(true);
  });

  test('a claim that is made after midnight for the previous day does not undo the claim of the new day', async () => {
    const under = await open();
    const { id } = await under.createKey();
    expect(await under.keys.claim(id, 'banned', TODAY + 1, randomUUID())).toBe(true);
    expect(await under.keys.claim(id, 'banned', TODAY, randomUUID())).toBe(false);
    expect(await under.keys.claim(id, 'banned', TODAY + 1, randomUUID())).toBe(false);
  });
});
