import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { faultyCore, okTo, withIdOf } from '../support/faulty-core.ts';
import { post, send } from '../support/http.ts';
import { eventuallyScraped, scrape } from '../support/metrics.ts';
import { connectRaw } from '../support/raw-client.ts';
import { type Stack, startStack, UNLIMITED } from '../support/stack.ts';
import { TIMED } from '../support/timed.ts';

/** CORE_CONCURRENCY: a core gets only so many requests at a time, and the clients of the others take turns. */

/** Starts a core that handles every request at once. Records how many it had at a time, and their order. */
async function countingCore(handled: () => Promise<unknown>) {
  const seen = { most: 0, now: 0, heads: [] as string[] };
  const url = await faultyCore(async (socket, head) => {
    if (head.startsWith('GET /readyz')) return void socket.write(okTo(head));
    seen.heads.push(head);
    seen.now += 1;
    seen.most = Math.max(seen.most, seen.now);
    await handled();
    seen.now -= 1;
    socket.write(okTo(head));
  });
  return { url, seen };
}

const keysOf = (stack: Stack, count: number) =>
  Promise.all(Array.from({ length: count }, () => stack.issueKey(UNLIMITED)));

const statusesOf = async (answers: readonly Promise<{ status: number }>[]): Promise<Record<number, number>> => {
  const statuses: Record<number, number> = {};
  for (const { status } of await Promise.all(answers)) statuses[status] = (statuses[status] ?? 0) + 1;
  return statuses;
};

test('a core gets no more requests at a time, and a single client at most half of them', async () => {
  const { url, seen } = await countingCore(() => sleep(20));
  const stack = await startStack({ CORE_URL: url, CORE_CONCURRENCY: '4' });
  const keys = await keysOf(stack, 4);
  const pets = `${stack.gateway}/v1/pets`;
  const ask = (key: string) => [
    ...Array.from({ length: 15 }, () => send(pets, { key })),
    ...Array.from({ length: 5 }, () => post(pets, { name: 'Rex' }, { key })),
  ];
  expect(await statusesOf(ask(keys[0] ?? ''))).toEqual({ 200: 20 });
  expect(seen.most).toBe(2);
  expect(await statusesOf(keys.flatMap(ask))).toEqual({ 200: 80 });
  expect(seen.most).toBe(4);
});

test('clients take turns, so one with a single request does not wait for the rest of another', async () => {
  const { url, seen } = await countingCore(() => sleep(50));
  const stack = await startStack({ CORE_URL: url, CORE_CONCURRENCY: '1' });
  const [greedy, small] = await keysOf(stack, 2);
  const rest = Array.from({ length: 30 }, () => send(`${stack.gateway}/v1/pets?of=greedy`, { key: greedy }));
  await expect.poll(() => seen.heads.length).toBeGreaterThan(3);
  const before = seen.heads.length;
  for (let count = 0; count < 3; count++) {
    expect((await send(`${stack.gateway}/v1/pets?of=small`, { key: small })).status).toBe(200);
  }
  const of = seen.heads.slice(before).map((head) => (head.includes('of=small') ? 'small' : 'greedy'));
  // Its turn comes after at most one request of the other client.
  expect(of.slice(0, 12).filter((one) => one === 'small')).toHaveLength(3);
  expect(await statusesOf(rest)).toEqual({ 200: 30 });
});

test('clients whose requests hang leave places for others', async () => {
  const { promise, resolve } = Promise.withResolvers<void>();
  const core = await faultyCore(async (socket, head) => {
    if (head.includes('hang')) await promise;
    socket.write(okTo(head));
  });
  const stack = await startStack({ CORE_URL: core, CORE_CONCURRENCY: '8' });
  const [small, ...others] = await keysOf(stack, 4);
  const hanging = others.flatMap((key) =>
    Array.from({ length: 20 }, () => send(`${stack.gateway}/v1/pets?hang`, { key })),
  );
  await eventuallyScraped(stack.adminUrl, (metrics) => metrics.sum('gateway_upstream_queued')).toBeGreaterThan(8);
  expect((await send(`${stack.gateway}/v1/pets`, { key: small })).status).toBe(200);
  resolve();
  // A busy machine sends some of them after the core has answered nothing for a while, and those are refused.
  const { 200: served = 0, 503: refused = 0 } = await statusesOf(hanging);
  expect([served + refused, served >= 16]).toEqual([60, true]);
});

test('reads that have waited in the line are not late when they are sent', async () => {
  const cores = [await countingCore(() => sleep(100)), await countingCore(() => sleep(100))];
  const stack = await startStack({
    CORE_URL: cores.map(({ url }) => url).join(),
    CORE_CONCURRENCY: '4',
  });
  const keys = await keysOf(stack, 3);
  const reads = keys.flatMap((key) => Array.from({ length: 20 }, () => send(`${stack.gateway}/v1/pets`, { key })));
  expect(await statusesOf(reads)).toEqual({ 200: 60 });
  expect(Math.max(...cores.map(({ seen }) => seen.most))).toBeLessThanOrEqual(4);
  expect(cores.reduce((sum, { seen }) => sum + seen.heads.length, 0)).toBe(60);
});

test(
  'what would wait too long is refused at once and costs no token, while another client is served',
  TIMED,
  async () => {
    const { url } = await countingCore(() => sleep(40));
    const stack = await startStack({ CORE_URL: url, CORE_CONCURRENCY: '8' });
    const [greedy, small] = await keysOf(stack, 2);
    const statuses: number[] = [];
    const own: number[] = [];
    const sent: Promise<unknown>[] = [];
    let refused: Awaited<ReturnType<typeof send>> | undefined;
    let remaining = 1_000_000;
    // Five times as many as the core can answer.
    for (let round = 0; round < 150; round++) {
      await sleep(20);
      for (let count = 0; count < 10; count++) {
        sent.push(
          send(`${stack.gateway}/v1/pets`, { key: greedy }).then((answer) => {
            statuses.push(answer.status);
            if (answer.status === 503) refused ??= answer;
            remaining = Math.min(remaining, Number(answer.headers['x-ratelimit-remaining']));
          }),
        );
      }
      if (round % 10 === 0) {
        const askedAt = performance.now();
        sent.push(
          send(`${stack.gateway}/v1/pets`, { key: small }).then(({ status }) => {
            expect(status).toBe(200);
            own.push(performance.now() - askedAt);
          }),
        );
      }
    }
    await Promise.all(sent);
    const count = (status: number) => statuses.filter((one) => one === status).length;
    expect(count(504)).toBe(0);
    expect(count(200)).toBeGreaterThan(100);
    expect(count(503)).toBeGreaterThan(count(200));
    expect(refused?.headers['retry-after']).toBe('1');
    // The minute's bucket refills while the test runs, so no more tokens are missing than requests were admitted.
    expect(1_000_000 - remaining).toBeLessThanOrEqual(count(200));
    expect(own.toSorted((a, b) => a - b)[own.length >> 1]).toBeLessThan(400);
  },
);

test('a client that only has to wait for its turn is not refused, even if nothing is answered', async () => {
  const hanging = await faultyCore((socket, head) => void (head.includes('hang') || socket.write(okTo(head))));
  const stack = await startStack({ CORE_URL: hanging, CORE_CONCURRENCY: '2' });
  const [small = '', ...others] = await keysOf(stack, 9);
  const rest = others.flatMap((key) => Array.from({ length: 5 }, () => send(`${stack.gateway}/v1/pets?hang`, { key })));
  await eventuallyScraped(stack.adminUrl, (metrics) => metrics.sum('gateway_upstream_queued')).toBeGreaterThan(20);
  await sleep(1_000);
  const metrics = await scrape(stack.adminUrl);
  const [waiting, inFlight] = ['queued', 'in_flight'].map((name) => metrics.sum(`gateway_upstream_${name}`));
  expect(waiting).toBe(Number(inFlight) - 2);
  expect((await send(`${stack.gateway}/v1/pets`, { key: small })).status).not.toBe(503);
  await Promise.all(rest);
});

test.for(['GET', 'POST'])('a %s that waits for a core that falls silent goes to the other core', async (method) => {
  let isSilent = true;
  const silent = await faultyCore(
    (socket, head) => void ((!isSilent || head.startsWith('GET /readyz')) && socket.write(okTo(head))),
  );
  const { url, seen } = await countingCore(() => sleep(5));
  const stack = await startStack({ CORE_URL: `${silent},${url}`, CORE_CONCURRENCY: '1', CORE_TIMEOUT_MS: '2000' });
  const keys = await keysOf(stack, 6);
  const ask = (key: string) =>
    method === 'GET' ? send(`${stack.gateway}/v1/pets`, { key }) : post(`${stack.gateway}/v1/pets`, {}, { key });
  const statuses = await statusesOf(keys.flatMap((key) => [ask(key), ask(key)]));
  // Only a write that was sent cannot be repeated.
  expect(statuses).toEqual(method === 'GET' ? { 200: 12 } : { 200: 11, 504: 1 });
  expect(seen.most).toBe(1);
  isSilent = false;
});

test('clients that do not read their large responses take no places from others', async () => {
  const large = 'x'.repeat(30_000_000);
  const core = await faultyCore((socket: Socket, head) => {
    const body = head.includes('large') ? large : '[]';
    socket.write(withIdOf(head, `HTTP/1.1 200 OK\r\ncontent-length: ${body.length}\r\n\r\n${body}`));
  });
  const stack = await startStack({ CORE_URL: core, CORE_CONCURRENCY: '2' });
  const [small, ...others] = await keysOf(stack, 5);
  for (const key of others) {
    const { socket } = await connectRaw(stack.gateway);
    socket.write(`GET /v1/pets?large HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${key}\r\n\r\n`);
    await new Promise((resolve) => socket.once('data', resolve));
    socket.pause();
  }
  expect((await send(`${stack.gateway}/v1/pets`, { key: small })).status).toBe(200);
});

test('a client that resets its connections leaves the line', async () => {
  const { url, seen } = await countingCore(() => sleep(300));
  const stack = await startStack({ CORE_URL: url, CORE_CONCURRENCY: '1' });
  const [gone, small] = await keysOf(stack, 2);
  const sockets = await Promise.all(
    Array.from({ length: 10 }, async () => {
      const { socket } = await connectRaw(stack.gateway);
      socket.write(`GET /v1/pets HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${gone}\r\n\r\n`);
      return socket;
    }),
  );
  await expect.poll(() => seen.heads.length).toBe(1);
  for (const socket of sockets) socket.resetAndDestroy();
  expect((await send(`${stack.gateway}/v1/pets`, { key: small })).status).toBe(200);
  expect(seen.heads.length).toBeLessThan(5);
});

test.for(['GET', 'POST'])(
  'a client that resets its connections holds its places until each %s is answered',
  async (method) => {
    const { url, seen } = await countingCore(() => sleep(150));
    const stack = await startStack({ CORE_URL: url, CORE_CONCURRENCY: '8' });
    const [greedy, small] = await keysOf(stack, 2);
    const end = performance.now() + 2_000;
    const keepLeaving = async () => {
      while (performance.now() < end) {
        const { socket } = await connectRaw(stack.gateway);
        socket.write(`${method} /v1/pets?greedy HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${greedy}\r\n\r\n`);
        await sleep(15);
        socket.resetAndDestroy();
      }
    };
    const leaving = Array.from({ length: 10 }, keepLeaving);
    const statuses = new Set<number>();
    while (performance.now() < end) statuses.add((await send(`${stack.gateway}/v1/pets`, { key: small })).status);
    await Promise.all(leaving);
    expect([...statuses]).toEqual([200]);
    expect(seen.heads.filter((head) => head.includes('greedy')).length).toBeGreaterThan(8);
    // Half of the places, and the one of the other client.
    expect(seen.most).toBeLessThanOrEqual(5);
  },
);

test('once a core that hung has recovered, a burst is served as before', async () => {
  let isSilent = true;
  const core = await faultyCore(async (socket, head) => {
    if (isSilent) return;
    await sleep(5);
    socket.write(okTo(head));
  });
  const stack = await startStack({ CORE_URL: core, CORE_CONCURRENCY: '8', CORE_TIMEOUT_MS: '1500' });
  const key = await stack.issueKey(UNLIMITED);
  const burst = (count: number) =>
    statusesOf(Array.from({ length: count }, () => send(`${stack.gateway}/v1/pets`, { key })));
  expect(Object.keys(await burst(40))).toEqual(['504']);
  expect(Object.keys(await burst(40))).toEqual(['503', '504']);
  isSilent = false;
  await sleep(900);
  expect(await burst(40)).toEqual({ 200: 40 });
});
