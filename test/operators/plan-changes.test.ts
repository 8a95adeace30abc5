import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { DEFAULT_PLANS } from '../../gateway/limiter/plans.ts';
import { activityOf } from '../support/activity.ts';
import { type Answer, post } from '../support/http.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { bothStacks, type Stack, startStack, temporaryFolder } from '../support/stack.ts';

const { url: redisUrl, redis } = await emptyDatabase();
const withRedis = { REDIS_URL: redisUrl, REDIS_TIMEOUT_MS: '5000' };

interface Entry {
  readonly id: string;
  readonly at: string;
  readonly author: string;
  readonly reason: string;
  readonly action: string;
  readonly changes: readonly { field: string; from?: string; to?: string }[];
}

/** A stack with the initial plans and without a history. */
async function freshStack(environment: Record<string, string>): Promise<Stack> {
  await redis.flushdb();
  return await startStack(environment);
}

const historyOf = async (stack: Stack, query = ''): Promise<Entry[]> =>
  ((await stack.admin('GET', `/plans/history${query}`)).json as { history: Entry[] }).history;

/** Changes a plan, with or without a version of the table. */
function patch(stack: Stack, plan: string, body: unknown, version?: string): Promise<Answer> {
  const headers = version === undefined ? {} : { 'if-match': version };
  return post(`${stack.adminUrl}/plans/${plan}`, body, { method: 'PATCH', key: 'token-of-the-tests', headers });
}

const versionOf = async (stack: Stack) => (await stack.admin('GET', '/plans')).headers.etag as string;

const CONFLICT = { code: 'conflict', message: expect.any(String), status: 409 };

describe.for(bothStacks(redisUrl))('with %s', ([, environment]) => {
  test('the second of two people who edit the same version gets a conflict and changes nothing', async () => {
    const stack = await freshStack(environment);
    const version = await versionOf(stack);
    const first = await patch(stack, 'free', { minute: 61 }, version);
    expect([first.status, first.headers.etag]).toEqual([200, await versionOf(stack)]);
    const second = await patch(stack, 'pro', { minute: 301 }, version);
    expect([second.status, second.json]).toEqual([409, CONFLICT]);
    expect((await stack.admin('GET', '/plans')).json).toMatchObject({ free: { minute: 61 }, pro: { minute: 300 } });
    expect((await patch(stack, 'pro', { minute: 301 }, await versionOf(stack))).status).toBe(200);
  });

  test('exactly one of many concurrent changes to one version is made', async () => {
    const stack = await freshStack(environment);
    const version = await versionOf(stack);
    const answers = await Promise.all(
      Array.from({ length: 12 }, (_, at) => patch(stack, 'free', { minute: 100 + at }, version)),
    );
    expect(answers.map(({ status }) => status).sort()).toEqual([200, ...Array(11).fill(409)]);
    const winner = answers.findIndex(({ status }) => status === 200);
    expect((await stack.admin('GET', '/plans')).json).toMatchObject({ free: { minute: 100 + winner } });
    expect(await historyOf(stack)).toHaveLength(1);
  });

  test('the history lists who changed what, when and why, newest first, and no changes without effect', async () => {
    const stack = await freshStack(environment);
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

  test('a rollback reverts the whole last change, and its own id reverts the rollback', async () => {
    const stack = await freshStack(environment);
    expect((await stack.admin('POST', '/plans/rollback', {})).status).toBe(404);
    await patch(stack, 'free', { minute: 90, day: 2_000 });
    const back = await stack.admin('POST', '/plans/rollback', { author: 'ada', reason: 'too much' });
    expect([back.status, back.json]).toEqual([200, DEFAULT_PLANS]);
    expect((await historyOf(stack))[0]).toMatchObject({ author: 'ada', action: 'rollback', reason: 'too much' });
    const [{ id } = { id: '' }, first] = await historyOf(stack);
    for (const repetition of [{}, { id: first?.id }]) {
      const repeated = await stack.admin('POST', '/plans/rollback', repetition);
      expect([repeated.status, repeated.json]).toEqual([200, DEFAULT_PLANS]);
      expect(repeated.headers.warning).toContain(id);
    }
    expect(await historyOf(stack)).toHaveLength(2);
    const again = await stack.admin('POST', '/plans/rollback', { id });
    expect(again.json).toMatchObject({ free: { minute: 90, day: 2_000 } });
  });

  // The embedded database is open in one process only, so nobody edits it beside a gateway.
  if ('REDIS_URL' in environment)
    test('a rollback of a change that the sender did not see, or of overwritten fields, is refused', async () => {
      const stack = await freshStack(withRedis);
      await patch(stack, 'free', { minute: 90 });
      const [seen] = await historyOf(stack);
      await patch(stack, 'pro', { minute: 310 });
      expect((await stack.admin('POST', '/plans/rollback', { id: seen?.id })).json).toEqual(CONFLICT);
      await redis.hset('gateway:plans', 'pro.minute', '320');
      expect((await stack.admin('POST', '/plans/rollback', {})).json).toEqual(CONFLICT);
      expect((await stack.admin('GET', '/plans')).json).toMatchObject({ free: { minute: 90 }, pro: { minute: 320 } });
    });

  // The embedded database is open in one process only, so nobody edits it beside a gateway.
  if ('REDIS_URL' in environment)
    test('a change by hand changes the version, is recorded once, and can be reverted', async () => {
      const stack = await freshStack(withRedis);
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
      // Nor is one lost that a change follows at once.
      await redis.hset('gateway:plans', 'pro.minute', '311');
      await patch(stack, 'pro', { minute: 312 });
      expect((await historyOf(stack, '?limit=2')).map(({ action, changes }) => [action, changes])).toEqual([
        ['set', [{ field: 'pro.minute', from: '311', to: '312' }]],
        ['by hand', [{ field: 'pro.minute', from: '300', to: '311' }]],
      ]);
    });

  // The embedded database is open in one process only, so nobody edits it beside a gateway.
  if ('REDIS_URL' in environment)
    test('an invalid limit cannot be restored', async () => {
      const stack = await freshStack(withRedis);
      await redis.hset('gateway:plans', 'free.minute', 'nan');
      await patch(stack, 'free', { minute: 70 });
      expect((await stack.admin('POST', '/plans/rollback', {})).json).toEqual({
        ...CONFLICT,
        message: 'free.minute had no valid value before. Set the one that you want.',
      });
    });
});

test('four gateways record and log a change by hand once, and a change through one of them not again', async () => {
  await redis.flushdb();
  const stacks = await Promise.all(Array.from({ length: 4 }, () => startStack(withRedis)));
  await sleep(700);
  await redis.hset('gateway:plans', 'free.minute', '88');
  await expect.poll(() => redis.xlen('gateway:plans:history')).toBe(1);
  await patch(stacks[0] as Stack, 'free', { minute: 99, author: 'ada' });
  await sleep(1_000);
  expect((await historyOf(stacks[1] as Stack)).map(({ author }) => author)).toEqual(['ada', 'unknown']);
  expect((await activityOf(stacks[1] as Stack)).map(({ actor }) => actor)).toEqual(['ada', 'unknown']);
});

test('the history in Redis has the last thousand changes', async () => {
  const stack = await freshStack(withRedis);
  const entry = ['author', 'a', 'reason', '', 'action', 'set', 'changes', '[]', 'version', 'v'];
  for (let at = 0; at < 1_005; at++) redis.xadd('gateway:plans:history', '*', ...entry);
  await patch(stack, 'free', { minute: 91 });
  expect(await redis.xlen('gateway:plans:history')).toBe(1_000);
  expect((await historyOf(stack, '?limit=1000')).length).toBe(1_000);
});

test('the history of the embedded limiter survives a restart', async () => {
  const DATA_DIR = await temporaryFolder();
  const first = await startStack({ DATA_DIR });
  await patch(first, 'free', { minute: 91, author: 'ada' });
  await first.stop();
  const second = await startStack({ DATA_DIR });
  expect(await historyOf(second)).toMatchObject([{ author: 'ada' }]);
});

test('concurrent changes of plans are all made', async () => {
  const stack = await freshStack(withRedis);
  await Promise.all(
    (['free', 'pro', 'business'] as const).map((plan, at) =>
      stack.admin('PATCH', `/plans/${plan}`, { minute: 21 + 10 * at }),
    ),
  );
  expect((await stack.admin('GET', '/plans')).json).toMatchObject({
    free: { minute: 21 },
    pro: { minute: 31 },
    business: { minute: 41 },
  });
});
