import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { createApiKey } from '../../gateway/limiter/credential.ts';
import type { KeyRefusal } from '../../gateway/telemetry/key-refusals.ts';
import { idOf } from '../support/api-key.ts';
import { post, send } from '../support/http.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { ADMIN_TOKEN, startStack } from '../support/stack.ts';
import { startWorkers } from '../support/workers.ts';

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
  const [here, there] = [await startWorkers({ REDIS_URL: url }), await startWorkers({ REDIS_URL: url })];
  const key = await here.issueKey({ plan: 'pro', minute: 1 });
  expect((await send(`${here.gateway}/v1/pets`, { key })).status).toBe(200);
  expect((await send(`${here.gateway}/v1/pets`, { key })).status).toBe(429);
  expect((await post(`${there.gateway}/v1/pets`, {}, { key })).status).toBe(429);
  const both = [
    ['POST', 'rate_limit_exceeded', 'minute'],
    ['GET', 'rate_limit_exceeded', 'minute'],
  ];
  for (const { gateway } of [here, there]) await expect.poll(() => codesOf(gateway, key)).toEqual(both);
  await post(`${here.adminUrl}/keys/${idOf(key)}/reset`, {}, { key: ADMIN_TOKEN });
  expect(await codesOf(here.gateway, key)).toEqual(both);
});
