import { describe, expect, test } from 'vitest';
import type { TrafficAnswer } from '../../gateway/operators/api/answers.ts';
import { idOf } from '../support/api-key.ts';
import { post, send } from '../support/http.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { bothStacks, type Stack, startStack } from '../support/stack.ts';

const { url: REDIS_URL, redis } = await emptyDatabase();

const NOTHING = { admitted: 0, refused: 0, banned: 0, forbidden: 0, unauthorized: 0, shed: 0, undecided: 0, local: 0 };

const trafficOf = async (stack: Stack) => (await stack.admin('GET', '/traffic')).json as TrafficAnswer;

const eventually = (stack: Stack, read: (traffic: TrafficAnswer) => unknown) =>
  expect.poll(async () => read(await trafficOf(stack)));

describe.for(bothStacks(REDIS_URL))('with %s', async ([, environment]) => {
  test('GET /traffic returns the totals since the start by outcome and plan, and the state of the plans', async () => {
    const begun = Date.now();
    const stack = await startStack(environment);
    const fresh = await trafficOf(stack);
    expect(fresh).toMatchObject({ mode: 'shared', totals: NOTHING, plans: {} });
    expect(Date.parse(fresh.since)).toBeGreaterThanOrEqual(begun);
    const { headers } = await stack.admin('GET', '/plans');
    expect(`"${fresh.planTable.version}"`).toBe(headers.etag);

    const pro = await stack.issueKey({ plan: 'pro' });
    const scarce = await stack.issueKey({ plan: 'free', minute: 1_000, day: 1 });
    for (const key of [pro, pro, pro, scarce, scarce, `${scarce}x`, undefined])
      await send(`${stack.gateway}/v1/pets`, { key });
    const { json } = await stack.admin('POST', `/keys/${idOf(pro)}/secrets`, { name: 'reader', scope: ['read'] });
    await post(`${stack.gateway}/v1/pets`, { name: 'Rex', categoryId: 1 }, { key: (json as { key: string }).key });
    await stack.admin('PUT', `/keys/${idOf(pro)}/ban`, { seconds: 60 });
    await send(`${stack.gateway}/v1/pets`, { key: pro });
    await eventually(stack, ({ totals, plans }) => ({ totals, plans })).toEqual({
      totals: { ...NOTHING, admitted: 4, refused: 1, banned: 1, forbidden: 1, unauthorized: 2 },
      plans: {
        pro: { admitted: 3, banned: 1, forbidden: 1 },
        free: { admitted: 1, refused_day: 1 },
        none: { malformed: 2 },
      },
    });
    await stack.admin('PATCH', '/plans/free', { minute: 61 });
    const changed = (await trafficOf(stack)).planTable;
    expect(changed.version).not.toBe(fresh.planTable.version);
    expect(Date.parse(changed.changedAt)).toBeGreaterThanOrEqual(Date.parse(fresh.planTable.changedAt));
  });
});

test('GET /traffic returns rejected plan values, however many and however long they are', async () => {
  await redis.flushdb();
  const stack = await startStack({ REDIS_URL, REDIS_TIMEOUT_MS: '5000' });
  await redis.hset('gateway:plans', 'free.minute', 'x'.repeat(10_000));
  await eventually(stack, ({ planTable }) => planTable.rejected).toEqual([
    { field: 'free.minute', value: 'x'.repeat(100), kept: 60 },
  ]);
  const unknown = Array.from({ length: 500 }, (_, at) => [`made.up.${at}.${'y'.repeat(200)}`, '1']);
  await redis.hset('gateway:plans', Object.fromEntries(unknown));
  await eventually(stack, ({ planTable }) => planTable.rejectedValues).toBe(501);
  const { rejected } = (await trafficOf(stack)).planTable;
  expect(rejected).toHaveLength(100);
  expect(Math.max(...rejected.map(({ field }) => field.length))).toBe(100);
});
