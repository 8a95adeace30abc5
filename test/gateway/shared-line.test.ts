import http from 'node:http';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { okTo, withIdOf } from '../support/faulty-core.ts';
import type { Answer } from '../support/http.ts';
import { stackBefore } from '../support/stack-before.ts';
import { fact, TIMED } from '../support/timed.ts';

/** Starts a gateway in front of a core that records its connections and answers with `answer`. */
async function behind(answer: (socket: Socket, head: string, connection: number) => void) {
  const connections: Socket[] = [];
  const stack = await stackBefore((socket, head) => {
    if (!connections.includes(socket)) connections.push(socket);
    answer(socket, head, connections.indexOf(socket));
  });
  const many = (count: number, headers: Record<string, string> = {}) =>
    Promise.all(Array.from({ length: count }, (_, at) => stack.get(`?limit=${at + 1}`, { headers })));
  return { ...stack, connections, many };
}

const limitIn = (head: string): string => /limit=(\d+)/.exec(head)?.[1] ?? '';

/** Returns the expected status and text of each response. */
const ownAnswers = (count: number) => Array.from({ length: count }, (_, at) => [200, String(at + 1)]);
const seen = (answers: readonly Answer[]) => answers.map(({ status, text }) => [status, text]);

/** Returns a response that contains the `limit` of its request. */
function echoOf(head: string, ...lines: readonly string[]): string {
  const limit = limitIn(head);
  const all = ['HTTP/1.1 200 OK', 'content-type: application/json', ...lines, `content-length: ${limit.length}`];
  return withIdOf(head, `${all.join('\r\n')}\r\n\r\n${limit}`);
}

test.for<[what: string, headers: Record<string, string>]>([
  ['ids of the gateway', {}],
  ['the same id', { 'x-request-id': 'constant' }],
])('reads with %s share a few connections, and each gets its own response', TIMED, async ([, headers]) => {
  const { connections, get, many } = await behind((socket, head) => void socket.write(echoOf(head)));
  await get('?limit=0');
  const answers = await many(100, headers);
  await fact(() => expect(seen(answers)).toEqual(ownAnswers(100)));
  for (let at = 1; at <= 50; at++) await get(`?limit=${at}`, { headers });
  expect(connections.length).toBeLessThan(12);
});

test('a write shares no connection with other requests', async () => {
  const waiting: [Socket, string][] = [];
  const { connections, get, post, many } = await behind((socket, head) => void waiting.push([socket, head]));
  const answerAll = () => waiting.splice(0).map(([socket, head]) => socket.write(okTo(head)));
  const arrived = (count: number) => expect.poll(() => waiting.length).toBeGreaterThanOrEqual(count);
  const first = get();
  await arrived(1);
  answerAll();
  await first;
  const writes = Array.from({ length: 5 }, () => post());
  await arrived(5);
  const reads = many(5);
  await arrived(10);
  const connectionsOf = (method: string) =>
    waiting.filter(([, head]) => head.startsWith(method)).map(([socket]) => connections.indexOf(socket));
  const ofWrites = new Set(connectionsOf('POST'));
  expect(ofWrites.size).toBe(5);
  for (const connection of connectionsOf('GET')) expect(ofWrites).not.toContain(connection);
  answerAll();
  const answers = [...(await Promise.all(writes)), ...(await reads)];
  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
});

test('reads that are lost with their connection are retried once, each on its own connection', async () => {
  const { many } = await behind((socket, head, connection) => {
    if (connection === 0) socket.destroy();
    else socket.write(echoOf(head));
  });
  expect(seen(await many(40))).toEqual(ownAnswers(40));
});

test('reads after a response that closes the connection are retried once, and all succeed', async () => {
  const { many } = await behind((socket, head, connection) => {
    if (socket.writableEnded) return;
    if (connection === 0 && limitIn(head) === '5') socket.end(echoOf(head, 'connection: close'));
    else socket.write(echoOf(head));
  });
  expect(seen(await many(20))).toEqual(ownAnswers(20));
});

test('a chunked response gets a length; a response without a body keeps its headers', async () => {
  const { get } = await behind((socket, head) => {
    if (head.startsWith('HEAD')) socket.write('HTTP/1.1 200 OK\r\ncontent-length: 12345\r\n\r\n');
    else socket.write('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\na\u00e9\r\n1\r\nb\r\n0\r\n\r\n');
  });
  expect(await get()).toMatchObject({ text: 'aéb', headers: { 'content-length': '4' } });
  expect(await get('', { method: 'HEAD' })).toMatchObject({ text: '', headers: { 'content-length': '12345' } });
});

test('clients that disconnect do not affect other clients, each of which gets its own response', async () => {
  const { stack, key, many } = await behind((socket, head) => void setTimeout(() => socket.write(echoOf(head)), 30));
  for (let round = 0; round < 5; round++) {
    const leaving = Array.from({ length: 20 }, () =>
      http
        .get(`${stack.gateway}/v1/pets`, { agent: false, headers: { authorization: `Bearer ${key}` } })
        .on('error', () => {}),
    );
    const staying = many(5);
    await sleep(15);
    for (const request of leaving) request.destroy();
    expect(seen(await staying)).toEqual(ownAnswers(5));
  }
});

test('reads behind one that was retried on another connection are retried too', async () => {
  let asked = 0;
  const turns = new WeakMap<Socket, Promise<unknown>>();
  const { get } = await behind((socket, head) => {
    // Each connection answers in order. The first read is answered late. The next one is never answered on its first
    // connection, and is answered late on another.
    const isFirst = head.includes('/v1/pets/7 ') && asked++ === 0;
    const ms = limitIn(head) === '1' ? 150 : head.includes('/v1/pets/7 ') ? 300 : 0;
    const turn = (turns.get(socket) ?? Promise.resolve()).then(() => (isFirst ? new Promise(() => {}) : sleep(ms)));
    turns.set(
      socket,
      turn.then(() => socket.write(okTo(head))),
    );
  });
  await get('?limit=2');
  const answers = await Promise.all(['?limit=1', '/7', '?limit=3', '?limit=4', '?limit=5'].map((rest) => get(rest)));
  expect(answers.map(({ status }) => status)).toEqual(Array(5).fill(200));
});
