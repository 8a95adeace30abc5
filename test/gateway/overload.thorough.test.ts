import http from 'node:http';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { OK } from '../support/faulty-core.ts';
import { post, send } from '../support/http.ts';
import { connectionTo, ownRedis } from '../support/redis-database.ts';
import { startStack, UNLIMITED } from '../support/stack.ts';
import { stackBefore } from '../support/stack-before.ts';
import { TIMED } from '../support/timed.ts';

/** Sends requests and closes their connections after `afterMs` without waiting for responses. */
async function leave(url: string, key: string, count: number, afterMs: number): Promise<void> {
  const requests = Array.from({ length: count }, () => {
    const request = http.get(`${url}/v1/pets?limit=100`, { agent: false, headers: { authorization: `Bearer ${key}` } });
    request.on('error', () => {});
    return request;
  });
  await sleep(afterMs);
  for (const request of requests) request.destroy();
}

test('clients that disconnect before their requests are decided block no other requests', TIMED, async () => {
  const { url: REDIS_URL } = await ownRedis();
  const redis = connectionTo(REDIS_URL);
  // The responses are too large to be buffered, so a client that never reads would hold its core connection for good.
  const large = 'x'.repeat(400_000);
  const { stack, key, get } = await stackBefore(
    (socket) => void socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${large.length}\r\n\r\n${large}`),
    { REDIS_URL, REDIS_TIMEOUT_MS: '5000', CORE_TIMEOUT_MS: '1000' },
  );
  for (let round = 0; round < 3; round++) {
    await redis.client('PAUSE', 300);
    await leave(stack.gateway, key, 60, 100);
    await sleep(400);
  }
  const answers = await Promise.all(Array.from({ length: 20 }, () => get()));
  expect(answers.map(({ status }) => status)).toEqual(Array(20).fill(200));
});

test('the queue for a hanging core is bounded, and further requests immediately get Retry-After', TIMED, async () => {
  let silent = true;
  const core = (socket: Socket) => void (silent || socket.write(OK));
  const { stack, key, get } = await stackBefore(core, { CORE_TIMEOUT_MS: '3000' });
  const waiting = leave(stack.gateway, key, 1_200, 2_500);
  await sleep(1_500);
  const before = performance.now();
  const answer = await get();
  expect([answer.status, answer.headers['retry-after']]).toEqual([503, '1']);
  expect(performance.now() - before).toBeLessThan(500);
  // The response reports the limits from the last decision on its key.
  expect(answer.headers['x-ratelimit-limit']).toBe('1000000');
  expect(Number(answer.headers['x-ratelimit-remaining'])).toBeLessThan(1_000_000);
  await waiting;
  silent = false;
  await expect.poll(async () => (await get()).status).toBe(200);
});

test("a request gets 502 if the core rejects the gateway's token", async () => {
  const stack = await startStack({ CORE_TOKEN: 'token-of-the-core' });
  const gateway = await stackBefore(stack.core, { CORE_TOKEN: 'another-token-than-that' });
  const answer = await gateway.get();
  expect([answer.status, answer.json]).toEqual([502, expect.objectContaining({ code: 'bad_gateway' })]);
  expect(gateway.stack.log.find(({ status }) => status === 502)?.reason).toMatch(/it does not accept CORE_TOKEN/);
});

test('the core accepts all headers that the gateway accepts', async () => {
  const stack = await startStack({ CORE_TOKEN: 't'.repeat(300) });
  const key = await stack.issueKey(UNLIMITED);
  const statuses = new Set<number>();
  for (let size = 15_800; size < 16_400; size += 20) {
    const asked = send(`${stack.gateway}/v1/pets`, { key, headers: { x: 'a'.repeat(size) } });
    statuses.add((await asked.catch(() => ({ status: 431 }))).status);
  }
  expect([...statuses].sort()).toEqual([200, 431]);
});

test('a link to the next page keeps all parameters, including unknown ones', async () => {
  const stack = await startStack();
  const key = await stack.issueKey(UNLIMITED);
  for (const name of ['a', 'b']) await post(`${stack.core}/v1/pets`, { name, categoryId: 1 });
  const others = `limit=1&x=${'~'.repeat(7_000)}&%7E=%2B+`;
  const answer = await send(`${stack.gateway}/v1/pets?%61fter=0&${others}`, { key });
  expect([answer.status, answer.headers.link]).toEqual([200, `</v1/pets?${others}&after=1>; rel="next"`]);
});
