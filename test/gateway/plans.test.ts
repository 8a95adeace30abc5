import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import {
  DEFAULT_PLANS,
  type PlanField,
  readPlans,
  STORED_FIELDS,
  storedPlans,
  whenAbsent,
} from '../../gateway/limiter/plans.ts';
import type { DoctorAnswer } from '../../gateway/operators/api/answers.ts';
import { activityOf } from '../support/activity.ts';
import { idOf } from '../support/api-key.ts';
import { startFaultProxy } from '../support/fault-proxy.ts';
import { type Answer, send } from '../support/http.ts';
import { emptyDatabase, ownRedis } from '../support/redis-database.ts';
import { bothStacks, type Stack, startStack } from '../support/stack.ts';

const { url, redis } = await emptyDatabase();
const withRedis = { REDIS_URL: url, REDIS_TIMEOUT_MS: '5000' };

const KEPT = 'gateway:kept:{gateway:plans}';

/** Starts a gateway on an empty Redis and issues a key. @param minute the limit of its plan, if not the built-in one */
async function fresh(minute?: number) {
  await redis.flushdb();
  const stack = await startStack(withRedis);
  const key = await stack.issueKey();
  if (minute !== undefined) await stack.admin('PATCH', '/plans/free', { minute });
  return { stack, key, restart: () => startStack(withRedis) };
}

/** Does the same as `fresh`, and then stops the gateway. */
async function stopped(minute?: number) {
  const { stack, ...others } = await fresh(minute);
  await stack.stop();
  return others;
}

const isReady = async (stack: Stack) => (await send(`${stack.adminUrl}/readyz`)).status;
const INCOMPLETE = { status: 'fault', found: 'is missing or incomplete; clients get 503' };

/** Returns what the doctor reports about the plan table. */
async function findingsOn(stack: Stack): Promise<unknown[]> {
  const { findings } = (await stack.admin('GET', '/doctor')).json as { findings: { about: string }[] };
  return findings.filter(({ about }) => about === 'plan table');
}

async function limitOf(gateway: string, key: string): Promise<string | undefined> {
  return (await send(`${gateway}/v1/pets`, { key })).headers['x-ratelimit-limit'] as string | undefined;
}

test('the gateway adds missing plan values and keeps those that were set', async () => {
  await redis.flushdb();
  await redis.hset('gateway:plans', 'free.minute', '77');
  await startStack(withRedis);
  expect(await redis.hgetall('gateway:plans')).toEqual({ ...storedPlans(DEFAULT_PLANS), 'free.minute': '77' });
});

test('if an empty Redis was unavailable on startup, a plan can be changed as soon as Redis answers', async () => {
  const { url, redis } = await emptyDatabase();
  const proxy = await startFaultProxy(url);
  proxy.set({ kind: 'reset' });
  const stack = await startStack({ REDIS_URL: proxy.url });
  proxy.set({ kind: 'pass' });
  const change = () => stack.admin('PATCH', '/plans/free', { minute: 61 });
  let changed = await change();
  while (changed.status === 503) changed = await change();
  expect([changed.status, changed.text]).toEqual([200, expect.any(String)]);
  expect(await redis.hgetall('gateway:plans')).toEqual({ ...storedPlans(DEFAULT_PLANS), 'free.minute': '61' });
  expect(await limitOf(stack.gateway, await stack.issueKey())).toBe('61');
});

test('a plan table without newer optional fields is complete, and their defaults are in force', async () => {
  const { restart } = await stopped();
  const later = STORED_FIELDS.filter((name) => whenAbsent(name.split('.')[1] as PlanField) !== undefined);
  expect(later).toContain('free.ban_grace_seconds');
  await redis.hdel('gateway:plans', ...later);
  await redis.hdel(KEPT, ...later, 'seen');
  const stack = await restart();
  expect(await isReady(stack)).toBe(200);
  expect((await stack.admin('GET', '/plans')).json).toMatchObject({ free: { minute: 60, ban_grace_seconds: 30 } });
  expect(stack.log.filter(({ level }) => level > 30)).toEqual([]);
});

test('a missing plan table is logged as an error and restored with entries in the audit log', async () => {
  const { stack, key } = await fresh(61);
  await redis.del('gateway:plans');
  await expect.poll(() => stack.log.filter(({ msg }) => msg.startsWith('the plan table is missing')).length).toBe(1);
  expect(await limitOf(stack.gateway, key)).toBe('61');
  await expect.poll(() => redis.hget('gateway:plans', 'free.minute')).toBe('61');
  const written = (await activityOf(stack)).filter(({ via }) => via === 'gateway');
  expect(written.map(({ action, target }) => `${action} ${target}`).sort()).toEqual(
    ['business', 'enterprise', 'free', 'pro'].map((plan) => `plan.change ${plan}`),
  );
});

test('a gateway that starts without a plan table uses the kept copy, and is not ready if that is missing too', async () => {
  const { key, restart } = await stopped(62);
  await redis.del('gateway:plans');
  const second = await restart();
  await expect.poll(() => redis.hget('gateway:plans', 'free.minute')).toBe('62');
  expect(await limitOf(second.gateway, key)).toBe('62');
  await second.stop();
  await redis.del('gateway:plans', KEPT);
  const third = await restart();
  expect(await isReady(third)).toBe(503);
  expect(await redis.exists('gateway:plans')).toBe(0);
  // The rest of the table is unknown, so a partial change is refused.
  const refused = await third.admin('PATCH', '/plans/free', { minute: 63 });
  expect([refused.status, refused.text]).toEqual([409, expect.stringContaining('no gateway has the last good one')]);
  await redis.hset('gateway:plans', 'free.minute', '64');
  await sleep(600);
  expect(await isReady(third)).toBe(503);
  expect((await third.admin('GET', '/plans')).status).toBe(503);
  expect(await findingsOn(third)).toMatchObject([INCOMPLETE]);
  await third.stop();
  const fourth = await restart();
  expect(await isReady(fourth)).toBe(503);
  const plans = { pro: { minute: 300, day: 9 }, business: { minute: 1, day: 2 }, free: { minute: 65, day: 66 } };
  expect((await fourth.admin('PATCH', '/plans', { plans })).status).toBe(200);
  for (const plan of ['free', 'pro', 'business', 'enterprise'])
    expect([plan, (await fourth.admin('PATCH', `/plans/${plan}`, { ban_seconds: 60 })).status]).toEqual([plan, 200]);
  await expect.poll(() => limitOf(fourth.gateway, key)).toBe('65');
});

const spoil = () => redis.hset('gateway:plans', 'free.minute', 'abc');
const loseAll = () => redis.del(KEPT);
const loseOne = () => redis.hdel(KEPT, 'free.minute');

test.for([
  ['before', loseAll, spoil],
  ['after', spoil, loseAll],
  ['partly after', spoil, loseOne],
] as const)(
  'a gateway restores its kept copy of the plans if the copy is lost %s an invalid value is stored',
  async ([, one, two]) => {
    const { stack, key, restart } = await fresh(62);
    await one();
    await sleep(600);
    await two();
    await expect.poll(() => redis.hget(KEPT, 'free.minute'), { timeout: 5_000 }).toBe('62');
    expect(await limitOf(stack.gateway, key)).toBe('62');
    await stack.stop();
    expect(await limitOf((await restart()).gateway, key)).toBe('62');
  },
);

test('a plan change preserves the last valid values while an invalid one is stored and the kept copy is lost', async () => {
  const { stack } = await fresh(62);
  await redis.multi().del(KEPT).hset('gateway:plans', 'free.minute', 'abc').exec();
  await stack.admin('PATCH', '/plans/pro', { minute: 301 });
  expect(await redis.hmget(KEPT, 'free.minute', 'pro.minute')).toEqual(['62', '301']);
});

test.for([
  ['all of the kept copy', loseAll],
  ['one value of the kept copy', loseOne],
] as const)('a gateway that starts with an invalid limit is not ready if %s is lost', async ([, lose]) => {
  const { key, restart } = await stopped(62);
  await lose();
  await spoil();
  const second = await restart();
  await sleep(1_500);
  expect(await isReady(second)).toBe(503);
  const alarms = second.log.filter(({ field }) => field === 'free.minute');
  expect(alarms.map(({ value, kept }) => [value, kept])).toEqual([['abc', undefined]]);
  const stays = {
    status: 'fault',
    found: 'free.minute is "abc", which is not a whole number from 1 to 1000000000; no value is in force',
  };
  expect(await findingsOn(second)).toMatchObject([INCOMPLETE, stays]);
  await redis.hset('gateway:plans', 'free.minute', '63');
  await expect.poll(() => isReady(second)).toBe(200);
  expect(await limitOf(second.gateway, key)).toBe('63');
  await expect.poll(() => redis.hget(KEPT, 'free.minute')).toBe('63');
});

test('a plan change reports a table of the wrong type, and a gateway that has read no plan table says so', async () => {
  const { stack, restart } = await fresh();
  await redis.multi().del(KEPT).set(KEPT, 'text').exec();
  const change = async () => (await stack.admin('PATCH', '/plans/free', { minute: 61 })).json;
  expect(await change()).toMatchObject({
    status: 503,
    message: expect.stringContaining(`${KEPT} in Redis holds a value of the wrong type`),
  });
  expect(await redis.del(KEPT)).toBe(1);
  expect(await change()).toMatchObject({ minute: 61 });
  await redis.multi().del('gateway:plans').set('gateway:plans', 'text').exec();
  const message = 'gateway:plans in Redis holds a value of the wrong type. Check the value, then delete it.';
  expect(await change()).toMatchObject({ status: 503, message });
  await stack.stop();
  await redis.del(KEPT);
  const { json } = await (await restart()).admin('GET', '/plans');
  expect(json).toMatchObject({ status: 503, message: expect.stringContaining('No complete plan table has been read') });
});

test('a gateway that starts with a plan table of the wrong type uses the kept copy', async () => {
  const { key, restart } = await stopped(62);
  await redis.multi().del('gateway:plans').set('gateway:plans', 'text').exec();
  const stack = await restart();
  expect(await limitOf(stack.gateway, key)).toBe('62');
  // Otherwise, a load balancer would not send it requests, although it can serve them.
  await expect.poll(() => isReady(stack)).toBe(200);
  expect(await findingsOn(stack)).toMatchObject([{ status: 'fault', found: expect.stringContaining('the last good') }]);
});

test('a plan change affects only the named fields, even if the plan table and its kept copy are lost', async () => {
  const { stack } = await fresh();
  await stack.admin('PATCH', '/plans/pro', { minute: 301, ban_grace_seconds: 7, mode: 'shadow' });
  const before = (await stack.admin('GET', '/plans')).json as Record<string, unknown>;
  await redis.del('gateway:plans', KEPT);
  expect((await stack.admin('PATCH', '/plans/free', { minute: 64 })).json).toMatchObject({ minute: 64 });
  const after = { ...before, free: { ...(before.free as object), minute: 64 } };
  expect((await stack.admin('GET', '/plans')).json).toEqual(after);
  expect(await redis.hmget('gateway:plans', 'pro.minute', 'pro.ban_grace_seconds', 'pro.mode')).toEqual([
    '301',
    '7',
    'shadow',
  ]);
});

test('a removed ban_after does not return with a restored plan table', async () => {
  const { stack } = await fresh();
  for (const ban_after of [7, null]) await stack.admin('PATCH', '/plans/pro', { ban_after });
  await redis.hset('gateway:plans', 'business.ban_after', '9');
  await expect.poll(() => redis.hget(KEPT, 'business.ban_after')).toBe('9');
  await redis.hdel('gateway:plans', 'business.ban_after');
  await expect.poll(() => redis.hget(KEPT, 'business.ban_after')).toBeNull();
  await redis.del('gateway:plans');
  await expect.poll(() => redis.hget('gateway:plans', 'pro.minute'), { timeout: 5_000 }).toBe('300');
  expect(await redis.hmget('gateway:plans', 'pro.ban_after', 'business.ban_after')).toEqual([null, null]);
});

test.for([
  ['minute', 'nan', "the plan's limit is in force", 'set <id> --minute'],
  ['left', 'garbage', 'both buckets count as full', 'reset <id>'],
  ['left', 'nan/60 nan/1000', 'both buckets count as full', 'reset <id>'],
  ['left', 'soon 5/60 5/1000', 'both buckets count as full', 'reset <id>'],
  ['refusals', '0 0', 'earlier refusals are forgotten', 'reset <id>'],
] as const)(
  'if the field %s of a key is "%s", the doctor and an error in the log name the field, and the limits of the plan apply',
  async ([field, value, follows, repair]) => {
    const { stack, key } = await fresh();
    const id = idOf(key);
    expect(await limitOf(stack.gateway, key)).toBe('60');
    await redis.hset(`gateway:key:{${id}}`, field, value);
    const { findings } = (await stack.admin('GET', '/doctor')).json as DoctorAnswer;
    const finding = findings.find(({ found }) => found.includes(id));
    expect(finding).toMatchObject({
      status: 'fault',
      found: `${id}: ${field} is "${value}", which is not valid; ${follows}`,
    });
    expect(finding?.advice).toContain(`ctl keys ${repair.replace('<id>', id)}`);
    expect(await limitOf(stack.gateway, key)).toBe('60');
    const logged = stack.log.flatMap((line) => (line.rejectedOverrides === undefined ? [] : line));
    expect(logged).toMatchObject([{ level: 50, keyId: id, rejectedOverrides: field }]);
  },
);

test('incomplete or corrupt state grants at most one full bucket and causes no error', async () => {
  const { stack, key } = await fresh();
  const name = `gateway:key:{${idOf(key)}}`;
  for (const state of [
    {
      ...{ left: 'yesterday nan -5', refusals: '1e9 nan -1', used: 'x', banned_until: 'never' },
      ...{ bans: 'x', admitted: '', refused: '1e9' },
    },
    { left: '1 3 5.5' },
    { left: '99999999999.5 99999999999 1', refusals: '' },
  ]) {
    await redis.hset(name, state);
    const answer = await send(`${stack.gateway}/v1/pets`, { key });
    expect(answer.status).toBe(200);
    expect(Number(answer.headers['x-ratelimit-remaining'])).toBeLessThan(60);
  }
});

test('an unknown plan field is reported', () => {
  const { table, rejected } = readPlans(
    { ...storedPlans(DEFAULT_PLANS), 'free.minutes': '1', 'enterprise.minute': '5' },
    DEFAULT_PLANS,
  );
  expect(table).toEqual(DEFAULT_PLANS);
  expect(rejected.map(({ field }) => field)).toEqual(['free.minutes', 'enterprise.minute']);
});

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
