import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, test } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { cleanUp } from '../support/clean-up.ts';
import { ctlWith } from '../support/ctl.ts';
import { send } from '../support/http.ts';
import { startProcess } from '../support/process.ts';
import { startRedisServer } from '../support/redis.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { ADMIN_TOKEN, startStack, temporaryFolder } from '../support/stack.ts';

const { url, redis } = await emptyDatabase();
const stack = await startStack({ REDIS_URL: url, REDIS_TIMEOUT_MS: '2000' });

test.for([
  ['of no plan', { plan: 'gold' }, 'active'],
  ['of no plan and never kept', { plan: 'gold', ok_plan: 'nothing' }, 'unreadable'],
  ['with an expiry that is no time', { expires_at: '2030-12-31' }, 'active'],
  ['disabled by hand', { disabled: '1' }, 'disabled'],
  ['with an empty mark', { disabled: '' }, 'active'],
] as const)('a key that is %s is shown unchanged and can be revoked', async ([, edit, state]) => {
  const key = await stack.issueKey();
  const id = idOf(key);
  await redis.hset(`gateway:key:{${id}}`, edit);
  expect((await stack.admin('GET', `/keys/${id}`)).json).toMatchObject({ id, state });
  expect((await send(`${stack.gateway}/v1/pets`, { key })).status === 200).toBe(state === 'active');
  expect((await stack.admin('DELETE', `/keys/${id}`)).status).toBe(204);
  expect(await redis.exists(`gateway:key:{${id}}`)).toBe(0);
});

test('a key whose data is of another type is shown as unreadable and can be revoked', async () => {
  const id = idOf(await stack.issueKey());
  await redis.set(`gateway:key:{${id}}`, 'text');
  expect((await stack.admin('GET', '/keys?state=unreadable')).json).toMatchObject({ keys: [{ id }] });
  expect((await stack.admin('DELETE', `/keys/${id}`)).status).toBe(204);
});

test('a key can be revoked whatever was written by hand in place of its usage', async () => {
  const key = await stack.issueKey();
  const id = idOf(key);
  await redis.set(`gateway:usage:{${id}}`, 'text');
  expect((await stack.admin('DELETE', `/keys/${id}`)).status).toBe(204);
  expect((await send(`${stack.gateway}/v1/pets`, { key })).status).toBe(401);
  expect(await redis.hget(`gateway:usage:{${id}}`, 'plan')).toBe('free');
});

test.for(['Infinity', '-5', '1e3', '0x10', '1234567890123456'])(
  'a count that was made %s by hand is shown as 0 and decided as 0',
  async (count) => {
    const key = await stack.issueKey();
    const id = idOf(key);
    await redis.hset(`gateway:key:{${id}}`, { admitted: count, refused: count });
    expect((await stack.admin('GET', `/keys/${id}`)).json).toMatchObject({ admitted: 0, refused: 0 });
    expect((await send(`${stack.gateway}/v1/pets`, { key })).status).toBe(200);
    expect((await stack.admin('GET', `/keys/${id}`)).json).toMatchObject({ admitted: 1, refused: 0 });
  },
);

test('a ban until an impossible time is ignored', async () => {
  const key = await stack.issueKey();
  await redis.hset(`gateway:key:{${idOf(key)}}`, 'banned_until', '9999999999999999');
  const answer = await send(`${stack.gateway}/v1/pets`, { key });
  expect([answer.status, Number(answer.headers['x-ratelimit-reset'])]).toEqual([200, expect.any(Number)]);
  expect(Number(answer.headers['x-ratelimit-reset'])).toBeGreaterThan(0);
});

test('without Redis the admin listener answers 503 with a message, and no digest is logged', async () => {
  const server = await startRedisServer();
  const stack = await startStack({ REDIS_URL: server.url, REDIS_TIMEOUT_MS: '500' });
  await server.stop();
  for (const [method, path, body] of [
    ['GET', '/keys', undefined],
    ['POST', '/keys', { name: 'secretive', plan: 'free' }],
    ['PATCH', '/plans/free', { minute: 5 }],
  ] as const) {
    const answer = await stack.admin(method, path, body);
    expect([method, answer.status, answer.json]).toEqual([
      method,
      503,
      { code: 'unavailable', message: expect.any(String), status: 503 },
    ]);
  }
  expect(JSON.stringify(stack.log)).not.toMatch(/secret:|secretive/);
});

test('the error of a failed read gives its reason', async () => {
  const server = await startRedisServer();
  const stack = await startStack({ REDIS_URL: server.url, REDIS_TIMEOUT_MS: '500' });
  const ask = async () => ((await stack.admin('GET', '/keys')).json as { message: string }).message;
  server.pause();
  const late = ask();
  expect(await late).toBe('Redis does not answer.');
  server.resume();
  await server.stop();
  await expect.poll(ask).toBe('Redis is not connected.');
});

test('concurrent changes of plans are all made', async () => {
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

test.for([
  ['/abc', 'REDIS_URL: must name a database by its number'],
  ['/99', 'REDIS_URL: this Redis has no database 99.'],
] as const)('a REDIS_URL that ends in %s is refused at the start', async ([path, message]) => {
  const REDIS_URL = new URL(path, url).href;
  const { code, err } = await startProcess(process.execPath, ['gateway/main.ts'], {
    REDIS_URL,
    PORT: '0',
    ADMIN_PORT: '0',
    DATA_DIR: await temporaryFolder(),
  }).ended;
  expect([code, err]).toEqual([1, expect.stringContaining(message)]);
});

test('the command line reports invalid settings, and a foreign server', async () => {
  const server = http.createServer((_request, response) => response.end('<html>')).listen(0, '127.0.0.1');
  cleanUp(() => server.close());
  await new Promise((resolve) => server.once('listening', resolve));
  const showPlans = (ADMIN_PORT: string) => ctlWith({ ADMIN_PORT, ADMIN_TOKEN }, 'plans', 'show');
  const other = String((server.address() as AddressInfo).port);
  expect(await showPlans(other)).toMatchObject({
    code: 1,
    err: `The server at http://127.0.0.1:${other} is not a gateway's admin listener.\n`,
  });
  expect(await showPlans('abc')).toMatchObject({
    code: 1,
    err: expect.stringContaining('ADMIN_PORT: must be a whole number from 0 to 65535'),
  });
});
