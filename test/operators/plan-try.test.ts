import { describe, expect, test } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { ctl } from '../support/ctl.ts';
import { send } from '../support/http.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { createKey } from '../support/redis-keys.ts';
import { bothStacks, type Stack, startStack } from '../support/stack.ts';

const { url, redis } = await emptyDatabase();
const withRedis = { REDIS_URL: url, REDIS_TIMEOUT_MS: '5000' };

async function askTimes(stack: Stack, key: string, times: number): Promise<void> {
  for (let time = 0; time < times; time++) await send(`${stack.gateway}/v1/pets`, { key });
}

describe.for(bothStacks(url))('with %s', ([, environment]) => {
  test('a trial shows which keys of the plan would have been refused and how often, and changes nothing', async () => {
    await redis.flushdb();
    const stack = await startStack(environment);
    const [busy, calm, own, pro, revoked] = [
      await stack.issueKey({ name: 'busy' }),
      await stack.issueKey({ name: 'calm' }),
      await stack.issueKey({ name: 'own', day: 500 }),
      await stack.issueKey({ name: 'pro', plan: 'pro' }),
      await stack.issueKey({ name: 'revoked' }),
    ];
    for (const key of [busy, own, pro, revoked]) await askTimes(stack, key, 12);
    await askTimes(stack, calm, 2);
    await stack.admin('DELETE', `/keys/${idOf(revoked)}`);
    // A day limit hardly refills in an hour, so the duration of this test does not matter.
    const trial = await stack.admin('POST', '/plans/free/try', { day: 5 });
    expect([trial.status, trial.json]).toEqual([
      200,
      {
        keys: 3,
        requests: 26,
        affected: [{ id: idOf(busy), name: 'busy', requests: 12, refused: 0, wouldRefuse: 7 }],
      },
    ]);
    const { minute, day } = (await stack.admin('GET', '/plans')).json as never as { minute?: number; day?: number };
    expect([minute, day]).toEqual([undefined, undefined]);
    expect((await stack.admin('GET', '/plans')).json).toMatchObject({ free: { minute: 60, day: 1_000 } });
    expect((await stack.admin('GET', '/plans/history')).json).toEqual({ history: [] });
    expect((await stack.admin('POST', '/plans/free/try', { minute: 60 })).json).toMatchObject({ affected: [] });
  });

  test('a trial of an unknown plan is 404', async () => {
    const stack = await startStack(environment);
    const { status, json } = await stack.admin('POST', '/plans/gold/try', { minute: 5 });
    expect([status, json]).toMatchObject([404, { message: 'There is no such plan.' }]);
  });
});

test('ctl plans try reads all pages and lists the most often refused keys first', async () => {
  await redis.flushdb();
  const stack = await startStack(withRedis);
  const minute = Math.floor(Date.now() / 60_000);
  for (let number = 0; number < 1_100; number++) {
    const { hash } = await createKey(redis, { name: `key ${number}` });
    const sent = { 7: 50, 1050: 90 }[number] ?? 1;
    await redis.hset(hash, 'admitted', sent);
    await redis.hset(hash.replace(':key:', ':marks:'), 'usage_minutes', `${minute - 90}:0:0 ${minute}:0:0`);
    await redis.zadd('gateway:keys', number, hash.slice(-13, -1));
  }
  expect((await stack.admin('POST', '/plans/free/try', { minute: 20 })).json).toMatchObject({ keys: 100 });
  const { code, out, err } = await ctl(stack, 'plans', 'try', 'free', '--minute', '20');
  expect([code, err]).toEqual([0, '']);
  expect(out).toMatch(/90 +0 +51 {2}key 1050\n\S+ +50 +0 +11 {2}key 7\n\n/);
  expect(out).toContain(
    'At least 62 of 1238 requests of the last hour would have been refused, of at least 2 of 1100 keys of free.',
  );
});
