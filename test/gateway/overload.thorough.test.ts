import { once } from 'node:events';
import http from 'node:http';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { faultyCore, OK, slowCore } from '../support/faulty-core.ts';
import { send } from '../support/http.ts';
import { connectRaw } from '../support/raw-client.ts';
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
  const { stack, key, get } = await stackBefore(core, { CORE_TIMEOUT_MS: '8000' });
  const waiting = leave(stack.gateway, key, 1_200, 6_000);
  // On a busy machine, it takes seconds until all of them have arrived.
  await sleep(4_000);
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

test('bodies that arrive together, after their heads, are refused immediately if the core is too slow', async () => {
  const RATE = 15;
  const stack = await startStack({ CORE_URL: await slowCore(RATE), CORE_TIMEOUT_MS: '5000' });
  const [key = '', greedy = ''] = [await stack.issueKey(UNLIMITED), await stack.issueKey(UNLIMITED)];
  const read = async () => (await send(`${stack.gateway}/v1/pets`, { key })).status;
  // The gateway learns the speed of the core only under overload.
  const begun = Array.from({ length: 30 * RATE }, async (_, at) => {
    await sleep(at * 13);
    await send(`${stack.gateway}/v1/pets`, { key: greedy });
  });
  await Promise.all(begun);
  const statuses: number[] = [];
  const sending = Array.from({ length: 300 }, async () => {
    const { socket, received, closed } = await connectRaw(stack.gateway);
    socket.write(
      `POST /v1/pets HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 2\r\nAuthorization: Bearer ${greedy}\r\n\r\n`,
    );
    await sleep(500);
    socket.write('{}');
    await closed;
    statuses.push(Number(received().slice(9, 12)));
  });
  await sleep(1_000);
  expect(await read()).toBe(200);
  await Promise.all(sending);
  expect(await read()).toBe(200);
  expect(statuses.filter((status) => status === 504)).toEqual([]);
  expect(statuses.filter((status) => status === 503).length).toBeGreaterThan(150);
}, 60_000);

test('slow bodies use no capacity, even when it is scarce', async () => {
  let isSlow = true;
  const core = await faultyCore((socket) => void (isSlow || socket.write(OK)));
  const stack = await startStack({ CORE_URL: core, CORE_TIMEOUT_MS: '300' });
  const [key = '', ...slowKeys] = await Promise.all(Array.from({ length: 91 }, () => stack.issueKey(UNLIMITED)));
  // A core that has timed out gets fewer concurrent requests.
  for (let round = 0; round < 3; round++) await send(`${stack.gateway}/v1/pets`, { key });
  isSlow = false;
  for (const slowKey of slowKeys) {
    const { socket } = await connectRaw(stack.gateway);
    socket.write(
      `POST /v1/pets HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 9\r\nAuthorization: Bearer ${slowKey}\r\nExpect: 100-continue\r\n\r\n`,
    );
    // 100 (Continue) shows that the request is admitted and waits for its body.
    await once(socket, 'data');
  }
  expect((await send(`${stack.gateway}/v1/pets`, { key })).status).toBe(200);
});
