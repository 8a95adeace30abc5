import { expect, test } from 'vitest';
import type { CheckResult } from '../../gateway/check-result.ts';
import { idOf } from '../support/api-key.ts';
import { cleanUp } from '../support/clean-up.ts';
import { ctl } from '../support/ctl.ts';
import { send } from '../support/http.ts';
import { startRedisServer } from '../support/redis.ts';
import { startRedisCluster } from '../support/redis-cluster.ts';
import { startRedisWithUsers, urlOf } from '../support/redis-users.ts';
import { type Stack, startStack, temporaryFolder } from '../support/stack.ts';

/** A correctly configured Redis, and a gateway that uses it as its own user. */
async function setUp(settings: Record<string, string> = {}) {
  const { server, root: redis } = await startRedisWithUsers({
    appendonly: 'yes',
    'maxmemory-policy': 'noeviction',
    dir: await temporaryFolder(),
  });
  const stack = await startStack({
    REDIS_URL: urlOf('gateway', server.url),
    REDIS_TIMEOUT_MS: '2000',
    ...settings,
  });
  return { server, redis, stack };
}

async function examine(stack: Stack): Promise<CheckResult[]> {
  const { status, json } = await stack.admin('GET', '/doctor');
  expect(status).toBe(200);
  return (json as { findings: CheckResult[] }).findings;
}

/** A single Redis, as in most of these tests, has no replica, which is a finding of its own. */
const badOf = async (stack: Stack) =>
  (await examine(stack)).filter(({ about, status }) => status !== 'good' && !about.endsWith('replicas'));

test('the doctor reports each check that is in order', async () => {
  const { stack } = await setUp();
  const findings = await examine(stack);
  expect(findings.map(({ about, status }) => `${status} ${about}`)).toEqual([
    'good redis',
    'good redis memory',
    'good redis persistence',
    'good redis user',
    'good redis clock',
    'warning redis replicas',
    'good changes by other gateways',
    `good core ${stack.core}`,
    'good client addresses',
    `good requests to core ${stack.core}`,
    'good plan table',
    'good keys',
    'good list of keys',
  ]);
  expect(findings[0]?.found).toMatch(/^Redis \d+\.\d+\.\d+, a primary, answers in \d+\.\d ms$/);
});

test.for([
  [
    'evicts',
    [['CONFIG', 'SET', 'maxmemory', '1gb', 'maxmemory-policy', 'allkeys-lru']],
    'fault',
    /API keys may be evicted/,
  ],
  ['would evict', [['CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru']], 'warning', /with no maxmemory yet/],
  ['is nearly full', [['CONFIG', 'SET', 'maxmemory', '1100kb']], 'warning', /% of maxmemory is used/],
  ['keeps no append-only file', [['CONFIG', 'SET', 'appendonly', 'no']], 'warning', /no append-only file/],
  ['is a replica', [['REPLICAOF', '127.0.0.1', '1']], 'fault', /a replica/],
  [
    'holds a value that is no limit',
    [['HSET', 'gateway:plans', 'free.minute', '60,']],
    'fault',
    /^free.minute is "60,", which is not a whole number from 1 to 1000000000; 60 stays in force$/,
  ],
  [
    'holds a field that no plan has',
    [['HSET', 'gateway:plans', 'fre.minute', '60']],
    'fault',
    /^fre.minute is "60"; nothing stays in force$/,
  ],
  ['has a plan in shadow mode', [['HSET', 'gateway:plans', 'pro.mode', 'shadow']], 'warning', /^pro is in shadow mode/],
  [
    'holds no table',
    [
      ['DEL', 'gateway:plans'],
      ['SET', 'gateway:plans', 'x'],
    ],
    'fault',
    /cannot be read/,
  ],
] as const)('the doctor reports a Redis that %s, with the remedy', async ([, commands, status, found]) => {
  const { redis, stack } = await setUp();
  for (const [name, ...parameters] of commands) await redis.call(name, ...parameters);
  await expect
    .poll(() => badOf(stack))
    .toEqual([
      expect.objectContaining({ status, found: expect.stringMatching(found), advice: expect.stringMatching(/./) }),
    ]);
});

test('the doctor reports decisions that Redis refuses although it answers, and no longer once it takes them', async () => {
  const { redis, stack } = await setUp();
  const key = await stack.issueKey();
  await redis.call('ACL', 'SETUSER', 'gateway', '-hset');
  const ask = async () => (await send(`${stack.gateway}/v1/pets`, { key })).status;
  const found = async () => (await badOf(stack)).filter(({ about }) => about === 'decisions');
  await expect
    .poll(async () => [await ask(), ...(await found())])
    .toEqual([
      503,
      expect.objectContaining({ status: 'fault', found: expect.stringContaining('The user executing the script') }),
    ]);
  await redis.call('ACL', 'SETUSER', 'gateway', '+hset');
  await expect.poll(async () => [await ask(), ...(await found())]).toEqual([200]);
});

test("the doctor's advice on plan values works, and its answer stays small however many there are", async () => {
  const { redis, stack } = await setUp();
  await redis.hset('gateway:plans', { 'free.ban_seconds': 'x'.repeat(5_000), 'free.minutes': '60' });
  await expect
    .poll(async () => (await badOf(stack)).map(({ advice }) => advice))
    .toEqual(['ctl plans set free --ban-seconds …', 'No plan has this field. Run: HDEL gateway:plans free.minutes']);
  const [, shown = ''] = /^free\.ban_seconds is "(x+)", /.exec((await badOf(stack))[0]?.found ?? '') ?? [];
  expect(shown).toHaveLength(100);
  await redis.hset('gateway:plans', Object.fromEntries(Array.from({ length: 500 }, (_, at) => [`field ${at}`, '1'])));
  await expect.poll(() => badOf(stack)).toHaveLength(100);
});

test('the doctor reports a ban_after of the former rule as ignored, and warns of one over eight times the minute limit', async () => {
  const { redis, stack } = await setUp();
  await redis.hset('gateway:plans', {
    'free.ban_after': '20',
    'free.ban_within_seconds': '60',
    'pro.ban_after': '2401',
  });
  const table = async () => (await stack.admin('GET', '/plans')).json;
  await expect
    .poll(() => badOf(stack))
    .toEqual([
      expect.objectContaining({
        status: 'warning',
        found:
          'free.ban_within_seconds belongs to a rule that no longer exists: free.ban_after is ignored, and 5 × minute is in force',
        advice: 'ctl plans set free --ban-after none',
      }),
      expect.objectContaining({
        status: 'warning',
        found: expect.stringContaining('pro.ban_after is 2401, over eight times'),
      }),
    ]);
  expect(await table()).not.toHaveProperty('free.ban_after');
  // Who sets it means the present rule.
  expect((await stack.admin('PATCH', '/plans/free', { ban_after: 20 })).json).toMatchObject({ ban_after: 20 });
  await stack.admin('PATCH', '/plans/pro', { ban_after: 2_400 });
  await expect.poll(() => badOf(stack)).toEqual([]);
  expect(await redis.hexists('gateway:plans', 'free.ban_within_seconds')).toBe(0);
  expect((await stack.admin('PATCH', '/plans/free', { ban_after: null })).json).not.toHaveProperty('ban_after');
  expect(await redis.hexists('gateway:plans', 'free.ban_after')).toBe(0);
});

test('the doctor reports a missing Redis and a missing core', async () => {
  const { server, stack } = await setUp({ CORE_URL: 'http://127.0.0.1:1' });
  await server.stop();
  // The plan table is old after a while, which a busy machine takes.
  const findings = (await badOf(stack)).filter(({ about }) => about !== 'plan table');
  expect(findings.map(({ about, status }) => `${status} ${about}`)).toEqual([
    'fault redis',
    'fault core http://127.0.0.1:1',
    'fault keys',
  ]);
  expect(findings.slice(0, 2).map(({ found }) => found)).toEqual([
    expect.stringMatching(/^gives no answer: ./),
    expect.stringMatching(/^cannot be reached: ./),
  ]);
});

test('the doctor reports a core with another token and the default user of Redis', async () => {
  const { stack: other } = await setUp({ CORE_TOKEN: 'token-of-the-core-here' });
  const { server } = await setUp();
  const stack = await startStack({
    REDIS_URL: urlOf('admin', server.url),
    REDIS_TIMEOUT_MS: '2000',
    CORE_URL: other.core,
    CORE_TOKEN: 'another-token-than-that',
  });
  expect(await badOf(stack)).toEqual([
    expect.objectContaining({ about: `core ${other.core}`, status: 'fault', found: 'rejects our token' }),
  ]);
  const plain = await startRedisServer({ appendonly: 'yes', dir: await temporaryFolder() });
  cleanUp(plain.stop);
  expect(await badOf(await startStack({ REDIS_URL: plain.url, REDIS_TIMEOUT_MS: '2000' }))).toEqual([
    expect.objectContaining({ about: 'redis user', status: 'warning' }),
  ]);
});

test('the doctor checks every node of a cluster and slots that are not served', async () => {
  const cluster = await startRedisCluster();
  const stack = await startStack({ REDIS_MODE: 'cluster', REDIS_URL: cluster.urls, REDIS_TIMEOUT_MS: '2000' });
  // The nodes tell each other of their slots.
  await expect.poll(async () => (await examine(stack))[0]).toMatchObject({ about: 'redis cluster', status: 'good' });
  const findings = await examine(stack);
  expect(new Set(findings.map(({ about }) => about))).toEqual(
    new Set([
      'redis cluster',
      'changes by other gateways',
      'client addresses',
      ...cluster.nodes.flatMap(({ port }) =>
        ['', ' memory', ' persistence', ' user', ' clock', ' replicas'].map(
          (thing) => `redis 127.0.0.1:${port}${thing}`,
        ),
      ),
      `core ${stack.core}`,
      `requests to core ${stack.core}`,
      'plan table',
      'keys',
      'list of keys',
    ]),
  );
  for (const { redis } of cluster.nodes) await redis.cluster('DELSLOTS', 0, 1);
  const incomplete = await startStack({ REDIS_MODE: 'cluster', REDIS_URL: cluster.urls, REDIS_TIMEOUT_MS: '2000' });
  // The nodes tell each other who serves what.
  await expect
    .poll(async () => (await examine(incomplete))[0])
    .toMatchObject({
      about: 'redis cluster',
      status: 'fault',
      found: '2 of 16384 slots are served by nobody',
    });
});

test('the doctor names the key and the secret whose network was malformed by hand', async () => {
  const { redis, stack } = await setUp();
  const id = idOf(await stack.issueKey());
  const field = (await redis.hkeys(`gateway:key:{${id}}`)).find((name) => name.startsWith('secret:')) as string;
  const [secretId, end, scope, , ...rest] = String(await redis.hget(`gateway:key:{${id}}`, field)).split(' ');
  const malformed = '10.0.0.0/99999999999999999999';
  await redis.hset(`gateway:key:{${id}}`, field, [secretId, end, scope, malformed, ...rest].join(' '));
  const found = (await badOf(stack)).filter(({ about }) => about === 'keys');
  expect(found).toEqual([expect.objectContaining({ status: 'fault', found: expect.stringContaining(id) })]);
  for (const part of [`networks of secret ${secretId}`, malformed]) expect(JSON.stringify(found)).toContain(part);
  expect((await stack.admin('GET', `/keys/${id}`)).status).toBe(200);
});

test('ctl doctor prints a readable report and exits with 1 if there is a fault', async () => {
  const { redis, stack } = await setUp();
  const doctor = (...options: string[]) => ctl(stack, ...options, 'doctor');
  const fine = await doctor();
  expect([fine.code, fine.err]).toEqual([0, '']);
  expect(fine.out).toMatch(/^good {5}redis user +gateway$/m);
  await redis.config('SET', 'maxmemory', '1gb', 'maxmemory-policy', 'volatile-lru');
  const ill = await doctor();
  expect([ill.code, ill.err]).toEqual([1, '']);
  expect(ill.out).toMatch(
    /^fault {4}redis memory +maxmemory-policy is volatile-lru: API keys may be evicted\n +CONFIG SET maxmemory-policy noeviction$/m,
  );
  expect(JSON.parse((await doctor('--json')).out)).toMatchObject({ findings: expect.any(Array) });
});
