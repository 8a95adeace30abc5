import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { Clients } from '../../gateway/limiter/clients.ts';
import { createApiKey } from '../../gateway/limiter/credential.ts';
import { factsReader, NO_FACTS } from '../../gateway/stores/keys.ts';
import type { KeyRefusal } from '../../gateway/telemetry/key-refusals.ts';
import { Unavailable } from '../../shared/domain-errors.ts';
import { idOf } from '../support/api-key.ts';
import { type Answer, post, send } from '../support/http.ts';
import { emptyDatabase, ownRedis } from '../support/redis-database.ts';
import { ADMIN_TOKEN, bothStacks, type Stack, startStack } from '../support/stack.ts';
import { startWorkers } from '../support/workers.ts';

const { url: redisUrl } = await emptyDatabase();

/** @param from the address that is charged */
const limits = (stack: Stack, key?: string, from = '127.0.0.1'): Promise<Answer> =>
  send(`${stack.gateway}/v1/limits`, { key, from });
const spend = (stack: Stack, key: string): Promise<Answer> => send(`${stack.gateway}/v1/pets`, { key });
const inSeconds = (seconds: number) => Math.floor(Date.now() / 1_000) + seconds;

function expectNear(shown: unknown, second: number): void {
  expect(Math.abs(Number(shown) - second)).toBeLessThan(4);
}

describe.for(bothStacks(redisUrl))('with %s', async ([, environment]) => {
  const stack = await startStack(environment);

  test('GET /v1/limits returns the name, plan, limits and expiry of the key', async () => {
    const expiresAt = '2099-01-01T00:00:00.000Z';
    const key = await stack.issueKey({ name: 'shop 7', minute: 600, day: 86_400, expiresAt });
    await spend(stack, key);
    const { status, headers, json } = await limits(stack, key);
    expect(status).toBe(200);
    expect(json).toEqual({
      name: 'shop 7',
      plan: 'free',
      minute: { limit: 600, remaining: expect.any(Number), reset: expect.any(Number), refillPerSecond: 10 },
      day: { limit: 86_400, remaining: 86_399, reset: expect.any(Number), refillPerSecond: 1 },
      waitSeconds: 0,
      strikesLeft: 3_000,
      ban: null,
      bannedUntil: null,
      scope: ['read', 'write'],
      expiresAt,
      usage: [{ day: new Date().toISOString().slice(0, 10), admitted: 1, refused: 0 }],
    });
    expectNear((json as { day: { reset: number } }).day.reset, inSeconds(1));
    expect(headers).toMatchObject({
      'content-type': 'application/json',
      'x-ratelimit-limit': '600',
      'ratelimit-policy': '"minute";q=600;w=60, "day";q=86400;w=86400',
    });
  });

  test('GET /v1/limits uses no token, adds no strike, and works even when the limit is used up', async () => {
    // No other test uses this plan.
    await stack.admin('PATCH', '/plans/pro', { ban_after: 3, ban_grace_seconds: 0 });
    const key = await stack.issueKey({ plan: 'pro', minute: 1_000, day: 2 });
    for (let left = 2; left >= 0; left--) {
      for (let asked = 0; asked < 5; asked++) {
        const { status, headers, json } = await limits(stack, key);
        expect([status, (json as { day: { remaining: number } }).day.remaining]).toEqual([200, left]);
        expect(headers['x-ratelimit-remaining']).toBe(String(left));
        expect(headers['retry-after']).toBeUndefined();
      }
      expect((await spend(stack, key)).status).toBe(left > 0 ? 200 : 429);
    }
    const { headers, json } = await limits(stack, key);
    expect(json).toMatchObject({ ban: null, expiresAt: null });
    // Nothing was refused, so the header says when the bucket is full again, as the body does.
    expect(headers['x-ratelimit-reset']).toBe(String((json as { day: { reset: number } }).day.reset));
  });

  test("GET /v1/limits returns when the key's ban expires", async () => {
    const key = await stack.issueKey({ minute: 60, day: 1_000 });
    await stack.admin('PUT', `/keys/${idOf(key)}/ban`, { seconds: 100 });
    await expect.poll(async () => (await spend(stack, key)).status).toBe(429);
    const { status, headers, json } = await limits(stack, key);
    const { ban } = json as { ban: { until: number; retryAfter: number } };
    expect([status, headers['retry-after'], headers['x-ratelimit-remaining']]).toEqual([200, undefined, '0']);
    expectNear(ban.until, inSeconds(100));
    expectNear(ban.retryAfter, 100);
    expect(json).toMatchObject({ bannedUntil: ban.until, waitSeconds: ban.retryAfter });
    expect(headers['x-ratelimit-reset']).toBe(String(ban.until));
  });

  test('GET /v1/limits returns the waiting time, the remaining strikes, and the usage of the day', async () => {
    const key = await stack.issueKey({ minute: 2, day: 1_000 });
    const standing = async () => (await limits(stack, key)).json as Record<'waitSeconds' | 'strikesLeft', number>;
    expect(await standing()).toMatchObject({ waitSeconds: 0, strikesLeft: 10 });
    for (let sent = 0; sent < 2; sent++) await spend(stack, key);
    const waits: number[] = [];
    for (let refused = 0; refused < 3; refused++) {
      const { waitSeconds, strikesLeft } = await standing();
      const { headers } = await spend(stack, key);
      expect(Math.abs(waitSeconds - Number(headers['retry-after']))).toBeLessThanOrEqual(1);
      // One strike expires every 3.75 s.
      expect(strikesLeft - (10 - refused)).toBeGreaterThanOrEqual(0);
      expect(strikesLeft - (10 - refused)).toBeLessThanOrEqual(1);
      waits.push(waitSeconds);
    }
    expect(waits).toEqual(waits.toSorted((a, b) => a - b));
    const day = new Date().toISOString().slice(0, 10);
    expect(await standing()).toMatchObject({ usage: [{ day, admitted: 2, refused: 3 }] });
  });

  test('GET /v1/limits with an invalid key reveals nothing and is charged to the address', async () => {
    const key = await stack.issueKey();
    const otherSecret = createApiKey(idOf(key)).apiKey;
    for (const [at, wrong] of [undefined, 'nonsense', createApiKey().apiKey, otherSecret].entries()) {
      const { status, headers, json } = await limits(stack, wrong, '127.0.0.2');
      expect([status, json]).toEqual([401, { code: 'unauthorized', message: expect.any(String), status: 401 }]);
      expect(headers['www-authenticate']).toBe('Bearer');
      expect(headers['x-ratelimit-remaining']).toBe(String(59 - at));
    }
  });

  test('GET /v1/limits with a valid key is also charged to the address', async () => {
    const key = await stack.issueKey();
    const statuses: number[] = [];
    for (let sent = 0; sent < 70; sent++) statuses.push((await limits(stack, key, '127.0.0.3')).status);
    expect(statuses.slice(0, 60)).toEqual(Array(60).fill(200));
    expect(statuses).toContain(429);
    expect(statuses.filter((status) => status !== 200 && status !== 429)).toEqual([]);
    expect((await spend(stack, key)).headers['x-ratelimit-remaining']).toBe('59');
  });
});

test('GET /v1/limits does not reach the core and is not counted as a decision', async () => {
  const stack = await startStack({ CORE_URL: 'http://127.0.0.1:1' });
  const key = await stack.issueKey();
  const decisions = async () => (await send(`${stack.adminUrl}/metrics`)).text.match(/^gateway_decisions_total.*$/gm);
  const before = await decisions();
  const id = 'where-i-stand';
  const answer = await send(`${stack.gateway}/v1/limits?any=thing`, { key, headers: { 'x-request-id': id } });
  expect([answer.status, answer.headers['x-request-id']]).toEqual([200, id]);
  const logged = { operation: 'getLimits', status: 200, plan: 'free', keyId: idOf(key), outcome: 'own' };
  await expect.poll(() => stack.log.find(({ requestId }) => requestId === id)).toMatchObject(logged);
  expect(await decisions()).toEqual(before);
});

test('/v1/limits accepts only GET and HEAD, without a body and without a key in the URL', async () => {
  const stack = await startStack();
  const key = await stack.issueKey();
  const head = await send(`${stack.gateway}/v1/limits`, { method: 'HEAD', key });
  expect([head.status, head.text]).toEqual([200, '']);
  const posted = await post(`${stack.gateway}/v1/limits`, {}, { key });
  expect([posted.status, posted.headers.allow]).toEqual([405, 'GET, HEAD']);
  expect((await post(`${stack.gateway}/v1/limits`, {}, { method: 'GET', key })).status).toBe(400);
  expect((await send(`${stack.gateway}/v1/limits?key=${key}`, { key })).status).toBe(400);
  expect((await send(`${stack.gateway}/v1/limits?has_registration_number=1`, { key })).status).toBe(200);
});

test('without Redis, GET /v1/limits returns the local state of a key that was read before, and otherwise 503', async () => {
  const server = await ownRedis();
  const stack = await startStack({ REDIS_URL: server.url, REDIS_TIMEOUT_MS: '2000' });
  const key = await stack.issueKey({ name: 'seen', minute: 1_000, day: 10 });
  const [unread, stranger] = [await stack.issueKey({ plan: 'pro' }), await stack.issueKey()];
  for (const known of [key, unread]) expect((await spend(stack, known)).status).toBe(200);
  await limits(stack, key);
  await server.stop();
  await expect.poll(async () => (await spend(stack, key)).status).toBe(200);
  const { status, json } = await limits(stack, key);
  expect([status, json]).toMatchObject([200, { name: 'seen', plan: 'free', day: { limit: 10, remaining: 8 } }]);
  const refused = [unread, stranger, createApiKey().apiKey].map((other) => limits(stack, other));
  for (const answer of await Promise.all(refused)) {
    expect(answer).toMatchObject({ status: 503, headers: { 'retry-after': '1' } });
    expect((answer.json as { message: string }).message).toContain("the gateway's key store does not answer");
  }
  expect((await refused[0])?.headers['x-ratelimit-limit']).toBe('300');
  // The database is empty after the restart.
  await server.restart();
  await expect.poll(async () => (await spend(stack, key)).status).toBe(401);
  expect(stack.log.some(({ msg }) => msg === 'redis is back')).toBe(true);
});

/** GET /v1/limits?refusals=true returns the last refusals of the caller's own key. */

const ask = (gateway: string, key: string) => send(`${gateway}/v1/limits?refusals=true`, { key });
/** Retries, because a gateway looks up a key's refusals only once a second. */
async function refusalsOf(gateway: string, key: string): Promise<KeyRefusal[]> {
  for (;;) {
    const { refusals } = (await ask(gateway, key)).json as { refusals: KeyRefusal[] | null };
    if (refusals !== null) return refusals;
    await sleep(250);
  }
}
const codesOf = async (gateway: string, key: string) =>
  (await refusalsOf(gateway, key)).map(({ method, code, limit }) => [method, code, limit]);

test('refusals of a key by limits, bans and scope are listed, newest first, and no other refusals are', async () => {
  const stack = await startStack();
  const key = await stack.issueKey({ minute: 2, day: 100 });
  const secrets = `/keys/${idOf(key)}/secrets`;
  const reader = ((await stack.admin('POST', secrets, { name: 'r', scope: ['read'] })).json as { key: string }).key;
  expect(await refusalsOf(stack.gateway, key)).toEqual([]);
  expect((await send(`${stack.gateway}/v1/limits`, { key })).json).not.toHaveProperty('refusals');
  expect((await post(`${stack.gateway}/v1/pets`, {}, { key: reader })).status).toBe(403);
  const spent = [];
  for (let sent = 0; sent < 3; sent++) spent.push(await send(`${stack.gateway}/v1/pets`, { key }));
  const other = await stack.issueKey({ minute: 1 });
  for (let sent = 0; sent < 2; sent++) await send(`${stack.gateway}/v1/pets`, { key: other });
  await send(`${stack.gateway}/v1/pets`, { key: createApiKey(idOf(key)).apiKey });
  await send(`${stack.gateway}/v1/pets/none`, { key });
  const [limited, ofScope] = await refusalsOf(stack.gateway, reader);
  const retryAt = Math.floor(Date.now() / 1_000) + Number(spent[2]?.headers['retry-after']);
  expect(limited).toEqual({
    at: expect.any(Number),
    method: 'GET',
    path: '/v1/pets/none',
    code: 'rate_limit_exceeded',
    limit: 'minute',
    retryAt: expect.any(Number),
    repeated: 0,
  });
  expect(Math.abs((limited?.at ?? 0) - Date.now() / 1_000)).toBeLessThan(5);
  expect((limited?.retryAt ?? 0) - retryAt).toBeGreaterThan(20);
  expect(ofScope).toMatchObject({ code: 'rate_limit_exceeded', path: '/v1/pets', limit: 'minute' });
  expect(Math.abs((ofScope?.retryAt ?? 0) - retryAt)).toBeLessThan(3);
  await stack.admin('PUT', `/keys/${idOf(key)}/ban`, { seconds: 600, reason: 'a test' });
  for (let sent = 0; sent < 30; sent++) await send(`${stack.gateway}/v1/pets`, { key });
  const banned = await refusalsOf(stack.gateway, key);
  expect(banned.map(({ code }) => code)).toEqual(Array(5).fill('key_banned'));
  expect(Math.abs((banned[0]?.retryAt ?? 0) - Date.now() / 1_000 - 600)).toBeLessThan(5);
  expect(JSON.stringify(banned)).not.toContain('127.0.0.1');
});

test('the parameter refusals accepts only true or false; at most five keys a second are looked up, each only once', async () => {
  const stack = await startStack();
  const key = await stack.issueKey();
  for (const query of ['refusals=yes', 'refusals=', 'refusals=true&refusals=true']) {
    const { status, json } = await send(`${stack.gateway}/v1/limits?${query}`, { key });
    const message = 'refusals must be true or false, and must be given once.';
    expect([status, json]).toEqual([400, { code: 'invalid_parameter', message, status: 400 }]);
  }
  expect((await send(`${stack.gateway}/v1/limits?refusals=false`, { key })).json).not.toHaveProperty('refusals');
  const looks = async (keys: readonly string[]) => {
    const answers = await Promise.all(keys.map((one) => ask(stack.gateway, one)));
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
    return answers.filter(({ json }) => (json as { refusals: unknown }).refusals !== null).length;
  };
  // The requests may span two seconds.
  expect([1, 2]).toContain(await looks(Array(10).fill(key)));
  const keys = await Promise.all(Array.from({ length: 12 }, () => stack.issueKey()));
  await sleep(1_000);
  const found = await looks(keys);
  expect(found).toBeGreaterThanOrEqual(5);
  expect(found).toBeLessThanOrEqual(10);
});

test('refusals by all workers of all gateways are listed', async () => {
  const { url } = await emptyDatabase();
  const [here, there] = [await startWorkers({ REDIS_URL: url }), await startStack({ REDIS_URL: url })];
  const key = await here.issueKey({ plan: 'pro', minute: 1 });
  expect((await send(`${here.gateway}/v1/pets`, { key })).status).toBe(200);
  const both = [
    ['POST', 'rate_limit_exceeded', 'minute'],
    ['GET', 'rate_limit_exceeded', 'minute'],
  ];
  expect((await send(`${here.gateway}/v1/pets`, { key })).status).toBe(429);
  // A request is recorded after its response is sent.
  await expect.poll(() => codesOf(here.gateway, key)).toEqual(both.slice(1));
  expect((await post(`${there.gateway}/v1/pets`, {}, { key })).status).toBe(429);
  for (const { gateway } of [here, there]) await expect.poll(() => codesOf(gateway, key)).toEqual(both);
  await post(`${here.adminUrl}/keys/${idOf(key)}/reset`, {}, { key: ADMIN_TOKEN });
  expect(await codesOf(here.gateway, key)).toEqual(both);
});

test('a client is not told why the store cannot read its key', async () => {
  const get = async () => {
    throw new Unavailable('database disk image is malformed', 'The database in DATA_DIR is damaged.');
  };
  const factsOf = factsReader({ get }, new Clients(() => undefined));
  await expect(factsOf(createApiKey().credential)).rejects.toMatchObject({ shown: NO_FACTS });
});
