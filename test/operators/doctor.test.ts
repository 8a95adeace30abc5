import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type { CheckResult, DoctorAnswer, TrafficAnswer } from '../../gateway/operators/api/answers.ts';
import { cleanUp } from '../support/clean-up.ts';
import { ctl } from '../support/ctl.ts';
import { faultyCore, OK } from '../support/faulty-core.ts';
import { type Answer, send } from '../support/http.ts';
import { serveHttp } from '../support/http-server.ts';
import { get, hashOf, issueId } from '../support/operators.ts';
import { startRedisCluster } from '../support/redis-cluster.ts';
import { ownRedis } from '../support/redis-database.ts';
import { startRedisWithUsers, urlOf } from '../support/redis-users.ts';
import { type Stack, startStack, temporaryFolder } from '../support/stack.ts';
import { startWorkers } from '../support/workers.ts';

/** Starts a correctly configured Redis, and a gateway that uses it as its own user. */
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

const examine = async (stack: Stack) => (await get<DoctorAnswer>(stack, '/doctor')).findings;

/** The findings that are not good. The warning that a single Redis has no replica is left out. */
const badOf = async (stack: Stack) =>
  (await examine(stack)).filter(({ about, status }) => status !== 'good' && !about.endsWith('replicas'));

test('the doctor lists each check that passes', async () => {
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
    'good bans by other gateways',
    // On a busy machine, the core can be called slow.
    expect.stringMatching(new RegExp(`^(good|warning) core ${stack.core}$`)),
    'good plan table',
    'good requests to this gateway',
    'good keys',
    'good list of keys',
    'good client addresses',
    `good requests to core ${stack.core}`,
  ]);
  expect(findings[0]?.found).toMatch(/^Redis \d+\.\d+\.\d+, a primary, answers in \d+\.\d ms$/);
});

const examined = await setUp();
/** Commands that end each of the faults below but the last. */
const END =
  'REPLICAOF NO ONE; CONFIG SET maxmemory 0 maxmemory-policy noeviction appendonly yes; DEL x; ' +
  'HDEL gateway:plans fre.minute pro.mode; HSET gateway:plans free.minute 60';
const INVALID = /^free.minute is "60,", which is not a whole number from 1 to 1000000000; 60 stays in force$/;

test.for([
  ['evicts', 'CONFIG SET maxmemory 1gb maxmemory-policy allkeys-lru', 'fault', /API keys may be evicted/],
  ['would evict', 'CONFIG SET maxmemory-policy allkeys-lru', 'warning', /with no maxmemory yet/],
  ['is nearly full', 'SETRANGE x 20000000 x; CONFIG SET maxmemory 24800000', 'warning', /used; when it is full/],
  ['is full', 'CONFIG SET maxmemory 900kb', 'fault', /% of maxmemory is used, so all decisions are local/],
  ['has no append-only file', 'CONFIG SET appendonly no', 'warning', /no append-only file/],
  ['is a replica', 'REPLICAOF 127.0.0.1 1', 'fault', /a replica/],
  ['holds an invalid limit', 'HSET gateway:plans free.minute 60,', 'fault', INVALID],
  ['holds a field that no plan has', 'HSET gateway:plans fre.minute 60', 'fault', /^fre.minute is "60"; no value is/],
  ['has a plan in shadow mode', 'HSET gateway:plans pro.mode shadow', 'warning', /^pro is in shadow mode/],
  ['holds no table', 'SET gateway:plans x', 'fault', /cannot be read/],
] as const)('the doctor reports a Redis that %s, with the remedy', async ([, command, status, found]) => {
  const { redis, stack } = examined;
  for (const one of `${END}; ${command}`.split('; ')) await redis.call(...(one.split(' ') as [string, ...string[]]));
  const finding = { status, found: expect.stringMatching(found), advice: expect.stringMatching(/./) };
  await expect.poll(() => badOf(stack), { interval: 200 }).toEqual([expect.objectContaining(finding)]);
});

test('the doctor reports a Redis that answers but refuses decisions, until it accepts them again', async () => {
  const { redis, stack } = await setUp();
  const key = await stack.issueKey();
  await redis.call('ACL', 'SETUSER', 'gateway', '-hset');
  const ask = async () => (await send(`${stack.gateway}/v1/pets`, { key })).status;
  const found = async () => (await badOf(stack)).filter(({ about }) => about === 'decisions');
  await expect
    .poll(async () => [await ask(), ...(await found())])
    .toEqual([
      503,
      expect.objectContaining({
        status: 'fault',
        found: expect.stringContaining('The user executing the script'),
        advice: expect.stringContaining('users.acl'),
      }),
    ]);
  await redis.call('ACL', 'SETUSER', 'gateway', '+hset');
  await expect.poll(async () => [await ask(), ...(await found())]).toEqual([200]);
});

test("the doctor's advice on plan values works, and its report stays small however many values are invalid", async () => {
  const { redis, stack } = await setUp();
  await redis.hset('gateway:plans', { 'free.ban_seconds': 'x'.repeat(5_000), 'free.minute ': '60' });
  await expect
    .poll(async () => (await badOf(stack)).map(({ advice }) => advice))
    .toEqual(['ctl plans set free --ban-seconds …', 'No plan has this field. Run: HDEL gateway:plans "free.minute "']);
  const [, shown = ''] = /^free\.ban_seconds is "(x+)", /.exec((await badOf(stack))[0]?.found ?? '') ?? [];
  expect(shown).toHaveLength(100);
  await redis.hset('gateway:plans', Object.fromEntries(Array.from({ length: 500 }, (_, at) => [`field ${at}`, '1'])));
  await expect.poll(() => badOf(stack)).toHaveLength(100);
});

test('the doctor reports that a ban_after of the former rule is ignored, and warns about a very high value', async () => {
  const { redis, stack } = await setUp();
  await redis.hset('gateway:plans', {
    'free.ban_after': '20',
    'free.ban_within_seconds': '60',
    'pro.ban_after': '2401',
  });
  const table = () => get(stack, '/plans');
  const former = 'free.ban_within_seconds belongs to a rule that no longer exists';
  await expect
    .poll(() => badOf(stack))
    .toMatchObject([
      {
        status: 'warning',
        found: `${former}: free.ban_after is ignored, and 5 × minute is in force`,
        advice: 'ctl plans set free --ban-after none',
      },
      { status: 'warning', found: expect.stringContaining('pro.ban_after is 2401, over eight times') },
    ]);
  expect(await table()).not.toHaveProperty('free.ban_after');
  // A value that is set now applies to the current rule.
  expect((await stack.admin('PATCH', '/plans/free', { ban_after: 20 })).json).toMatchObject({ ban_after: 20 });
  await stack.admin('PATCH', '/plans/pro', { ban_after: 2_400 });
  await expect.poll(() => badOf(stack)).toEqual([]);
  expect(await redis.hexists('gateway:plans', 'free.ban_within_seconds')).toBe(0);
  expect((await stack.admin('PATCH', '/plans/free', { ban_after: null })).json).not.toHaveProperty('ban_after');
  expect(await redis.hexists('gateway:plans', 'free.ban_after')).toBe(0);
});

test('the doctor reports an unreachable Redis and an unreachable core', async () => {
  const { server, stack } = await setUp({ CORE_URL: 'http://127.0.0.1:1' });
  await server.stop();
  // On a busy machine, the doctor may already report that the plan table is outdated.
  const findings = (await badOf(stack)).filter(({ about }) => about !== 'plan table');
  expect(findings.map(({ about, status }) => `${status} ${about}`)).toEqual([
    'fault redis',
    'fault core http://127.0.0.1:1',
    'unknown keys',
  ]);
  expect(findings.slice(0, 2).map(({ found }) => found)).toEqual([
    expect.stringMatching(/^does not answer: ./),
    expect.stringMatching(/^cannot be reached: ./),
  ]);
});

test('the doctor reports the Redis default user', async () => {
  const plain = await ownRedis({ appendonly: 'yes', dir: await temporaryFolder() });
  expect(await badOf(await startStack({ REDIS_URL: plain.url, REDIS_TIMEOUT_MS: '2000' }))).toEqual([
    expect.objectContaining({ about: 'redis user', status: 'warning' }),
  ]);
});

test('the doctor checks every node of a cluster and reports slots that are not served', async () => {
  const cluster = await startRedisCluster();
  const stack = await startStack({ REDIS_MODE: 'cluster', REDIS_URL: cluster.urls, REDIS_TIMEOUT_MS: '2000' });
  // The nodes first exchange which slots they serve.
  await expect.poll(async () => (await examine(stack))[0]).toMatchObject({ about: 'redis cluster', status: 'good' });
  const findings = await examine(stack);
  expect(new Set(findings.map(({ about }) => about))).toEqual(
    new Set([
      'redis cluster',
      'bans by other gateways',
      'changes by other gateways',
      'client addresses',
      ...cluster.nodes.flatMap(({ port }) =>
        ['', ' memory', ' persistence', ' user', ' clock', ' replicas'].map(
          (thing) => `redis 127.0.0.1:${port}${thing}`,
        ),
      ),
      `core ${stack.core}`,
      `requests to core ${stack.core}`,
      ...['plan table', 'requests to this gateway', 'keys', 'list of keys'],
    ]),
  );
  for (const { redis } of cluster.nodes) await redis.cluster('DELSLOTS', 0, 1);
  const incomplete = await startStack({ REDIS_MODE: 'cluster', REDIS_URL: cluster.urls, REDIS_TIMEOUT_MS: '2000' });
  // The nodes first exchange which slots they serve.
  await expect
    .poll(async () => (await examine(incomplete))[0])
    .toMatchObject({
      about: 'redis cluster',
      status: 'fault',
      found: '2 of 16384 slots are not served',
    });
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

/** A core that answers /readyz and reads with these statuses, and with a body of this type. */
const coreWith = (statuses: readonly [ready: number, read: number, type?: string | undefined]) =>
  serveHttp(({ url }, response) => {
    const [ready, read, type] = statuses;
    response.writeHead(url === '/readyz' ? ready : read, type ? { 'content-type': type } : {}).end(type && 'ok');
  });

const findingsOn = async (stack: Stack) => (await examine(stack)).filter(({ about }) => about.startsWith('core '));
const statuses: [ready: number, read: number, type?: string | undefined] = [200, 200];
const onCore = await startStack({ CORE_URL: await coreWith(statuses) });

test.for([
  [200, 200, 'good', /^is ready, and answers in \d+ ms$/],
  [204, 200, 'fault', /^is not ready: \/readyz returned 204$/],
  [404, 200, 'warning', /^has no \/readyz: it returned 404$/],
  // Any answer to the read shows that the core is running.
  [200, 400, 'good', /^is ready/],
  [200, 404, 'good', /^is ready/],
  [200, 401, 'fault', /^rejects our token$/],
  [200, 403, 'fault', /^rejects our token$/],
  [404, 401, 'fault', /^rejects our token$/],
  [200, 500, 'fault', /^answers 500 to GET \/v1\/pets$/],
  [200, 200, 'fault', /^answers 200 to GET \/v1\/pets with text\/html instead of JSON$/, 'text/html; charset=utf-8'],
  [200, 502, 'fault', /^answers 502 to GET \/v1\/pets with text\/html instead of JSON$/, 'text/html'],
] as [number, number, CheckResult['status'], RegExp, string?][])(
  'a core that answers /readyz with %i and a read with %i is reported as %s: %s',
  async ([ready, read, status, found, type]) => {
    Object.assign(statuses, [ready, read, type]);
    const [finding, ...others] = await findingsOn(onCore);
    expect([finding, others]).toMatchObject([{ status, found: expect.stringMatching(found) }, []]);
    if (status === 'warning') expect(finding?.advice).toMatch(/several.*\/readyz/);
  },
);

test('the doctor requires /readyz of several cores, because a core without it gets no requests', async () => {
  const cores = [await coreWith([404, 200]), await coreWith([200, 200])];
  const found = await findingsOn(await startStack({ CORE_URL: cores.join() }));
  expect(found.map(({ status }) => status).sort()).toEqual(['fault', 'good']);
});

/** Tests what /readyz alone, without other requests, reports about a hanging dependency. */

const PATIENT = { timeout: 15_000, interval: 200 };

const readyz = async ({ adminUrl }: Stack): Promise<Answer> => await send(`${adminUrl}/readyz`);

const polled = (stack: Stack) =>
  expect.poll(async () => ((await readyz(stack)).json as { detail?: string }).detail ?? 'well', PATIENT);

/** A core that can hang, and the heads of the requests that it received. */
async function hangingCore() {
  const core = { url: '', hangs: false, heads: [] as string[] };
  core.url = await faultyCore((socket: Socket, head) => {
    core.heads.push(head.split('\r\n', 1)[0] ?? '');
    if (!core.hangs) socket.end(OK);
  });
  return core;
}

test('/readyz reports a hanging Redis without waiting for it', async () => {
  const redis = await ownRedis();
  const stack = await startStack({ REDIS_URL: redis.url, REDIS_TIMEOUT_MS: '250' });
  await polled(stack).toBe('well');
  redis.pause();
  cleanUp(() => redis.resume());
  await polled(stack).toMatch(/^redis .+ \((?:fault|unknown) since \d{4}-\S+Z\)\.$/);
  const askedAt = performance.now();
  const first = await readyz(stack);
  expect(performance.now() - askedAt).toBeLessThan(1_000);
  expect(first).toMatchObject({ status: 200, json: { status: 'ready' } });
  redis.resume();
  await polled(stack).toBe('well');
});

test('even a lone /readyz reports a single core that hangs, and probes it only when called', async () => {
  const core = await hangingCore();
  const stack = await startStack({ CORE_URL: core.url });
  const detail = async () => ((await readyz(stack)).json as { detail?: string }).detail;
  expect(await detail()).toBeUndefined();
  core.hangs = true;
  // By then, the last check is no longer recent.
  await sleep(1_500);
  expect(await detail()).toMatch(/^core.+did not answer within 0\.7 s \(unknown since \S+Z\)\.$/);
  await sleep(4_000);
  expect(await detail()).toContain(`core ${core.url} does not answer (unknown since `);
  core.hangs = false;
  await polled(stack).toBe('well');
  const probes = core.heads.length;
  await sleep(2_000);
  expect(core.heads).toHaveLength(probes);
});

test('the first answers of /readyz and /traffic wait only briefly for the checks, and name what hangs', async () => {
  const [redis, core] = [await ownRedis(), await hangingCore()];
  const stack = await startStack({ REDIS_URL: redis.url, REDIS_TIMEOUT_MS: '5000', CORE_URL: core.url });
  core.hangs = true;
  redis.pause();
  cleanUp(() => redis.resume());
  const timed = async <T>(ask: () => Promise<T>): Promise<T> => {
    const askedAt = performance.now();
    const answer = await ask();
    expect(performance.now() - askedAt).toBeLessThan(1_500);
    return answer;
  };
  expect(await timed(() => readyz(stack))).toMatchObject({
    status: 200,
    json: { status: 'ready', detail: expect.stringMatching(/^redis .+ \(unknown since \S+Z\)\.$/) },
  });
  const { findings } = await timed(() => get<TrafficAnswer>(stack, '/traffic'));
  const unknown = (about: string) => expect.objectContaining({ about, status: 'unknown' });
  expect(findings).toEqual(expect.arrayContaining([unknown('redis'), unknown('cores')]));
  await expect
    .poll(async () => (await get<TrafficAnswer>(stack, '/traffic')).findings, PATIENT)
    .toContainEqual(expect.objectContaining({ about: `core ${core.url}`, found: 'does not answer' }));
});

test('the first /readyz names a worker that hangs', async () => {
  const gateway = await startWorkers({ WORKERS: '1' });
  const pid = gateway.pids()[0] as number;
  process.kill(pid, 'SIGSTOP');
  cleanUp(() => process.kill(pid, 'SIGCONT'));
  await sleep(2_000);
  const { detail } = (await send(`${gateway.adminUrl}/readyz`)).json as { detail?: string };
  expect(detail).toMatch(/^worker 1 has not reported for \d\.\d s \(unknown since \S+Z\)\.$/);
});

/** Expects the console's banner, /readyz, the doctor and ctl doctor to report the same finding about a core. */
async function expectSameFinding(stack: Stack, about: string, status: string, found: string) {
  const shown = async () => (await get<TrafficAnswer>(stack, '/traffic')).health;
  await expect.poll(shown, PATIENT).toMatchObject({ about, status, found });
  const health = (await shown()) as CheckResult;
  expect((await examine(stack)).filter((one) => one.about === about)).toEqual([health]);
  expect(((await readyz(stack)).json as { detail?: string }).detail).toBe(
    `${about} ${found} (${status} since ${health.since}).`,
  );
  await shown();
  const since = status === 'unknown' ? `, since ${health.since}` : '';
  expect((await ctl(stack, 'doctor')).out).toMatch(new RegExp(`^${status} +${about} +${found}${since}$`, 'm'));
}

test('one of several cores that hangs is reported in the same way by the console, /readyz and both doctors', async () => {
  const [hangs, works] = [await hangingCore(), await hangingCore()];
  const stack = await startStack({ CORE_URL: `${hangs.url},${works.url}` });
  await polled(stack).toBe('well');
  hangs.hangs = true;
  await expectSameFinding(stack, `core ${hangs.url}`, 'unknown', 'does not answer');
});

test('a core that becomes ready slowly and then does not answer a read is named', async () => {
  const core = await faultyCore((socket, head) => {
    if (head.startsWith('GET /readyz ')) setTimeout(() => socket.end(OK), 1_300);
  });
  const found = await findingsOn(await startStack({ CORE_URL: core }));
  expect(found).toMatchObject([{ about: `core ${core}`, found: 'does not answer' }]);
});

test("a fault in a key's data is reported in the same way everywhere, until the doctor finds that it is fixed", async () => {
  const { redis, stack } = await setUp();
  const id = await issueId(stack);
  await redis.hset(hashOf(id), 'plan', 'gold');
  const shown = async () => (await get<TrafficAnswer>(stack, '/traffic')).health;
  await expect.poll(shown, PATIENT).toMatchObject({ about: 'keys', status: 'fault' });
  const health = (await shown()) as CheckResult;
  expect((await examine(stack)).filter(({ about }) => about === 'keys')).toEqual([health]);
  expect((await readyz(stack)).json).toMatchObject({ detail: expect.stringContaining(`keys ${health.found}`) });
  await redis.hset(hashOf(id), 'plan', 'free');
  expect((await examine(stack)).filter(({ status }) => status === 'fault')).toEqual([]);
  expect(await shown()).toBeUndefined();
});

test('a core that expects another token, or whose API fails, is reported in the same way everywhere', async () => {
  const core = await startStack({ CORE_TOKEN: 'token-of-the-core-here' });
  const stack = await startStack({ CORE_URL: core.core, CORE_TOKEN: 'another-token-than-that' });
  const key = await stack.issueKey();
  expect((await send(`${stack.gateway}/v1/pets`, { key })).status).toBe(502);
  await polled(stack).toMatch(new RegExp(`^core ${core.core} rejects our token \\(fault since \\S+Z\\)\\.$`));
  await expectSameFinding(stack, `core ${core.core}`, 'fault', 'rejects our token');
  const broken = await coreWith([200, 500]);
  const about = `core ${broken}`;
  await expectSameFinding(await startStack({ CORE_URL: broken }), about, 'fault', 'answers 500 to GET /v1/pets');
});
