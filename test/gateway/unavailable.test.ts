import { expect, test } from 'vitest';
import { createApiKey } from '../../gateway/limiter/credential.ts';
import { AddressAllowance } from '../../gateway/limiter/newcomers.ts';
import { idOf } from '../support/api-key.ts';
import { cleanUp } from '../support/clean-up.ts';
import { faultyCore } from '../support/faulty-core.ts';
import { post, send } from '../support/http.ts';
import { SECOND } from '../support/limiters.ts';
import { startRedisServer } from '../support/redis.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { startStack } from '../support/stack.ts';

const { url, redis } = await emptyDatabase();

test('without Redis the gateway starts, and an unknown key gets a 503 with Retry-After, not a 401', async () => {
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

test('a key that Redis no longer knows gets 401 once Redis is back', async () => {
  const server = await startRedisServer();
  cleanUp(server.stop);
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

test('incomplete or corrupt state costs at most one capacity and causes no error', async () => {
  const stack = await startStack({ REDIS_URL: url, REDIS_TIMEOUT_MS: '2000' });
  const key = await stack.issueKey();
  const name = `gateway:key:{${idOf(key)}}`;
  for (const state of [
    {
      left: 'yesterday nan -5',
      refusals: '1e9 nan -1',
      used: 'x',
      banned_until: 'never',
      bans: 'x',
      admitted: '',
      refused: '1e9',
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

test('an address is allowed exactly 60 requests a minute, and the table of addresses is bounded', () => {
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

test.for([
  ['retry-after: 7\r\n', '7'],
  ['retry-after: 100000\r\n', '100000'],
  ['retry-after: Fri, 31 Dec 1999 23:59:59 GMT\r\n', '1'],
  ['retry-after: soon\r\n', '1'],
  ['', '1'],
])('a 503 and a 429 of the core have Retry-After: %j', async ([header, seconds]) => {
  const answerWith = (status: number, code: string) => {
    const body = JSON.stringify({ code, message: 'Come again.', status });
    return `HTTP/1.1 ${status} No\r\n${header}content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
  };
  const core = await faultyCore((socket, head) =>
    socket.write(head.startsWith('GET') ? answerWith(429, 'rate_limit_exceeded') : answerWith(503, 'unavailable')),
  );
  const stack = await startStack({ CORE_URL: core });
  const key = await stack.issueKey();
  const answers = [
    await send(`${stack.gateway}/v1/pets`, { key }),
    await post(`${stack.gateway}/v1/pets`, {}, { key }),
  ];
  expect(answers.map(({ status, headers }) => [status, headers['retry-after']])).toEqual([
    [429, seconds],
    [503, seconds],
  ]);
});

test('a date in Retry-After of the core becomes the seconds until then', async () => {
  const until = new Date(Date.now() + 3_600_000).toUTCString();
  const body = '{"code":"unavailable","message":"Come again.","status":503}';
  const head = `Retry-After: ${until}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}`;
  const core = await faultyCore((socket) => socket.write(`HTTP/1.1 503 No\r\n${head}\r\n\r\n${body}`));
  const stack = await startStack({ CORE_URL: core });
  const { headers } = await send(`${stack.gateway}/v1/pets`, { key: await stack.issueKey() });
  expect(Number(headers['retry-after'])).toBeGreaterThan(3_500);
  expect(Number(headers['retry-after'])).toBeLessThanOrEqual(3_600);
});
