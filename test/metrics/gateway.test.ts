import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { credentialOf } from '../../gateway/limiter/credential.ts';
import { DEFAULT_PLANS } from '../../gateway/limiter/plans.ts';
import type { TrafficAnswer } from '../../gateway/operators/api/answers.ts';
import { CallCounts } from '../../gateway/stores/redis/calls.ts';
import { RedisLimiter } from '../../gateway/stores/redis/limiter.ts';
import { idOf } from '../support/api-key.ts';
import { post, send, sendBytes } from '../support/http.ts';
import { eventuallyScraped, type Scrape, scrape } from '../support/metrics.ts';
import { connectedRedis, emptyDatabase, ownRedis } from '../support/redis-database.ts';
import { type Stack, startStack } from '../support/stack.ts';

const { url: REDIS_URL, redis } = await emptyDatabase();
const WITH_REDIS = { REDIS_URL, REDIS_TIMEOUT_MS: '5000' };
const UNKNOWN_KEY = 'as_0000000000000_nobody-has-this-key';

const WITHOUT = 'gateway_requests_without_decision_total';

const decisions = (stack: Stack, labels: Record<string, string>) =>
  eventuallyScraped(stack.adminUrl, (metrics) => metrics.sum('gateway_decisions_total', labels));

/** All counts above 0, each after the values of its labels. */
const shown = (metrics: Scrape, name: string) =>
  metrics
    .series(name)
    .filter(({ value }) => value > 0)
    .map(({ labels, value }) => {
      const { outcome, reason, operation, status, plan, mode } = labels;
      return [outcome, reason, operation, status, plan, mode, value].filter((word) => word !== undefined).join(' ');
    })
    .sort();

test('requests are counted by operation, status and plan; requests for unknown paths are counted together', async () => {
  const stack = await startStack();
  const key = await stack.issueKey({ plan: 'pro' });
  const ask = (path: string, bearer: string | undefined = key) => send(stack.gateway + path, { key: bearer });
  await ask('/v1/pets');
  await ask('/v1/pets/17');
  await post(`${stack.gateway}/v1/pets`, { name: 'Rex', categoryId: 1 }, { key });
  await ask('/docs/');
  for (let at = 0; at < 20; at++) await ask(`/v1/made-up-${at}`);
  await ask('/v1/pets', UNKNOWN_KEY);
  await sendBytes(stack.gateway, 'GARBAGE\r\n\r\n');
  await eventuallyScraped(stack.adminUrl, (metrics) => shown(metrics, 'gateway_requests_total')).toEqual([
    'createPet 201 pro 1',
    'getPet 404 pro 1',
    'listPets 200 pro 1',
    'none 400 none 1',
    'none 401 none 1',
    'none 404 pro 20',
    'reference 200 none 1',
  ]);
  const metrics = await scrape(stack.adminUrl);
  expect(metrics.sum('gateway_request_duration_seconds_count')).toBe(26);
  expect(metrics.sum('gateway_request_duration_seconds_count', { operation: 'none' })).toBe(22);
  expect(metrics.sum('gateway_decision_duration_seconds_count')).toBe(23);
  expect(metrics.sum('gateway_request_duration_seconds_sum')).toBeGreaterThan(
    metrics.sum('gateway_decision_duration_seconds_sum') as number,
  );
});

test('two readers of the metrics see the same pause of the event loop', async () => {
  const stack = await startStack();
  // A pause is measured from the last tick of the library's timer, which comes every 50 ms.
  await sleep(200);
  const begunAt = performance.now();
  while (performance.now() - begunAt < 400);
  const pauseSeen = async () => (await scrape(stack.adminUrl)).sum('nodejs_eventloop_lag_max_seconds');
  await expect.poll(pauseSeen).toBeGreaterThan(0.3);
  expect(await pauseSeen()).toBeGreaterThan(0.3);
});

test('decisions are counted by outcome and plan, and refusals by limit', async () => {
  const stack = await startStack(WITH_REDIS);
  await stack.admin('PATCH', '/plans/free', { ban_after: 3, ban_grace_seconds: 0, ban_seconds: 300 });
  const times = async (count: number, key: string) => {
    for (let at = 0; at < count; at++) await send(`${stack.gateway}/v1/pets`, { key });
  };
  await times(3, await stack.issueKey({ plan: 'enterprise', minute: 1, day: 1_000_000 }));
  await times(3, await stack.issueKey({ plan: 'business', minute: 1_000_000, day: 2 }));
  // Three refusals are kept as strikes, and the next one causes a ban.
  await times(6, await stack.issueKey({ plan: 'free', minute: 1, day: 1_000_000 }));
  const gone = await stack.issueKey();
  await stack.admin('DELETE', `/keys/${idOf(gone)}`);
  await times(1, gone);
  const disabled = await stack.issueKey();
  await stack.admin('PATCH', `/keys/${idOf(disabled)}`, { disabled: true });
  await times(1, disabled);
  await times(1, UNKNOWN_KEY);

  await eventuallyScraped(stack.adminUrl, (metrics) => shown(metrics, 'gateway_decisions_total')).toEqual([
    'admitted business shared 2',
    'admitted enterprise shared 1',
    'admitted free shared 1',
    'banned free shared 2',
    'disabled none shared 1',
    'refused_day business shared 1',
    'refused_minute enterprise shared 2',
    'refused_minute free shared 3',
    'unknown none shared 1',
  ]);
  const metrics = await scrape(stack.adminUrl);
  expect(metrics.sum('gateway_bans_active')).toBe(1);
  // Redis made all decisions except one on a cached ban.
  expect(metrics.sum('gateway_redis_batch_size_sum')).toBe(13);
  expect(metrics.sum('gateway_redis_call_duration_seconds_count')).toBe(metrics.sum('gateway_redis_batch_size_count'));
  await redis.flushdb();
});

test('a request without a decision is counted by reason, and each request is counted once', async () => {
  const stack = await startStack(WITH_REDIS);
  const key = await stack.issueKey();
  const unusable = await stack.issueKey();
  await redis.hset(`gateway:key:{${idOf(unusable)}}`, { plan: 'no-plan', ok_plan: '' });
  const ask = (path: string, bearer?: string) => send(stack.gateway + path, { key: bearer });
  await ask('/v1/pets', key);
  await ask('/docs/');
  await ask('/v1/pets');
  await ask('/v1/pets', UNKNOWN_KEY);
  await ask('/v1//pets', key);
  await sendBytes(stack.gateway, 'GARBAGE\r\n\r\n');
  await sendBytes(stack.gateway, 'GET /v1/pets HTTP/1.2\r\n\r\n');
  await ask('/v1/pets', unusable);
  await eventuallyScraped(stack.adminUrl, (metrics) => metrics.sum('gateway_requests_total')).toBe(8);
  const metrics = await scrape(stack.adminUrl);
  expect(shown(metrics, 'gateway_decisions_total')).toEqual(['admitted free shared 1']);
  expect(shown(metrics, WITHOUT)).toEqual(['invalid 3', 'malformed 2', 'reference 1', 'unusable 1']);
  await redis.flushdb();
});

test('requests in one event-loop turn are counted as one call, in cumulative buckets', async () => {
  const connection = await connectedRedis(REDIS_URL);
  const calls = new CallCounts();
  const limiter = new RedisLimiter(connection, { table: DEFAULT_PLANS }, { calls });
  const credential = credentialOf('nobodys-key0', '-');
  for (const length of [8, 10]) await Promise.all(Array.from({ length }, () => limiter.decide(credential)));
  const [sizes] = calls.families();
  const parts = new Map(sizes?.values.map(({ metricName, labels, value }) => [`${metricName} ${labels.le}`, value]));
  const of = (part: string) => parts.get(`gateway_redis_batch_size_${part}`);
  const buckets = ['4', '8', '16', '+Inf'].map((le) => of(`bucket ${le}`));
  expect([of('sum undefined'), of('count undefined'), ...buckets]).toEqual([18, 2, 0, 1, 2, 2]);
});

test('a ban is counted while it is in force, even with the embedded limiter', async () => {
  const stack = await startStack();
  const key = await stack.issueKey();
  await stack.admin('PUT', `/keys/${idOf(key)}/ban`, { seconds: 2 });
  expect((await send(`${stack.gateway}/v1/pets`, { key })).status).toBe(429);
  await eventuallyScraped(stack.adminUrl, (metrics) => metrics.sum('gateway_bans_active')).toBe(1);
  await eventuallyScraped(stack.adminUrl, (metrics) => metrics.sum('gateway_bans_active')).toBe(0);
});

test('while Redis is down, decisions are counted as local, and requests with unknown keys get no decision', async () => {
  const server = await ownRedis();
  const stack = await startStack({ REDIS_URL: server.url, REDIS_TIMEOUT_MS: '5000' });
  const [seen, unseen] = [await stack.issueKey({ plan: 'pro' }), await stack.issueKey({ plan: 'pro' })];
  const ask = async (key: string) => (await send(`${stack.gateway}/v1/pets`, { key })).status;
  await expect.poll(() => ask(seen)).toBe(200);
  await decisions(stack, { outcome: 'admitted', mode: 'shared' }).toBeGreaterThan(0);
  expect((await scrape(stack.adminUrl)).sum('gateway_plans_readable')).toBe(1);
  const traffic = async () => (await stack.admin('GET', '/traffic')).json as TrafficAnswer;

  await server.stop();
  await expect
    .poll(() => ask(seen).then(async () => (await scrape(stack.adminUrl)).sum('gateway_redis_nodes_away')))
    .toBe(1);
  expect([await ask(seen), await ask(unseen)]).toEqual([200, 503]);
  await decisions(stack, { outcome: 'admitted', plan: 'pro', mode: 'local' }).toBeGreaterThan(0);
  await eventuallyScraped(stack.adminUrl, (metrics) => metrics.sum(WITHOUT, { reason: 'unavailable' })).toBe(1);
  expect((await traffic()).mode).toBe('local');
  await expect.poll(async () => (await traffic()).totals.local).toBeGreaterThan(0);
  await eventuallyScraped(stack.adminUrl, (metrics) => metrics.sum('gateway_plans_readable')).toBe(0);

  await server.restart();
  await eventuallyScraped(stack.adminUrl, (metrics) => metrics.sum('gateway_redis_nodes_away')).toBe(0);
  await eventuallyScraped(stack.adminUrl, (metrics) => metrics.sum('gateway_plans_readable')).toBe(1);
  expect((await traffic()).mode).toBe('shared');
});

test('metrics for alerts show rejected plan values and the time of a change', async () => {
  const stack = await startStack(WITH_REDIS);
  const before = (await scrape(stack.adminUrl)).sum('gateway_plans_changed_timestamp_seconds') as number;
  expect((await scrape(stack.adminUrl)).sum('gateway_plans_rejected_values')).toBe(0);
  await redis.hset('gateway:plans', { 'free.minute': 'sixty', 'free.minutes': '60', 'pro.minute': '301' });
  await eventuallyScraped(stack.adminUrl, (metrics) => metrics.sum('gateway_plans_rejected_values')).toBe(2);
  const changed = (await scrape(stack.adminUrl)).sum('gateway_plans_changed_timestamp_seconds') as number;
  expect(changed).toBeGreaterThan(before);
  expect(changed).toBeLessThanOrEqual(Date.now() / 1_000);
  await redis.hdel('gateway:plans', 'free.minutes');
  await redis.hset('gateway:plans', 'free.minute', '60');
  await eventuallyScraped(stack.adminUrl, (metrics) => metrics.sum('gateway_plans_rejected_values')).toBe(0);
});

test('no label contains a key, an address or a path from a client', async () => {
  const stack = await startStack(WITH_REDIS);
  const key = await stack.issueKey({ name: 'canary-name' });
  for (const path of ['/v1/pets', '/v1/canary-path', '/v1/pets/4711471147'])
    await send(stack.gateway + path, { key, from: '127.0.0.9', headers: { 'x-request-id': 'canary-id' } });
  await decisions(stack, { outcome: 'admitted' }).toBe(3);
  const { samples } = await scrape(stack.adminUrl);
  const values = samples.flatMap(({ labels }) => Object.values(labels)).join('\n');
  for (const canary of [idOf(key), '127.0.0.9', 'canary', '4711471147']) expect(values).not.toContain(canary);
  // Ensures that labels were found at all.
  expect(values).toContain('admitted');
  await redis.flushdb();
});
