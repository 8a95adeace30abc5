import { createHash, createHmac } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { createApiKey } from '../../gateway/limiter/credential.ts';
import type { Decision } from '../../gateway/limiter/limiter.ts';
import { DEFAULT_PLANS } from '../../gateway/limiter/plans.ts';
import { Keys } from '../../gateway/stores/keys.ts';
import { RedisLimiter } from '../../gateway/stores/redis/limiter.ts';
import { RedisStorage } from '../../gateway/stores/redis/storage.ts';
import type { Storage } from '../../gateway/stores/storage.ts';
import { happeningOf } from '../../gateway/webhooks/message.ts';
import { Webhooks } from '../../gateway/webhooks/webhooks.ts';
import { idOf } from '../support/api-key.ts';
import { cleanUp } from '../support/clean-up.ts';
import { startFaultProxy } from '../support/fault-proxy.ts';
import { send } from '../support/http.ts';
import { readableLog } from '../support/log.ts';
import { eventuallyScraped, scrape } from '../support/metrics.ts';
import { freePort } from '../support/port.ts';
import { connectedRedis, emptyDatabase } from '../support/redis-database.ts';
import { secretWith } from '../support/secrets.ts';
import { bothStacks, type Stack, startStack } from '../support/stack.ts';
import { fact, TIMED } from '../support/timed.ts';
import { type Delivery, WEBHOOK_SECRET, webhookReceiver } from '../support/webhook-receiver.ts';
import { eventually, list, replaced, startWorkers } from '../support/workers.ts';

/**
 * Tests which gateway sends which events, and that receivers delay nothing. `webhook-retries.test.ts` tests
 * deliveries.
 */

const { url: REDIS_URL, redis } = await emptyDatabase();
const WITH_REDIS = { REDIS_URL, REDIS_TIMEOUT_MS: '5000' };

const start = (url: string, environment: Record<string, string> = {}) =>
  startStack({ ...environment, WEBHOOK_URL: url, WEBHOOK_SECRET });

const ask = async (stack: Stack, key: string): Promise<number> =>
  (await send(`${stack.gateway}/v1/pets`, { key })).status;

/** Computes the signature as a receiver without a library does. */
function signatureOf({ headers, body }: Delivery): string {
  const signed = `${headers['webhook-id']}.${headers['webhook-timestamp']}.${body}`;
  const secret = Buffer.from(WEBHOOK_SECRET.slice('whsec_'.length), 'base64');
  return `v1,${createHmac('sha256', secret).update(signed).digest('base64')}`;
}

/** Uses up the day limit of a key, which is five requests, and continues until the key is banned. */
async function useUp(stack: Stack, key: string): Promise<void> {
  for (let sent = 0; sent < 10; sent++) await ask(stack, key);
}

const ALL = ['key.banned', 'key.day_100', 'key.day_80'];
const delivered = (stack: Stack) =>
  eventuallyScraped(stack.adminUrl, (metrics) =>
    metrics.sum('gateway_webhook_deliveries_total', { result: 'delivered' }),
  );

describe.for(bothStacks(REDIS_URL))('with %s', ([, environment]) => {
  test('80 % of the day limit, 100 % of it, and a ban each cause one signed event that contains no secret', async () => {
    const receiver = await webhookReceiver();
    const stack = await start(receiver.url, environment);
    await stack.admin('PATCH', '/plans/free', { ban_after: 2, ban_grace_seconds: 0, ban_seconds: 300 });
    const key = await stack.issueKey({ name: 'acme', day: 5 });
    const keyId = idOf(key);
    for (let sent = 0; sent < 3; sent++) expect(await ask(stack, key)).toBe(200);
    expect(receiver.deliveries).toEqual([]);
    expect(await ask(stack, key)).toBe(200);
    await expect.poll(receiver.types).toEqual(['key.day_80']);
    expect(await ask(stack, key)).toBe(200);
    await expect.poll(receiver.types).toEqual(['key.day_100', 'key.day_80']);
    await useUp(stack, key);
    await expect.poll(receiver.types).toEqual(ALL);
    await delivered(stack).toBe(3);

    const [near, full, banned] = receiver.deliveries as [Delivery, Delivery, Delivery];
    const about = { keyId, name: 'acme', plan: 'free', limit: 5 };
    expect(near.event).toEqual({ type: 'key.day_80', timestamp: expect.any(String), data: { ...about, used: 4 } });
    expect(full.event.data).toEqual({ ...about, used: 5 });
    expect(banned.event.data).toEqual({ ...about, used: 5, bannedUntil: expect.any(String) });
    const { bannedUntil } = (await stack.admin('GET', `/keys/${keyId}`)).json as { bannedUntil: string };
    expect(banned.event.data.bannedUntil).toBe(bannedUntil);
    expect(Math.abs(Date.now() - Date.parse(near.event.timestamp))).toBeLessThan(60_000);

    const secrets = [key.slice(16), createHash('sha256').update(key).digest('hex'), WEBHOOK_SECRET];
    for (const delivery of receiver.deliveries) {
      expect(delivery.headers['webhook-signature']).toBe(signatureOf(delivery));
      expect(delivery.headers['content-type']).toBe('application/json');
      for (const secret of secrets) expect(JSON.stringify(delivery)).not.toContain(secret);
    }
    expect(receiver.deliveries.map(({ headers }) => headers['webhook-id'])).toEqual(
      receiver.deliveries.map(({ event }) => `msg_${keyId}_${event.type.slice(4)}_${event.timestamp.slice(0, 10)}`),
    );
  });
});

describe.for(bothStacks(REDIS_URL))('with %s, a raised limit', ([, environment]) => {
  test('does not count as usage: the 80 % event and the list of keys depend only on the requests used', async () => {
    const receiver = await webhookReceiver();
    const stack = await start(receiver.url, environment);
    const use = async (key: string, times: number) => {
      for (let sent = 0; sent < times; sent++) expect(await ask(stack, key)).toBe(200);
    };
    const bucketOf = async (key: string) => {
      const { json } = await stack.admin('GET', `/keys/${idOf(key)}`);
      const { limit, remaining, used } = (json as { buckets: Record<string, Record<string, number>> }).buckets
        .day as Record<string, number>;
      return { limit, remaining, used };
    };
    const issue = (day?: number) => stack.issueKey({ name: 'of a raise', ...(day && { day }) });
    const [upgraded, ofPlan, lowered] = [await issue(), await issue(), await issue()];
    const [unchanged, raised] = [await issue(10), await issue(5)];
    for (const key of [upgraded, ofPlan, lowered]) await use(key, 2);
    await stack.admin('PATCH', `/keys/${idOf(upgraded)}`, { plan: 'pro' });
    for (const day of [5, null]) {
      await stack.admin('PATCH', `/keys/${idOf(lowered)}`, { day });
      await use(lowered, 1);
    }
    await use(upgraded, 2);
    expect(await bucketOf(upgraded)).toEqual({ limit: 10_000, remaining: 996, used: 4 });
    expect(await bucketOf(lowered)).toEqual({ limit: 1_000, remaining: 3, used: 4 });
    await stack.admin('PATCH', '/plans/free', { day: 7_000 });
    await expect.poll(async () => (await bucketOf(ofPlan)).limit).toBe(7_000);
    await use(ofPlan, 1);
    expect(await bucketOf(ofPlan)).toEqual({ limit: 7_000, remaining: 997, used: 3 });

    await use(raised, 2);
    await stack.admin('PATCH', `/keys/${idOf(raised)}`, { day: 20 });
    await use(raised, 3);
    await use(unchanged, 8);
    await expect.poll(receiver.types).toEqual(['key.day_100', 'key.day_80']);
    const [full, near] = receiver.deliveries.toSorted((a, b) => (a.event.type < b.event.type ? -1 : 1)) as [
      Delivery,
      Delivery,
    ];
    expect(near.event.data).toMatchObject({ keyId: idOf(unchanged), limit: 10, used: 8 });
    // The key has no tokens left, although it has used fewer requests than its new limit.
    expect(full.event.data).toMatchObject({ keyId: idOf(raised), limit: 20, used: 5 });
    const listed = (await stack.admin('GET', '/keys?near=80&name=raise')).json as { keys: { id: string }[] };
    expect(listed.keys.map(({ id }) => id)).toEqual([idOf(unchanged)]);
  });
});

test('each event is sent by only one of several gateways, even after a restart', async () => {
  await redis.flushdb();
  const receiver = await webhookReceiver();
  const stacks = await Promise.all(Array.from({ length: 3 }, () => start(receiver.url, WITH_REDIS)));
  const [first] = stacks as [Stack, ...Stack[]];
  await first.admin('PATCH', '/plans/free', { ban_after: 2, ban_grace_seconds: 0, ban_seconds: 300 });
  const keys = await Promise.all(Array.from({ length: 5 }, () => first.issueKey({ day: 5 })));
  await Promise.all(stacks.flatMap((stack) => keys.map((key) => useUp(stack, key))));
  const restarted = await start(receiver.url, WITH_REDIS);
  await Promise.all(keys.map((key) => useUp(restarted, key)));
  await expect.poll(() => receiver.deliveries.length).toBe(15);
  // Events of the restarted gateway arrive in order, so a later one shows that no earlier one is missing.
  await useUp(restarted, await restarted.issueKey({ day: 5 }));
  await expect.poll(() => receiver.deliveries.length).toBe(18);
  const ids = receiver.deliveries.map(({ headers }) => headers['webhook-id']);
  expect(new Set(ids).size).toBe(18);
});

test('the first use of a key sends its event even if operators change other keys during the decision', async () => {
  const receiver = await webhookReceiver();
  const stack = await start(receiver.url, WITH_REDIS);
  const keys = await Promise.all(Array.from({ length: 30 }, () => stack.issueKey({ day: 1 })));
  let isChanging = true;
  const changes = Array.from({ length: 4 }, async () => {
    while (isChanging) await stack.admin('DELETE', `/keys/${idOf(await stack.issueKey())}`);
  });
  for (const key of keys) expect(await ask(stack, key)).toBe(200);
  isChanging = false;
  await Promise.all(changes);
  const usedUp = () => receiver.deliveries.filter(({ event }) => event.type === 'key.day_100');
  await expect.poll(() => usedUp().length).toBe(30);
});

test('an event is sent exactly once even if the reply to its claim is late', async () => {
  const proxy = await startFaultProxy(REDIS_URL);
  const redisOfClaims = await connectedRedis(proxy.url, 100);
  const storage = new RedisStorage(redisOfClaims, { isConfirmed: false });
  let slowsClaims = false;
  const slow: Storage = new Proxy(storage, {
    get: (target, name) => {
      const method = Reflect.get(target, name) as (...given: unknown[]) => unknown;
      return (...given: unknown[]) => {
        if (name === 'change' && slowsClaims) proxy.set({ kind: 'delay', ms: 300 });
        return method.apply(target, given);
      };
    },
  });
  const keys = new Keys(slow);
  const { credential } = createApiKey();
  await keys.create(credential.id, {
    name: 'late',
    plan: 'free',
    day: 1,
    secrets: [secretWith(credential.digest)],
    createdAt: 0,
  });
  const decision = (await new RedisLimiter(redisOfClaims, { table: DEFAULT_PLANS }).decide(credential)) as Decision;
  const receiver = await webhookReceiver();
  const { logger } = readableLog();
  const open = () => new Webhooks(keys, logger, { url: receiver.url, secret: () => WEBHOOK_SECRET, firstRetryMs: 500 });
  const [webhooks, ofAnother] = [open(), open()];
  cleanUp(() => Promise.all([webhooks.stop(), ofAnother.stop()]));
  slowsClaims = true;
  webhooks.send(happeningOf('day_80', credential.id, decision));
  await expect.poll(() => redis.hget(`gateway:key:{${credential.id}}`, 'told_day_80')).not.toBeNull();
  await sleep(200);
  slowsClaims = false;
  proxy.set({ kind: 'pass' });
  await expect.poll(receiver.types, { timeout: 5_000 }).toEqual(['key.day_80']);
  ofAnother.send(happeningOf('day_80', credential.id, decision));
  ofAnother.send(happeningOf('day_100', credential.id, decision));
  await expect.poll(receiver.types).toEqual(['key.day_100', 'key.day_80']);
});

test('no event is claimed if no webhook is configured', async () => {
  const stack = await startStack(WITH_REDIS);
  const key = await stack.issueKey({ day: 1 });
  await useUp(stack, key);
  const fields = await redis.hkeys(`gateway:key:{${idOf(key)}}`);
  expect(fields.filter((field) => field.startsWith('told_'))).toEqual([]);
});

test.for([
  ['refuses connections', async (): Promise<string> => `http://127.0.0.1:${await freePort()}`],
  ['never answers', async (): Promise<string> => (await webhookReceiver(() => {})).url],
] as const)('a receiver that %s delays neither clients nor a stopping gateway', TIMED, async ([, urlOf]) => {
  const url = await urlOf();
  const stack = await start(url, WITH_REDIS);
  const keys = await Promise.all(Array.from({ length: 40 }, () => stack.issueKey({ day: 1 })));
  const took: number[] = [];
  for (const key of keys) {
    const begun = performance.now();
    const statuses = [await ask(stack, key), await ask(stack, key)];
    took.push((performance.now() - begun) / 2);
    await fact(() => expect(statuses).toEqual([200, 429]));
  }
  expect(Math.max(...took)).toBeLessThan(1_000);
  await fact(() => delivered(stack).toBe(0));
  const begun = performance.now();
  await stack.stop();
  expect(performance.now() - begun).toBeLessThan(4_000);
});

test('an event that waits for its retry when its worker is killed or renewed is sent once', async () => {
  let status = 500;
  const receiver = await webhookReceiver((response) => void response.writeHead(status).end());
  const workers = await startWorkers({ WORKERS: '1', WEBHOOK_URL: receiver.url, WEBHOOK_SECRET });
  const counts = async (): Promise<unknown[]> => {
    const metrics = await scrape(workers.adminUrl);
    return ['delivered', 'given_up', 'dropped'].map((result) =>
      metrics.sum('gateway_webhook_deliveries_total', { result }),
    );
  };
  const ends = [(pid: number) => process.kill(pid, 'SIGKILL'), () => workers.child.kill('SIGHUP')];
  for (const [at, end] of ends.entries()) {
    status = 500;
    const key = await workers.issueKey({ plan: 'free', day: 5 });
    const types = () =>
      receiver.deliveries.filter(({ event }) => event.data.keyId === idOf(key)).map(({ event }) => event.type);
    for (let sent = 0; sent < 4; sent++) await list(workers, key);
    await eventually(types).toEqual(['key.day_80']);
    await replaced(workers, end);
    status = 204;
    // The new worker triggers the same event again.
    await list(workers, key);
    await eventually(counts).toEqual([2 * (at + 1), 0, 0]);
    await sleep(300);
    expect([...new Set(types())].sort()).toEqual(['key.day_100', 'key.day_80']);
    expect(await counts()).toEqual([2 * (at + 1), 0, 0]);
  }
});
