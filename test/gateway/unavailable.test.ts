import { expect, test } from 'vitest';
import { createApiKey } from '../../gateway/limiter/credential.ts';
import { AddressAllowance } from '../../gateway/limiter/newcomers.ts';
import { idOf } from '../support/api-key.ts';
import { send } from '../support/http.ts';
import { SECOND } from '../support/limiters.ts';
import { emptyDatabase, ownRedis } from '../support/redis-database.ts';
import { startStack } from '../support/stack.ts';

const { url, redis } = await emptyDatabase();

test('without Redis, the gateway starts, and an unknown key gets a 503 with Retry-After, not a 401', async () => {
  const stack = await startStack({ REDIS_URL: 'redis://127.0.0.1:1' });
  const { apiKey } = createApiKey();
  const answer = await send(`${stack.gateway}/v1/pets`, { key: apiKey });
  expect([answer.status, answer.json]).toEqual([
    503,
    { code: 'unavailable', message: expect.any(String), status: 503 },
  ]);
  expect(answer.headers).toMatchObject({ 'retry-after': '1', 'x-ratelimit-limit': '60' });
  expect((await send(`${stack.gateway}/v1/pets`)).status).toBe(401);
  expect(stack.log.filter(({ msg }) => msg === 'redis is away')).toHaveLength(1);
});

test('a key that Redis no longer has gets 401 once Redis is back', async () => {
  const server = await ownRedis();
  const stack = await startStack({ REDIS_URL: server.url, REDIS_TIMEOUT_MS: '500' });
  const [seen, unseen] = [await stack.issueKey(), await stack.issueKey()];
  expect((await send(`${stack.gateway}/v1/pets`, { key: seen })).status).toBe(200);
  await server.stop();
  expect((await send(`${stack.gateway}/v1/pets`, { key: seen })).status).toBe(200);
  expect((await send(`${stack.gateway}/v1/pets`, { key: unseen })).status).toBe(503);
  await server.restart();
  await expect.poll(async () => (await send(`${stack.gateway}/v1/pets`, { key: seen })).status).toBe(401);
  expect(stack.log.some(({ msg }) => msg === 'redis is back')).toBe(true);
});

test('incomplete or corrupt state grants at most one full bucket and causes no error', async () => {
  const stack = await startStack({ REDIS_URL: url, REDIS_TIMEOUT_MS: '2000' });
  const key = await stack.issueKey();
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

test('an address may send exactly 60 requests a minute without a key, and the table of addresses is bounded', () => {
  let now = 1_000 * SECOND;
  const allowance = new AddressAllowance(() => now);
  const outcomes = Array.from({ length: 61 }, () => allowance.consume('a').outcome);
  expect(outcomes.lastIndexOf('admitted')).toBe(59);
  now += SECOND - 1;
  expect(allowance.consume('a').outcome).toBe('refused');
  now += 1;
  expect([allowance.consume('a').outcome, allowance.consume('a').outcome]).toEqual(['admitted', 'refused']);
  now -= 3_600 * SECOND;
  expect(allowance.consume('a').outcome).toBe('admitted');
  for (let at = 0; at < 10_000; at++) allowance.consume(`address ${at}`);
  expect(allowance.peek('a').buckets[0]?.tokens).toBe(60);
  expect(allowance.peek('address 9999').buckets[0]?.tokens).toBe(59);
});
