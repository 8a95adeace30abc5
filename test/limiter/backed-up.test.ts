import { expect, test } from 'vitest';
import type { Keys } from '../../gateway/stores/keys.ts';
import { burst, type LimiterUnderTest, memoryUnderTest, redisUnderTest, SECOND } from '../support/limiters.ts';
import { emptyDatabase } from '../support/redis-database.ts';

const { url } = await emptyDatabase();

const backedUp = async (keys: Keys) => (await keys.export({ after: undefined, limit: 10 })).keys;

test("a restore brings back a key's line, strikes and ban, with the embedded limiter and with Redis", async () => {
  const [first, second, shared] = [await memoryUnderTest(), await memoryUnderTest(), await redisUnderTest(url)];
  for (const under of [first, second, shared]) {
    under.setPlan('free', { minute: 5, ban_after: 3, ban_grace_seconds: 0, ban_seconds: 600 });
    under.setPlan('pro', { minute: 5, ban_after: 5 });
  }
  const waiting = await first.createKey({ plan: 'pro', createdAt: 0 });
  const banned = await first.createKey();
  await burst(first, waiting, 8);
  first.now += 7 * SECOND;
  await burst(first, waiting, 8);
  expect(await burst(first, banned, 12)).toContain('banned');
  const backup = await backedUp(first.keys);
  expect(backup.map(({ fields }) => Object.keys(fields))).toEqual([
    expect.arrayContaining(['left', 'refusals', 'used']),
    expect.arrayContaining(['left', 'banned_until', 'bans', 'ban_decided']),
  ]);

  expect(await Promise.all(backup.map((key) => shared.keys.restore(key)))).toEqual(['restored', 'restored']);
  expect(await Promise.all((await backedUp(shared.keys)).map((key) => second.keys.restore(key)))).toEqual([
    'restored',
    'restored',
  ]);
  expect(await backedUp(second.keys)).toEqual(backup);
  const now = first.now + SECOND;
  const decided = async (under: LimiterUnderTest) => {
    under.now = now;
    return [await under.limiter.decide(waiting), await under.limiter.decide(banned)];
  };
  const verdicts = await decided(first);
  expect(verdicts.map(({ outcome }) => outcome)).toEqual(['refused', 'banned']);
  for (const under of [second, shared]) expect(await decided(under)).toMatchObject(verdicts);
});
