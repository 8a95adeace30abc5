import { once } from 'node:events';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { bareCore, faultyCore, okTo, withIdOf } from '../support/faulty-core.ts';
import type { Answer } from '../support/http.ts';
import { answer, askOn, lineTo, lineUnderTest } from '../support/line.ts';
import { eventuallyScraped } from '../support/metrics.ts';
import { connectRaw } from '../support/raw-client.ts';
import { stackBefore } from '../support/stack-before.ts';
import { fact, TIMED } from '../support/timed.ts';
import { unreachableServer } from '../support/unreachable-server.ts';

/**
 * A write reaches the core byte for byte and only once, on a connection that carries no other request at the time. Reads
 * share connections.
 */

const OTHER = '{"name":"Ré\u{1f980}"}';

test('a write consists of its request line, headers, length and body, in that order', async () => {
  const requests: string[] = [];
  const { core, post } = await stackBefore((socket, request) => {
    requests.push(request);
    socket.write(okTo(request));
  });
  const headers = { 'x-request-id': 'abc', 'X-Odd': 'a\tb ~', accept: 'application/json' };
  await post('?x=%41', OTHER, { headers });
  const [head = '', body] = (requests[0] ?? '').split('\r\n\r\n');
  const [line, host, ...lines] = head.split('\r\n');
  expect([line, host]).toEqual(['POST /v1/pets?x=%41 HTTP/1.1', `Host: ${new URL(core).host}`]);
  expect(body).toBe(Buffer.from(OTHER).toString('latin1'));
  expect(lines.at(-1)).toBe(`Content-Length: ${Buffer.byteLength(OTHER)}`);
  for (const sent of ['X-Odd: a\tb ~', 'X-Forwarded-Proto: http', 'X-Forwarded-For: 127.0.0.1'])
    expect(lines.map((text) => text.toLowerCase())).toContain(sent.toLowerCase());
  expect(head).toMatch(/\r\nX-Request-Id: abc\.[0-9a-z]+\r\n/);
  expect(head.match(/\r\n(content-length|transfer-encoding|connection|expect|x-request-id):/gi)).toHaveLength(2);
});

test('a body of any size arrives completely', async () => {
  const sizes: number[] = [];
  const answer = (socket: Socket, request: string) => {
    sizes.push(request.length - request.indexOf('\r\n\r\n') - 4);
    socket.write(okTo(request));
  };
  const { post } = await stackBefore(answer, { BODY_LIMIT_BYTES: '8000000', CORE_TIMEOUT_MS: '30000' });
  const wanted = [2, 1_000, 16_384, 65_536, 1_000_000];
  for (const size of wanted) expect((await post('', JSON.stringify('x'.repeat(size - 2)))).status).toBe(200);
  expect(sizes).toEqual(wanted);
});

test('writes reuse a connection one at a time, each only after the previous response', async () => {
  const underWay = new Map<Socket, number>();
  let overlaps = 0;
  const { post } = await stackBefore((socket, request) => {
    const before = underWay.get(socket) ?? 0;
    if (before > 0) overlaps += 1;
    underWay.set(socket, before + 1);
    setTimeout(() => {
      underWay.set(socket, (underWay.get(socket) ?? 0) - 1);
      socket.write(okTo(request));
    }, 1);
  });
  const client = async () => {
    for (let sent = 0; sent < 20; sent++) expect((await post()).status).toBe(200);
  };
  await Promise.all(Array.from({ length: 8 }, client));
  expect(overlaps).toBe(0);
  expect(underWay.size).toBeLessThanOrEqual(8);
});

test.for([
  ['refuses connections', () => Promise.resolve('http://127.0.0.1:1')],
  ['does not accept connections', unreachableServer],
  ['has a name that cannot be resolved', () => Promise.resolve('http://no-such-host.invalid:80')],
] as const)(
  'if one core %s, reads and writes go to the other one, and a write arrives once',
  async ([, unreachable]) => {
    const received: string[] = [];
    const good = await faultyCore((socket, request) => {
      if (request.startsWith('POST')) received.push(request);
      socket.write(okTo(request));
    });
    const { get, post } = await stackBefore(`${await unreachable()},${good}`);
    for (let sent = 1; sent <= 6; sent++) {
      expect([(await get()).status, (await post()).status]).toEqual([200, 200]);
      expect(received).toHaveLength(sent);
    }
  },
);

test('a write to a core that closes each new connection gets 502', async () => {
  const closing = () => bareCore((socket) => void socket.destroy());
  const { post } = await stackBefore(`${await closing()},${await closing()}`);
  for (let sent = 1; sent <= 6; sent++) expect((await post()).status).toBe(502);
});

test('a write whose client disconnects while it waits for a connection is not sent', async () => {
  const waiting: [Socket, string][] = [];
  const { stack, key, post } = await stackBefore((socket, request) => void waiting.push([socket, request]));
  const answerAll = () => {
    for (const [socket, request] of waiting.splice(0)) socket.write(okTo(request));
  };
  // A single client gets half of the 64 connections.
  const sent = Array.from({ length: 32 }, () => post());
  await expect.poll(() => waiting.length).toBe(32);
  const leaving = await connectRaw(stack.gateway);
  const head = `POST /v1/pets?left HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${key}\r\n`;
  leaving.socket.write(`${head}Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}`);
  await eventuallyScraped(stack.adminUrl, (metrics) => metrics.sum('gateway_upstream_queued')).toBe(1);
  leaving.socket.resetAndDestroy();
  await expect.poll(() => stack.log).toContainEqual(expect.objectContaining({ msg: 'request', status: 499 }));
  answerAll();
  expect(new Set((await Promise.all(sent)).map(({ status }) => status))).toEqual(new Set([200]));
  const last = post('?last');
  await expect.poll(() => waiting.length).toBe(1);
  expect(waiting[0]?.[1]).toContain('?last');
  answerAll();
  expect((await last).status).toBe(200);
});

test.for(['GET', 'POST'])(
  'a %s whose client disconnects is not repeated, and counts until it is answered',
  async (method) => {
    const waiting: [Socket, string][] = [];
    const hanging = () =>
      faultyCore((socket, head) => {
        if (head.startsWith('GET /readyz')) socket.write(okTo(head));
        else waiting.push([socket, head]);
      });
    const { stack, key } = await stackBefore(`${await hanging()},${await hanging()}`);
    const inFlight = () => eventuallyScraped(stack.adminUrl, (metrics) => metrics.sum('gateway_upstream_in_flight'));
    const leaving = await connectRaw(stack.gateway);
    leaving.socket.write(`${method} /v1/pets HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${key}\r\n\r\n`);
    await expect.poll(() => waiting.length).toBe(1);
    leaving.socket.resetAndDestroy();
    // Longer than the time after which the other core would get a read.
    await sleep(700);
    await inFlight().toBe(1);
    for (const [socket, head] of waiting) socket.write(okTo(head));
    await inFlight().toBe(0);
    expect(waiting).toHaveLength(1);
  },
);

test('a write that is sent while the core closes its idle connection gets another connection', async () => {
  const idle = new Set<Socket>();
  const { stack, key, post } = await stackBefore((socket, request) => {
    idle.add(socket);
    socket.write(okTo(request));
  });
  expect((await post()).status).toBe(200);
  const client = await connectRaw(stack.gateway);
  const request = `POST /v1/pets HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${key}\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}`;
  for (let round = 0; round < 20; round++) {
    // Both sockets of the gateway become readable between two polls of the event loop, the client's first.
    setTimeout(() => {
      client.socket.write(request);
      for (const socket of idle) socket.end();
      idle.clear();
    });
    const [answered] = (await once(client.socket, 'data')) as [Buffer];
    expect(answered.toString('latin1').slice(0, 12)).toBe('HTTP/1.1 200');
  }
});

test("an idle connection is closed before the core's Keep-Alive timeout", async () => {
  const { ask, connections } = await lineUnderTest(
    (socket, path) => void socket.write(answer(path, `Keep-Alive: timeout=${path === '/soon' ? 1 : 2}`)),
  );
  expect(await ask('/soon')).toBe('/soon');
  await expect.poll(() => connections[0]?.destroyed).toBe(true);
  expect(await ask('/later')).toBe('/later');
  expect(await ask('/later')).toBe('/later');
  expect(connections).toHaveLength(2);
  // The core would keep it open for 2 s.
  await expect.poll(() => connections[1]?.destroyed).toBe(true);
});

test('a connection is not reused if its response arrived before its request was sent', async () => {
  const sockets = new Set<Socket>();
  const early = await bareCore((socket) => {
    socket.once('data', () => {
      sockets.add(socket);
      if (sockets.size === 1) socket.pause();
      socket.write('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]');
    });
  });
  const line = lineTo(early);
  const body = Buffer.alloc(8_000_000, 'x');
  expect(await askOn(line, { method: 'POST', target: '/large', body })).toMatchObject({ body: '[]' });
  expect(await askOn(line, { method: 'POST', target: '/next', body: Buffer.from('x') })).toMatchObject({ body: '[]' });
  expect(sockets.size).toBe(2);
});

test('a write whose response has the id of another request gets 502', async () => {
  const text = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]';
  const wrong = withIdOf('x\r\nX-Request-Id: of-another\r\n', text);
  const { get, post } = await stackBefore(
    (socket, request) => void socket.write(request.includes('wrong') ? wrong : okTo(request)),
  );
  const answers = [await post('?right'), await post('?wrong'), await post('?right'), await get()];
  expect(answers.map(({ status }) => status)).toEqual([200, 502, 200, 200]);
});

test.for([
  ['200', 'HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nELSE'],
  ['408', 'HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n'],
])('on a reused connection, a stray %s without an id is not taken for the response to a write', async ([, stray]) => {
  const used = new Set<Socket>();
  const { post } = await stackBefore((socket, request) => {
    // The core sent it before this request arrived, for example because the connection had been idle for too long.
    if (used.has(socket) && request.includes('?late')) socket.write(stray as string);
    else socket.write(okTo(request));
    used.add(socket);
  });
  const answers = [await post(), await post('?late'), await post()];
  expect(answers.map(({ status, json }) => [status, (json as { code?: string }).code])).toEqual([
    [200, undefined],
    [502, 'bad_gateway'],
    [200, undefined],
  ]);
});

test('responses of a core need no ids, because each then gets a connection of its own', async () => {
  const sockets = new Set<Socket>();
  const { post, get } = await stackBefore((socket) => {
    sockets.add(socket);
    socket.write('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]');
  });
  const answers = [await post(), await get(), await post(), await get()];
  expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
  expect(sockets.size).toBe(4);
});

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
  let isAnswering = true;
  const { connections, get, post, many } = await behind((socket, head) => {
    if (isAnswering) socket.write(okTo(head));
    else waiting.push([socket, head]);
  });
  await get();
  isAnswering = false;
  const of = (method: string) => waiting.filter(([, head]) => head.startsWith(method));
  const writes = Array.from({ length: 5 }, () => post());
  await expect.poll(() => of('POST').length).toBe(5);
  const reads = many(5);
  // A late read may be sent twice, so that the core has more than five of them.
  await expect.poll(() => new Set(of('GET').map(([, head]) => limitIn(head))).size).toBe(5);
  const connectionsOf = (method: string) => of(method).map(([socket]) => connections.indexOf(socket));
  const ofWrites = new Set(connectionsOf('POST'));
  expect(ofWrites.size).toBe(5);
  for (const connection of connectionsOf('GET')) expect(ofWrites).not.toContain(connection);
  isAnswering = true;
  for (const [socket, head] of waiting) socket.write(okTo(head));
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

// If the reads do not arrive within a few milliseconds, they do not share a connection.
test('reads behind one that was retried on another connection are retried too', TIMED, async () => {
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
