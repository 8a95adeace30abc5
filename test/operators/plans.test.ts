import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { DEFAULT_PLANS } from '../../gateway/limiter/plans.ts';
import type { HistoryAnswer } from '../../gateway/operators/api/answers.ts';
import { driftOf, parsePlanFile, toYaml } from '../../gateway/operators/cli/plan-file.ts';
import { activityOf } from '../support/activity.ts';
import { idOf } from '../support/api-key.ts';
import { ctl, ctlReading } from '../support/ctl.ts';
import type { Answer } from '../support/http.ts';
import { ask, get, operatorsRedis } from '../support/operators.ts';
import { createKey } from '../support/redis-keys.ts';
import { bothStacks, type Stack, startStack, temporaryFolder } from '../support/stack.ts';

const { url, redis, withRedis, fresh } = await operatorsRedis();

const historyOf = async (stack: Stack, query = '') =>
  (await get<HistoryAnswer>(stack, `/plans/history${query}`)).history;
const plansOf = (stack: Stack) => get<Record<string, { minute: number }>>(stack, '/plans');
const minuteOf = async (stack: Stack, plan: string) => (await plansOf(stack))[plan]?.minute;

/** Changes a plan, with or without a version of the table. */
const patch = (stack: Stack, plan: string, body: unknown, version?: string): Promise<Answer> =>
  stack.admin('PATCH', `/plans/${plan}`, body, version === undefined ? {} : { headers: { 'if-match': version } });

const versionOf = async (stack: Stack) => (await stack.admin('GET', '/plans')).headers.etag as string;

const CONFLICT = { code: 'conflict', message: expect.any(String), status: 409 };

describe.for(bothStacks(url))('with %s', ([, environment]) => {
  test('of many changes based on the same version, exactly one is made; the others get 409 and change nothing', async () => {
    const stack = await fresh(environment);
    const version = await versionOf(stack);
    const made = (at: number) => patch(stack, at % 2 === 0 ? 'free' : 'pro', { minute: 400 + at }, version);
    const answers = await Promise.all(Array.from({ length: 12 }, (_, at) => made(at)));
    const winner = answers.findIndex(({ status }) => status === 200);
    expect(answers[winner]?.headers.etag).toBe(await versionOf(stack));
    const others = answers.filter((_, at) => at !== winner);
    expect(others.map(({ status, json }) => [status, json])).toEqual(Array(11).fill([409, CONFLICT]));
    expect(await plansOf(stack)).toMatchObject({
      free: { minute: winner % 2 === 0 ? 400 + winner : 60 },
      pro: { minute: winner % 2 === 0 ? 300 : 400 + winner },
    });
    // A client repeats a change because its answer was lost.
    expect((await made(winner)).status).toBe(200);
    expect(await historyOf(stack)).toHaveLength(1);
    expect((await patch(stack, 'pro', { minute: 301 }, await versionOf(stack))).status).toBe(200);
  });

  test('the history lists who changed what, when and why, newest first, and omits changes without effect', async () => {
    const stack = await fresh(environment);
    await patch(stack, 'free', { minute: 90, day: 2_000, author: 'ada', reason: 'launch week' });
    await patch(stack, 'free', { minute: 90, author: 'bob' });
    await patch(stack, 'pro', { ban_seconds: 60 });
    const history = await historyOf(stack);
    expect(history).toEqual([
      {
        id: expect.stringMatching(/^\d+-\d+$/),
        at: expect.any(String),
        author: 'unknown',
        reason: '',
        action: 'set',
        changes: [{ field: 'pro.ban_seconds', from: '300', to: '60' }],
      },
      expect.objectContaining({
        author: 'ada',
        reason: 'launch week',
        changes: [
          { field: 'free.minute', from: '60', to: '90' },
          { field: 'free.day', from: '1000', to: '2000' },
        ],
      }),
    ]);
    expect(Math.abs(Date.parse(history[0]?.at ?? '') - Date.now())).toBeLessThan(60_000);
    expect(await historyOf(stack, '?limit=1')).toEqual(history.slice(0, 1));
  });

  test('a rollback reverts the whole last change, and a rollback of the rollback restores it', async () => {
    const stack = await fresh(environment);
    expect((await stack.admin('POST', '/plans/rollback', {})).status).toBe(404);
    await patch(stack, 'free', { minute: 90, day: 2_000 });
    const back = await stack.admin('POST', '/plans/rollback', { author: 'ada', reason: 'too much' });
    expect(back.json).toEqual(DEFAULT_PLANS);
    expect((await historyOf(stack))[0]).toMatchObject({ author: 'ada', action: 'rollback', reason: 'too much' });
    const [{ id } = { id: '' }, first] = await historyOf(stack);
    for (const repetition of [{}, { id: first?.id }]) {
      const repeated = await stack.admin('POST', '/plans/rollback', repetition);
      expect(repeated.json).toEqual(DEFAULT_PLANS);
      expect(repeated.headers.warning).toContain(id);
    }
    expect(await historyOf(stack)).toHaveLength(2);
    const again = await stack.admin('POST', '/plans/rollback', { id });
    expect(again.json).toMatchObject({ free: { minute: 90, day: 2_000 } });
  });

  test('concurrent changes are made or get 409, and concurrent repetitions of a rollback all succeed', async () => {
    const stack = await fresh(environment);
    const changes = await Promise.all(
      Array.from({ length: 16 }, (_, at) => patch(stack, 'free', { minute: 100 + at })),
    );
    expect(changes.map(({ status }) => status).filter((status) => status !== 200 && status !== 409)).toEqual([]);
    const [{ id } = { id: '' }] = await historyOf(stack);
    const length = (await historyOf(stack)).length;
    const backs = await Promise.all(Array.from({ length: 4 }, () => stack.admin('POST', '/plans/rollback', { id })));
    expect(backs.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    expect(await historyOf(stack)).toHaveLength(length + 1);
  });

  test('a trial shows which keys of the plan would have been refused and how often, and changes nothing', async () => {
    const stack = await fresh(environment);
    const [busy, calm, own, pro, revoked] = [
      await stack.issueKey({ name: 'busy' }),
      await stack.issueKey({ name: 'calm' }),
      await stack.issueKey({ name: 'own', day: 500 }),
      await stack.issueKey({ name: 'pro', plan: 'pro' }),
      await stack.issueKey({ name: 'revoked' }),
    ];
    for (const key of [busy, own, pro, revoked]) for (let sent = 0; sent < 12; sent++) await ask(stack, key);
    for (let sent = 0; sent < 2; sent++) await ask(stack, calm);
    await stack.admin('DELETE', `/keys/${idOf(revoked)}`);
    const ban = await stack.admin('PUT', `/keys/${idOf(busy)}/ban`, { seconds: 600, reason: 'scraping' });
    const { bannedUntil, bannedSince } = ban.json as { bannedUntil: string; bannedSince: string };
    // A day limit hardly refills within the hour of a trial, so the duration of this test does not matter.
    expect((await stack.admin('POST', '/plans/free/try', { day: 5 })).json).toEqual({
      keys: 3,
      requests: 26,
      affected: [
        {
          ...{ id: idOf(busy), name: 'busy', requests: 12, refused: 0, wouldRefuse: 7 },
          ban: { bannedUntil, bannedSince, banReason: 'scraping', bans: 0, banRefused: 0 },
        },
      ],
    });
    expect(await plansOf(stack)).toMatchObject({ free: { minute: 60, day: 1_000 } });
    expect(await historyOf(stack)).toEqual([]);
    const unknown = await stack.admin('POST', '/plans/gold/try', { minute: 5 });
    expect(unknown).toMatchObject({ status: 404, json: { message: 'There is no such plan.' } });
    expect((await stack.admin('POST', '/plans/free/try', { minute: 60 })).json).toMatchObject({ affected: [] });
  });
});

/** Only one process can open the embedded database, so only Redis can be edited by hand while a gateway runs. */
test('a rollback reverts the last change even if the gateway has restored the missing table since', async () => {
  const stack = await fresh();
  await patch(stack, 'free', { minute: 90 });
  await redis.del('gateway:plans');
  await expect.poll(() => redis.hget('gateway:plans', 'free.minute')).toBe('90');
  expect(await historyOf(stack)).toMatchObject([{ author: 'gateway', action: 'restore' }, { action: 'set' }]);
  const back = await stack.admin('POST', '/plans/rollback', {});
  expect([back.status, back.json]).toEqual([200, DEFAULT_PLANS]);
  await patch(stack, 'free', { minute: 91 });
  await redis.del('gateway:plans');
  await expect.poll(async () => (await historyOf(stack))[0]).toMatchObject({ action: 'restore' });
  expect(await ctl(stack, 'plans', 'rollback')).toMatchObject({
    code: 0,
    err: expect.stringMatching(/^ *free\.minute +91 -> 60$/m),
  });
  expect(await plansOf(stack)).toEqual(DEFAULT_PLANS);
});

test('a rollback is refused if there is a later change, or if the fields were overwritten', async () => {
  const stack = await fresh();
  await patch(stack, 'free', { minute: 90 });
  const [seen] = await historyOf(stack);
  await patch(stack, 'pro', { minute: 310 });
  expect((await stack.admin('POST', '/plans/rollback', { id: seen?.id })).json).toEqual(CONFLICT);
  await redis.hset('gateway:plans', 'pro.minute', '320');
  expect((await stack.admin('POST', '/plans/rollback', {})).json).toEqual(CONFLICT);
  expect(await plansOf(stack)).toMatchObject({ free: { minute: 90 }, pro: { minute: 320 } });
});

test('a manual change updates the version, is recorded once, and can be reverted', async () => {
  const stack = await fresh();
  const version = await versionOf(stack);
  await sleep(600);
  await redis.hset('gateway:plans', 'free.minute', '77');
  expect((await patch(stack, 'free', { minute: 61 }, version)).status).toBe(409);
  await expect.poll(() => historyOf(stack)).toHaveLength(1);
  await sleep(600);
  expect(await historyOf(stack)).toMatchObject([
    { author: 'unknown', action: 'by hand', changes: [{ field: 'free.minute', from: '60', to: '77' }] },
  ]);
  expect((await stack.admin('POST', '/plans/rollback', {})).json).toMatchObject({ free: { minute: 60 } });
  // A manual change is also recorded if another change follows at once.
  await redis.hset('gateway:plans', 'pro.minute', '311');
  await patch(stack, 'pro', { minute: 312 });
  expect((await historyOf(stack, '?limit=2')).map(({ action, changes }) => [action, changes])).toEqual([
    ['set', [{ field: 'pro.minute', from: '311', to: '312' }]],
    ['by hand', [{ field: 'pro.minute', from: '300', to: '311' }]],
  ]);
});

test('a rollback does not restore an invalid limit', async () => {
  const stack = await fresh();
  await redis.hset('gateway:plans', 'free.minute', 'nan');
  await patch(stack, 'free', { minute: 70 });
  expect((await stack.admin('POST', '/plans/rollback', {})).json).toEqual({
    ...CONFLICT,
    message: 'free.minute had no valid value before. Set the value that you want.',
  });
});

test('four gateways record a manual change once, and an API change only as an API change', async () => {
  const first = await fresh();
  const others = await Promise.all(Array.from({ length: 3 }, () => startStack(withRedis)));
  await sleep(700);
  await redis.hset('gateway:plans', 'free.minute', '88', 'pro.day', '11');
  await expect.poll(() => redis.xlen('gateway:plans:history')).toBe(1);
  await patch(first, 'free', { minute: 99, author: 'ada' });
  await sleep(1_000);
  const [other] = others as [Stack, ...Stack[]];
  expect((await historyOf(other)).map(({ author }) => author)).toEqual(['ada', 'unknown']);
  const byHand = { actor: 'unknown', action: 'plan.change', via: 'by hand', reason: '' };
  expect((await activityOf(other)).toReversed()).toMatchObject([
    { ...byHand, target: 'free', changes: [{ field: 'free.minute', from: '60', to: '88' }] },
    { ...byHand, target: 'pro', changes: [{ field: 'pro.day', from: '10000', to: '11' }] },
    { actor: 'ada', via: 'api', changes: [{ field: 'free.minute', from: '88', to: '99' }] },
  ]);
  const logged = [first, ...others].flatMap(({ log }) => log.filter(({ msg }) => msg === 'activity'));
  expect(logged).toHaveLength(3);
});

test('the history in Redis keeps the last thousand changes', async () => {
  const stack = await fresh();
  const entry = ['author', 'a', 'reason', '', 'action', 'set', 'changes', '[]', 'version', 'v'];
  for (let at = 0; at < 1_005; at++) redis.xadd('gateway:plans:history', '*', ...entry);
  await patch(stack, 'free', { minute: 91 });
  expect(await redis.xlen('gateway:plans:history')).toBe(1_000);
  expect((await historyOf(stack, '?limit=1000')).length).toBe(1_000);
});

test('the plan history of an embedded gateway survives a restart', async () => {
  const DATA_DIR = await temporaryFolder();
  const first = await startStack({ DATA_DIR });
  await patch(first, 'free', { minute: 91, author: 'ada' });
  await first.stop();
  const second = await startStack({ DATA_DIR });
  expect(await historyOf(second)).toMatchObject([{ author: 'ada' }]);
});

test('all concurrent changes to plans take effect', async () => {
  const stack = await fresh();
  await Promise.all(
    (['free', 'pro', 'business'] as const).map((plan, at) =>
      stack.admin('PATCH', `/plans/${plan}`, { minute: 21 + 10 * at }),
    ),
  );
  expect(await plansOf(stack)).toMatchObject({
    free: { minute: 21 },
    pro: { minute: 31 },
    business: { minute: 41 },
  });
});

test('ctl plans try reads all pages and lists the keys with the most refusals first', async () => {
  const stack = await fresh();
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
    'In the last hour, at least 62 of 1238 requests would have been refused, from at least 2 of 1100 keys on the free plan.',
  );
});

/** The plan table as a file in git. */

test('drift covers every difference from the file, including values left at their default and absent numbers', () => {
  const file = parsePlanFile('free: { minute: 61, mode: enforce }\npro:\n  mode: shadow # to be seen\n');
  expect(driftOf(DEFAULT_PLANS, file)).toMatchObject([
    { field: 'free.minute', from: '60', to: '61' },
    { field: 'pro.mode', from: 'enforce', to: 'shadow' },
  ]);
  const table = { ...DEFAULT_PLANS, free: { ...DEFAULT_PLANS.free, ban_after: 20 } };
  expect(driftOf(table, parsePlanFile(toYaml(DEFAULT_PLANS)))).toMatchObject([
    { field: 'free.ban_after', from: '20', to: undefined },
  ]);
  expect(driftOf(DEFAULT_PLANS, parsePlanFile('free: { ban_after: 7, ban_grace_seconds: 0 }'))).toMatchObject([
    { field: 'free.ban_after', from: undefined, to: '7' },
    { field: 'free.ban_grace_seconds', from: '30', to: '0' },
  ]);
});

test.for([
  ['', 'It contains no plans'],
  ['3', 'It contains no plans'],
  ['[]', 'It contains no plans'],
  ['free: 3', 'free has no fields.'],
  ['gold: { minute: 5 }', 'gold is not a plan; the plans are free, pro, business, enterprise.'],
  ['free: { minutes: 5 }', 'free has no field minutes; its fields are minute, day'],
  ['enterprise: { minute: 5 }', 'enterprise has no field minute; its fields are ban_after'],
  ['free: { minute: "60" }', 'free.minute must be a whole number from 1 to 1000000000.'],
  ['free: { minute: 0 }', 'free.minute must be a whole number'],
  ['free: { minute: 1.5 }', 'free.minute must be a whole number'],
  ['free: { minute: }', 'free.minute must be a whole number'],
  ['free: { ban_after: 0 }', 'free.ban_after must be a whole number from 1 to 1000000000, or null for 5 × minute.'],
  ['free: { ban_within_seconds: 60 }', 'free has no field ban_within_seconds; its fields are minute, day, ban_after'],
  ['free: { minute: [60] }', 'free.minute must be a whole number'],
  ['free: { mode: off }', 'free.mode must be one of enforce, shadow.'],
  ['free: { minute: 5, minute: 6 }', 'Map keys must be unique'],
  ['free:\n  minute: 5\n minute: 6', 'at line 3'],
  [`free: { minute: ${'6'.repeat(70_000)} }`, 'It has more than 65536 characters.'],
  ['free: { minute: 0, day: 0 }\ngold: { }', 'free.minute must be a whole number from 1 to 1000000000.\nfree.day must'],
] as const)('the plan file %j is refused with a message', ([content, message]) => {
  expect(() => parsePlanFile(content)).toThrow(message);
});

test('a plan file is compared, applied in one step, and rolled back', async () => {
  const stack = await startStack();
  const file = join(await temporaryFolder(), 'plans.yaml');
  const exported = await ctl(stack, 'plans', 'export');
  expect(exported).toMatchObject({ code: 0, err: '' });
  await writeFile(file, exported.out);
  const same = { code: 0, out: 'The plans are the same as in the file.\n', err: '' };
  expect(await ctl(stack, 'plans', 'diff', '-f', file)).toEqual(same);

  await writeFile(file, exported.out.replace('minute: 60', 'minute: 75').replace('day: 10000', 'day: 12000'));
  const drift = 'free.minute  60 -> 75\npro.day      10000 -> 12000\n';
  expect(await ctl(stack, 'plans', 'diff', '-f', file)).toEqual({ code: 4, out: drift, err: '' });
  expect(await minuteOf(stack, 'free')).toBe(60);
  const applied = await ctl(stack, 'plans', 'apply', '-f', file, '--author', 'ada', '--reason', 'as in git');
  expect(applied).toMatchObject({ code: 0, err: expect.stringContaining(drift) });
  expect(await historyOf(stack)).toMatchObject([
    { author: 'ada', reason: 'as in git', changes: [{ field: 'free.minute' }, { field: 'pro.day' }] },
  ]);
  expect(await ctl(stack, 'plans', 'apply', '-f', file)).toMatchObject(same);
  expect(await historyOf(stack)).toHaveLength(1);
  expect((await ctl(stack, 'plans', 'rollback')).code).toBe(0);
  expect(await minuteOf(stack, 'free')).toBe(60);
});

test('an invalid value in Redis differs from a plan file, which replaces it', async () => {
  const stack = await fresh();
  const file = 'free: { minute: 60, day: 1000 }';
  await redis.hset('gateway:plans', 'free.minute', 'abc');
  const diff = await ctlReading(stack, file, 'plans', 'diff', '-f', '-');
  expect([diff.code, diff.out]).toEqual([4, 'free.minute  abc -> 60\n']);
  const applied = await ctlReading(stack, file, 'plans', 'apply', '-f', '-', '--yes');
  expect([applied.code, await redis.hget('gateway:plans', 'free.minute')]).toEqual([0, '60']);
});

test('plans missing from a plan file, or from standard input, are reported and stay unchanged', async () => {
  const stack = await startStack();
  const { code, err } = await ctlReading(stack, '{"free": {"minute": 66}}', 'plans', 'apply', '-f', '-', '--json');
  expect([code, await minuteOf(stack, 'free'), await minuteOf(stack, 'pro')]).toEqual([0, 66, 300]);
  expect(err).toContain('Note: the file does not contain free.day, free.ban_after');
  expect(err).toContain('pro, business, enterprise.');
  const diff = await ctlReading(stack, 'free: { minute: 60 }', '--json', 'plans', 'diff', '-f', '-');
  expect([diff.code, JSON.parse(diff.out)]).toEqual([4, { drift: [{ field: 'free.minute', from: '66', to: '60' }] }]);
});

test('an invalid plan file is refused and changes nothing', async () => {
  const stack = await startStack();
  const bad = await ctlReading(stack, 'free: { minute: 61 }\ngold: { minute: 5 }', 'plans', 'apply', '-f', '-');
  expect(bad).toMatchObject({ code: 2, out: '', err: expect.stringContaining('gold is not a plan') });
  expect(await minuteOf(stack, 'free')).toBe(60);
  const missing = await ctl(stack, '--json', 'plans', 'diff', '-f', '/no/such/file');
  expect([missing.code, JSON.parse(missing.err)]).toEqual([
    2,
    { code: 'usage', message: expect.stringContaining('/no/such/file cannot be used:\n  ENOENT') },
  ]);
});
