import { describe, expect, test } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { type Answer, send } from '../support/http.ts';
import { emptyDatabase, ownRedis } from '../support/redis-database.ts';
import { bothStacks, type Stack, startStack } from '../support/stack.ts';

const { url, redis } = await emptyDatabase();
const withRedis = { REDIS_URL: url, REDIS_TIMEOUT_MS: '5000' };

const ask = (stack: Stack, key: string): Promise<Answer> => send(`${stack.gateway}/v1/pets`, { key });

async function askTimes(stack: Stack, key: string, times: number): Promise<Answer[]> {
  const answers: Answer[] = [];
  for (let time = 0; time < times; time++) answers.push(await ask(stack, key));
  return answers;
}

/** The day limit is the tighter one, so that no token is refilled during the test. A strike lasts 750 ms. */
const tight = { plan: 'free', minute: 10, day: 2 };

describe.for(bothStacks(url))('with %s', ([, environment]) => {
  test('a plan in shadow mode refuses nothing, sends accurate headers, and logs what it would refuse', async () => {
    await redis.flushdb();
    const stack = await startStack(environment);
    const changes = { mode: 'shadow', ban_after: 1, ban_grace_seconds: 0 };
    expect((await stack.admin('PATCH', '/plans/free', changes)).json).toMatchObject({ mode: 'shadow' });
    const key = await stack.issueKey(tight);
    const answers = await askTimes(stack, key, 5);
    expect(answers.map(({ status }) => status)).toEqual(Array(5).fill(200));
    expect(answers.map(({ headers }) => headers['x-ratelimit-remaining'])).toEqual(['1', '0', '0', '0', '0']);
    expect(answers.map(({ headers }) => headers['retry-after'])).toEqual(Array(5).fill(undefined));
    expect(answers.at(-1)?.headers.ratelimit).toMatch(
      /"day";r=0;t=\d{5};store-limit=2;store-remaining=0;store-reset=\d{5,6}$/,
    );
    const logged = () => stack.log.filter(({ msg }) => msg === 'request');
    await expect.poll(logged).toHaveLength(5);
    expect(logged().map(({ outcome, shadow }) => [outcome, shadow])).toEqual([
      ...Array(2).fill(['admitted', undefined]),
      ...Array(3).fill(['admitted', 'rate_limit_exceeded']),
    ]);
    expect((await stack.admin('GET', `/keys/${idOf(key)}`)).json).toMatchObject({
      state: 'active',
      admitted: 5,
      refused: 0,
      shadowed: 3,
    });
    expect((await stack.admin('GET', '/metrics')).text).toMatch(/^gateway_shadow_refusals_total\{plan="free"\} 3$/m);
    await stack.admin('PATCH', '/plans/free', { mode: 'enforce' });
    expect((await ask(stack, key)).status).toBe(429);
  });

  test('while a plan is in shadow mode, operators see bans by operators but no automatic bans', async () => {
    await redis.flushdb();
    const stack = await startStack(environment);
    await stack.admin('PATCH', '/plans/free', { ban_after: 1, ban_grace_seconds: 0 });
    const key = await stack.issueKey(tight);
    expect((await askTimes(stack, key, 5)).at(-1)?.json).toMatchObject({ code: 'key_banned' });
    const seen = async () => {
      const views = ['/bans', '/keys?state=banned', '/usage?by=key', `/keys/${idOf(key)}`, '/requests?limit=1'];
      const [bans, keys, usage, one, requests] = await Promise.all(
        views.map(async (path) => (await stack.admin('GET', path)).json),
      );
      return {
        listed: (bans as { bans: unknown[] }).bans.length,
        found: (keys as { keys: unknown[] }).keys.length,
        usage: (usage as { usage: { ban?: unknown }[] }).usage.filter(({ ban }) => ban !== undefined).length,
        requests: (requests as { requests: { keyBan?: unknown }[] }).requests.filter(
          ({ keyBan }) => keyBan !== undefined,
        ).length,
        state: (one as { state: string }).state,
      };
    };
    const banned = { listed: 1, found: 1, usage: 1, requests: 1, state: 'banned' };
    expect(await seen()).toEqual(banned);
    await stack.admin('PATCH', '/plans/free', { mode: 'shadow' });
    expect((await ask(stack, key)).status).toBe(200);
    expect(await seen()).toEqual({ listed: 0, found: 0, usage: 0, requests: 0, state: 'active' });
    await stack.admin('PUT', `/keys/${idOf(key)}/ban`, { seconds: 600, reason: 'by an operator' });
    expect((await ask(stack, key)).status).toBe(429);
    expect(await seen()).toEqual(banned);
  });
});

test('a mode set in Redis is in force within a second, an invalid one is logged as an error, and a missing one means enforce', async () => {
  await redis.flushdb();
  const stack = await startStack(withRedis);
  const key = await stack.issueKey({ ...tight, day: 1 });
  expect((await askTimes(stack, key, 2)).map(({ status }) => status)).toEqual([200, 429]);
  const statusOfNext = async () => (await ask(stack, key)).status;
  const eventually = expect.poll(statusOfNext);
  await redis.hset('gateway:plans', 'free.mode', 'shadow');
  await eventually.toBe(200);
  await redis.hset('gateway:plans', 'free.mode', 'Enforce');
  await expect
    .poll(() => stack.log.filter(({ field }) => field === 'free.mode'))
    .toMatchObject([{ level: 50, value: 'Enforce', kept: 'shadow' }]);
  expect(await statusOfNext()).toBe(200);
  await redis.hdel('gateway:plans', 'free.mode');
  await expect.poll(statusOfNext).toBe(429);
});

test('a plan in shadow mode refuses nothing while Redis is unavailable', async () => {
  const server = await ownRedis();
  const stack = await startStack({ REDIS_URL: server.url, REDIS_TIMEOUT_MS: '1000' });
  await stack.admin('PATCH', '/plans/free', { mode: 'shadow' });
  const [free, pro] = [await stack.issueKey(tight), await stack.issueKey({ ...tight, plan: 'pro' })];
  for (const key of [free, pro]) expect((await ask(stack, key)).status).toBe(200);
  await server.stop();
  expect((await askTimes(stack, free, 4)).map(({ status }) => status)).toEqual([200, 200, 200, 200]);
  expect((await askTimes(stack, pro, 3)).map(({ status }) => status)).toEqual([200, 429, 429]);
  const last = () => stack.log.findLast(({ plan }) => plan === 'free');
  await expect.poll(last).toMatchObject({ mode: 'local', shadow: 'rate_limit_exceeded' });
});
