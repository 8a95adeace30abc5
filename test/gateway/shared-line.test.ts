import http from 'node:http';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import { faultyCore, okTo, withIdOf } from '../support/faulty-core.ts';
import { post, send } from '../support/http.ts';
import { type Stack, startStack } from '../support/stack.ts';
import { fact, TIMED } from '../support/timed.ts';

const big = { plan: 'enterprise', minute: 1_000_000, day: 1_000_000 };

/** A core that counts its connections and answers as the test says. */
async function core(answer: (socket: Socket, head: string, connection: number) => void) {
  const connections: Socket[] = [];
  const url = await faultyCore((socket, head) => {
    if (!connections.includes(socket)) connections.push(socket);
    answer(socket, head, connections.indexOf(socket));
  });
  return { url, connections };
}

const many = (stack: Stack, key: string, count: number, path = '/v1/pets') =>
  Promise.all(Array.from({ length: count }, (_, at) => send(`${stack.gateway}${path}?limit=${at + 1}`, { key })));

/** An answer with the `limit` of its request. */
function echoOf(head: string): string {
  const limit = /limit=(\d+)/.exec(head)?.[1] ?? '';
  const text = `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${limit.length}\r\n\r\n${limit}`;
  return withIdOf(head, text);
}

test('reads share a few connections, and each gets its own answer', TIMED, async () => {
  const echo = await core((socket, head) => void socket.write(echoOf(head)));
  const stack = await startStack({ CORE_URL: echo.url });
  const key = await stack.issueKey(big);
  await send(`${stack.gateway}/v1/pets?limit=0`, { key });
  const answers = await many(stack, key, 100);
  await fact(() => {
    expect(answers.map(({ text }) => Number(text))).toEqual(Array.from({ length: 100 }, (_, at) => at + 1));
  });
  expect(echo.connections.length).toBeLessThan(12);
});

test('a write shares no connection with other requests', async () => {
  const waiting: [Socket, string][] = [];
  const held = await core((socket, head) => void waiting.push([socket, head]));
  const stack = await startStack({ CORE_URL: held.url });
  const key = await stack.issueKey(big);
  const answerAll = () => waiting.splice(0).map(([socket, head]) => socket.write(okTo(head)));
  const arrived = (count: number) =>
    vi.waitFor(() => expect(waiting.length).toBeGreaterThanOrEqual(count), { timeout: 30_000 });
  const first = send(`${stack.gateway}/v1/pets`, { key });
  await arrived(1);
  answerAll();
  await first;
  const writes = Array.from({ length: 5 }, () => post(`${stack.gateway}/v1/pets`, {}, { key }));
  await arrived(5);
  const reads = many(stack, key, 5);
  await arrived(10);
  const connectionsOf = (method: string) =>
    waiting.filter(([, head]) => head.startsWith(method)).map(([socket]) => held.connections.indexOf(socket));
  const ofWrites = new Set(connectionsOf('POST'));
  expect(ofWrites.size).toBe(5);
  for (const connection of connectionsOf('GET')) expect(ofWrites).not.toContain(connection);
  answerAll();
  const answers = [...(await Promise.all(writes)), ...(await reads)];
  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
});

test('reads lost with their connection are retried once, each on its own connection', async () => {
  const breaking = await core((socket, head, connection) => {
    if (connection === 0) socket.destroy();
    else socket.write(okTo(head));
  });
  const stack = await startStack({ CORE_URL: breaking.url });
  const key = await stack.issueKey(big);
  const answers = await many(stack, key, 40);
  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
});

test('reads after an answer that closes the connection are retried once, and all succeed', async () => {
  const closing = await core((socket, head, connection) => {
    const limit = /limit=(\d+)/.exec(head)?.[1] ?? '';
    if (socket.writableEnded) return;
    const close = connection === 0 && limit === '5' ? 'connection: close\r\n' : '';
    const text = withIdOf(
      head,
      `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n${close}content-length: ${limit.length}\r\n\r\n${limit}`,
    );
    if (close === '') socket.write(text);
    else socket.end(text);
  });
  const stack = await startStack({ CORE_URL: closing.url });
  const answers = await many(stack, await stack.issueKey(big), 20);
  expect(answers.map(({ status, text }) => [status, Number(text)])).toEqual(
    Array.from({ length: 20 }, (_, at) => [200, at + 1]),
  );
});

test('a read of a core that breaks every connection is sent twice and then answered with 502', async () => {
  const asked: string[] = [];
  const broken = await core((socket, head) => {
    asked.push(head);
    socket.destroy();
  });
  const stack = await startStack({ CORE_URL: broken.url });
  expect((await send(`${stack.gateway}/v1/pets`, { key: await stack.issueKey() })).status).toBe(502);
  expect(asked).toHaveLength(2);
});

test('an answer too large to be buffered is streamed on its own connection', async () => {
  const large = 'x'.repeat(1_000_000);
  const mixed = await core((socket, head) => {
    if (!head.includes('limit=1 ')) socket.write(okTo(head));
    else socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${large.length}\r\n\r\n${large}`);
  });
  const stack = await startStack({ CORE_URL: mixed.url });
  const answers = await many(stack, await stack.issueKey(big), 10);
  expect(answers.map(({ text }) => text.length)).toEqual([1_000_000, ...Array<number>(9).fill(2)]);
});

test('a chunked answer gets a length; an answer without a body keeps its headers', async () => {
  const chunked = await core((socket, head) => {
    if (head.startsWith('HEAD')) socket.write('HTTP/1.1 200 OK\r\ncontent-length: 12345\r\n\r\n');
    else socket.write('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\na\u00e9\r\n1\r\nb\r\n0\r\n\r\n');
  });
  const stack = await startStack({ CORE_URL: chunked.url });
  const key = await stack.issueKey();
  expect(await send(`${stack.gateway}/v1/pets`, { key })).toMatchObject({
    text: 'aéb',
    headers: { 'content-length': '4' },
  });
  expect(await send(`${stack.gateway}/v1/pets`, { key, method: 'HEAD' })).toMatchObject({
    text: '',
    headers: { 'content-length': '12345' },
  });
});

test('clients that leave do not affect those behind them, each of which gets its own answer', async () => {
  const slow = await core((socket, head) => void setTimeout(() => socket.write(echoOf(head)), 30));
  const stack = await startStack({ CORE_URL: slow.url });
  const key = await stack.issueKey(big);
  for (let round = 0; round < 5; round++) {
    const leaving = Array.from({ length: 20 }, () =>
      http
        .get(`${stack.gateway}/v1/pets`, { agent: false, headers: { authorization: `Bearer ${key}` } })
        .on('error', () => {}),
    );
    const staying = many(stack, key, 5);
    await sleep(15);
    for (const request of leaving) request.destroy();
    expect((await staying).map(({ status, text }) => [status, text])).toEqual(
      ['1', '2', '3', '4', '5'].map((limit) => [200, limit]),
    );
  }
});

test('reads behind one that was sent again elsewhere are sent elsewhere too', async () => {
  let asked = 0;
  const turns = new WeakMap<Socket, Promise<unknown>>();
  const silent = await core((socket, head) => {
    // In order on each connection: the late one; then one that is never answered where it was asked first, and late
    // elsewhere.
    const isFirst = head.includes('/v1/pets/7 ') && asked++ === 0;
    const ms = head.includes('limit=1 ') ? 150 : head.includes('/v1/pets/7 ') ? 300 : 0;
    const turn = (turns.get(socket) ?? Promise.resolve()).then(() => (isFirst ? new Promise(() => {}) : sleep(ms)));
    turns.set(
      socket,
      turn.then(() => socket.write(okTo(head))),
    );
  });
  const stack = await startStack({ CORE_URL: silent.url });
  const key = await stack.issueKey(big);
  const read = (path: string) => send(`${stack.gateway}/v1/pets${path}`, { key });
  await read('?limit=2');
  const answers = await Promise.all(['?limit=1', '/7', '?limit=3', '?limit=4', '?limit=5'].map(read));
  expect(answers.map(({ status }) => status)).toEqual(Array(5).fill(200));
});

test('other reads do not wait behind a late first answer', TIMED, async () => {
  const late = await core(
    (socket, head) =>
      void (head.includes('limit=99') ? setTimeout(() => socket.write(okTo(head)), 1_000) : socket.write(okTo(head))),
  );
  const stack = await startStack({ CORE_URL: late.url });
  const key = await stack.issueKey(big);
  await send(`${stack.gateway}/v1/pets`, { key });
  const first = send(`${stack.gateway}/v1/pets?limit=99`, { key });
  await sleep(100);
  const before = performance.now();
  const others = await many(stack, key, 10);
  const ms = performance.now() - before;
  const statuses = [...others, await first].map(({ status }) => status);
  await fact(() => expect(new Set(statuses)).toEqual(new Set([200])));
  expect(ms).toBeLessThan(500);
});
