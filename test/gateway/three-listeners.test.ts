import net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import tls from 'node:tls';
import { expect, test } from 'vitest';
import { ERRORS, type ErrorCode } from '../../shared/http/errors.ts';
import { post, send } from '../support/http.ts';
import { inTurn } from '../support/in-turn.ts';
import { type Listener, startListeners } from '../support/listeners.ts';
import { connectRaw } from '../support/raw-client.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { ADMIN_TOKEN, startStack } from '../support/stack.ts';
import { thoroughly } from '../support/thorough.ts';

/** Tests the behaviour that the listeners for clients, operators and internal services share. */

const { stack, secure, ca, listeners } = await startListeners('GET  a');
const hostOf = ({ url }: Listener) => `Host: ${new URL(url).host}\r\n`;
const bearer = ({ key }: Listener) => (key === undefined ? '' : `Authorization: Bearer ${key}\r\n`);
const own = (to: Listener) => hostOf(to) + bearer(to);
const get = (to: Listener, version = 'HTTP/1.1', headers = own(to)) => `GET ${to.read} ${version}\r\n${headers}\r\n`;

const writeHead = (to: Listener, headers: string) =>
  `POST ${to.write} HTTP/1.1\r\n${own(to)}Content-Type: application/json\r\n${headers}\r\n`;
const write = (to: Listener, headers = '') =>
  writeHead(to, `${headers}Content-Length: ${to.body.length}\r\n`) + to.body;
const IN_CHUNKS = 'Transfer-Encoding: chunked\r\n';
const chunk = (text: string) => `${text.length.toString(16)}\r\n${text}\r\n`;

/** Sends bytes in one or more pieces, and reads until the server closes the connection. */
async function exchange({ url }: Listener, bytes: string | readonly string[], ends = false): Promise<string> {
  const { socket, received, closed } = await connectRaw(url, { ca });
  socket.setNoDelay();
  for (const [at, piece] of [bytes].flat().entries()) {
    if (at > 0) await sleep(10);
    socket.write(piece, 'latin1');
  }
  if (ends) socket.end();
  await closed;
  socket.destroy();
  return received();
}

const statuses = (received: string) =>
  (received.match(/HTTP\/1\.1 \d{3} /g) ?? []).map((line) => Number(line.slice(9)));

/**
 * Sends each string on a connection of its own, with fewer connections at once than the operators' listener accepts.
 * @returns each string with the statuses of its responses
 */
const exchanges = (to: Listener, all: readonly (string | readonly string[])[]) =>
  inTurn(all, 100, async (bytes) => [bytes, statuses(await exchange(to, bytes))]);

// This test must run first. Refusals in later tests are charged to the same address, which then gets 429.
test.for(listeners.filter(({ key }) => key !== undefined))('$name: two credentials get 401', async (to) => {
  for (const second of [bearer(to), 'Authorization: Bearer wrong\r\n'])
    expect(statuses(await exchange(to, get(to, 'HTTP/1.1', `${own(to)}${second}Connection: close\r\n`)))).toEqual([
      401,
    ]);
});

test.for(listeners)(
  '$name: a request target in absolute form is accepted only if it names the listener',
  async (to) => {
    const { host } = new URL(to.url);
    const asked = (authority: string) =>
      exchange(to, last(to).replace(`GET ${to.read} `, `GET http://${authority}${to.read} `)).then(statuses);
    expect([await asked(host), await asked('elsewhere')]).toEqual([[200], [400]]);
  },
);

test.for(listeners)(
  '$name: a client that half-closes its connection after its requests gets all responses',
  async (to) => {
    for (const count of [1, 2, 5]) {
      expect(statuses(await exchange(to, get(to).repeat(count), true))).toEqual(Array(count).fill(200));
    }
    expect(statuses(await exchange(to, get(to, 'HTTP/1.0'), true))).toEqual([200]);
    // The half-close may arrive while the response is being sent.
    const { socket, received, closed } = await connectRaw(to.url, { ca });
    socket.write(get(to).repeat(2));
    setImmediate(() => socket.end());
    await closed;
    expect(statuses(received())).toEqual([200, 200]);
  },
);

test.for(listeners)('$name: an incomplete request that ends with a half-close gets 400', async (to) => {
  const incomplete = await exchange(to, get(to).slice(0, -10), true);
  expect([statuses(incomplete), incomplete]).toEqual([[400], expect.stringContaining('before it was complete.')]);
  const post = `POST ${to.read} HTTP/1.1\r\n${own(to)}Content-Type: application/json\r\n`;
  const [status = 0] = statuses(await exchange(to, `${post}Content-Length: 100\r\n\r\n{"name`, true));
  expect([400, 405]).toContain(status);
});

test.for(listeners)(
  '$name: a malformed request gets a response in the Error shape, and its connection is closed',
  async (to) => {
    const headers = `${own(to)}`;
    const rows: [bytes: string, status: number][] = [
      [`BREW ${to.read} HTTP/1.1\r\n${headers}\r\n`, 400],
      [`POST ${to.read} HTTP/1.1\r\n${headers}Content-Length: x\r\n\r\n`, 400],
      [`POST ${to.read} HTTP/1.1\r\n${headers}Content-Length: 1\r\nContent-Length: 2\r\n\r\n`, 400],
      ['garbage\r\n\r\n', 400],
      [`GET ${to.read}\r\n\r\n`, 400],
      [`GET ${to.read} http/1.1\r\n${headers}\r\n`, 400],
      [`OPTIONS ${to.read} RTSP/1.0\r\n${headers}\r\n`, 400],
      [`SOURCE ${to.read} ICE/1.0\r\n${headers}\r\n`, 400],
      [`GET  ${to.read} HTTP/1.1\r\n${headers}\r\n`, 400],
      [`GET ${to.read}  HTTP/1.1\r\n${headers}\r\n`, 400],
      [`POST  ${to.read} HTTP/1.1\r\n${headers}Content-Length: 2\r\n\r\n{}`, 400],
      [`GET ${to.read} HTTP/3.0\r\n${headers}\r\n`, 505],
      [`GET ${to.read} HTTP/1.1\r\n${headers}${'X: y\r\n'.repeat(1_200)}\r\n`, 431],
      [`GET ${to.read} HTTP/1.1\r\n${headers}X: ${'y'.repeat(50_000)}\r\n\r\n`, 431],
      [`GET ${to.read} HTTP/1.1\r\n${bearer(to)}\r\n`, 400],
      [`GET ${to.read} HTTP/1.1\r\n${headers}${hostOf(to)}\r\n`, 400],
      [`GET ${to.read} HTTP/1.1\r\nHost: a b\r\n${bearer(to)}\r\n`, 400],
      [`GET ${to.read} HTTP/1.1\r\n${headers}Expect: banana\r\n\r\n`, 417],
      [`POST ${to.read} HTTP/1.1\r\n${headers}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n`, 400],
      [`POST ${to.read} HTTP/1.0\r\n${headers}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n`, 400],
      [`CONNECT a:1 HTTP/1.1\r\n${headers}\r\n`, 405],
    ];
    for (const [bytes, status] of rows) {
      const answer = await exchange(to, bytes);
      expect([bytes.slice(0, 80), statuses(answer)]).toEqual([bytes.slice(0, 80), [status]]);
      const [head = '', body = ''] = answer.split('\r\n\r\n');
      const error = JSON.parse(body) as { code: ErrorCode };
      expect(error).toEqual({ code: expect.any(String), message: expect.any(String), status });
      expect(ERRORS[error.code].status).toBe(status);
      expect(head).toMatch(/^Connection: close$/m);
      expect(head).toMatch(/^X-Request-Id: \S+$/m);
      expect(head).toMatch(/^X-Content-Type-Options: nosniff$/m);
    }
  },
);

test.for(listeners)('$name: a malformed request is logged once, with its id and cause', async (to) => {
  const answer = await exchange(to, 'garbage\r\n\r\n');
  const requestId = /^X-Request-Id: (\S+)\r$/m.exec(answer)?.[1];
  const lines = () => to.log.filter((line) => line.requestId === requestId);
  const line = { level: 30, status: 400, code: 'invalid_request', reason: 'NO_REQUEST_LINE' };
  await expect.poll(lines).toEqual([expect.objectContaining(line)]);
  expect(lines()[0]?.msg).toMatch(/request$/);
});

const LAST = 'Connection: close\r\n\r\n';
const last = (to: Listener) => get(to).replace(/\r\n$/, LAST);
/** Splits the string in two at each position. */
const cuts = (text: string, upTo: number): [string, string][] =>
  Array.from({ length: upTo }, (_, at) => [text.slice(0, at + 1), text.slice(at + 1)]);

test.for(listeners)(
  '$name: a request line with two spaces is refused, even after other requests and however it is split',
  async (to) => {
    const tight = get(to).replaceAll(': ', ':');
    const lines = [get(to), tight].flatMap((text) => [text.replace(' ', '  '), text.replace(' HTTP', '  HTTP')]);
    const bodied = write(to).replace(' ', '  ');
    const whole = [
      ...lines,
      bodied,
      ...lines.map((line) => `\r\n${line}`),
      ...lines.map((line) => `\n\r\n\r\n${line}`),
    ];
    const halves = (line: string) =>
      cuts(line, line.indexOf('HTTP') + 1).filter((_, at) => at % thoroughly(1, 2) === 0);
    const alone = lines.flatMap((line) => [line, ...halves(line)]);
    const behind = lines.flatMap((line) => [
      get(to) + line + get(to),
      write(to) + line + get(to),
      writeHead(to, IN_CHUNKS) + chunk(to.body) + chunk('') + line + get(to),
      ...halves(line).map(([one, other]) => [get(to) + one, other + get(to)]),
    ]);
    expect(await exchanges(to, [...whole, ...alone])).toEqual([...whole, ...alone].map((bytes) => [bytes, [400]]));
    const good = (bytes: string | readonly string[]) => (String(bytes).startsWith('GET') ? 200 : 201);
    expect(await exchanges(to, behind)).toEqual(behind.map((bytes) => [bytes, [good(bytes), 400]]));
  },
);

test.for(listeners)(
  '$name: a pipeline is read correctly, however it is split and whatever its bodies contain',
  async (to) => {
    const [one, other] = [to.body.slice(0, 9), to.body.slice(9)];
    const chunks = writeHead(to, IN_CHUNKS) + chunk(one) + chunk(other) + chunk('');
    const trailers = `${chunks.slice(0, -2)}X: y\r\n\r\n`;
    const blank = to.body.replace('{', '{\r\n\r\n');
    const inChunks = writeHead(to, IN_CHUNKS) + chunk(blank) + chunk('');
    for (const text of [write(to), chunks, trailers, write({ ...to, body: blank }), inChunks]) {
      const bytes = text + last(to);
      const cut = cuts(bytes, text.length + 4).filter((_, at) => at % thoroughly(8, 32) === 0 || at > text.length - 6);
      const pipelines = [bytes, ...cut];
      expect(await exchanges(to, pipelines)).toEqual(pipelines.map((pipeline) => [pipeline, [201, 200]]));
    }
  },
);

test.for(listeners)('$name: a body may have 500 chunks, and one more for each 128 bytes', async (to) => {
  const [first, rest] = [to.body[0] as string, to.body.slice(1)];
  const inChunks = (count: number) =>
    writeHead(to, IN_CHUNKS) + chunk(first) + chunk(' ').repeat(count - 2) + chunk(rest) + chunk('') + last(to);
  expect(statuses(await exchange(to, inChunks(500)))).toEqual([201, 200]);
  const refused = await exchange(to, inChunks(600));
  expect([statuses(refused), refused]).toEqual([[413], expect.stringContaining('too many small chunks')]);
});

const UPGRADE = 'Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n';

type Pipeline = [bytes: string | readonly string[], statuses: readonly number[]];

/**
 * Pipelines with unusual or malformed requests, and the statuses of their responses. The last one closes the
 * connection.
 */
function pipelinesOf(to: Listener): Pipeline[] {
  const [read, good] = [get(to), write(to)];
  const connect = `${good.repeat(10)}CONNECT a:1 HTTP/1.1\r\n${hostOf(to)}\r\n`;
  const ignored = read.replace(/\r\n$/, `${UPGRADE}\r\n`);
  const inChunks = (headers = '') => writeHead(to, headers + IN_CHUNKS) + chunk(to.body);
  const pipelines: Pipeline[] = [connect, connect + good].map((bytes) => [bytes, [...Array(10).fill(201), 405]]);
  for (const text of [write(to, UPGRADE), inChunks(UPGRADE) + chunk('')]) {
    pipelines.push([text + last(to), [201, 200]]);
    pipelines.push([good + text + good + last(to), [201, 201, 201, 200]]);
  }
  for (const headers of ['', UPGRADE]) {
    const bad = `${writeHead(to, headers + IN_CHUNKS)}5\r\n{"nam\r\nzz\r\n\r\n`;
    pipelines.push([bad + good, [400]], [good.repeat(3) + bad, [201, 201, 201, 400]], [ignored + bad, [200, 400]]);
  }
  for (const text of ['nonsense\r\n\r\n', read.replace('GET', 'BREW'), read.replace('\r\n', '\n')])
    for (const bytes of [ignored + text, [ignored, text]]) pipelines.push([bytes, [200, 400]]);
  // A line that ends without a carriage return, or with two.
  for (const bytes of [
    read.replace('\r\n', '\n'),
    read.replace(/\r\n\r\n$/, '\n\r\n'),
    read.replace(/\r\n\r\n$/, '\r\n\n'),
    read.replaceAll('\r\n', '\n'),
    read.replace(/\r\n$/, '\r\r\n'),
    `${inChunks()}0\n\n`,
    `${inChunks()}0\r\n\n`,
  ])
    pipelines.push([bytes + read, [400]]);
  return pipelines;
}

test.for(listeners)(
  '$name: CONNECT, an ignored upgrade and malformed bytes are answered immediately after earlier requests',
  async (to) => {
    for (const [bytes, expected] of pipelinesOf(to)) {
      for (const ends of [false, true]) {
        const startedAt = performance.now();
        expect([bytes, statuses(await exchange(to, bytes, ends))]).toEqual([bytes, expected]);
        expect(performance.now() - startedAt).toBeLessThan(4_000);
      }
    }
  },
);

test.for(listeners)('$name: every response sets nosniff, and responses to operators also set no-store', async (to) => {
  for (const request of [
    get(to),
    get({ ...to, read: '/livez' }),
    get({ ...to, key: undefined }),
    get({ ...to, read: '/nothing' }),
    get({ ...to, read: '/v1/openapi.json' }),
    get({ ...to, read: '/docs/' }),
  ]) {
    const head = (await exchange(to, request, true)).split('\r\n\r\n', 1)[0] as string;
    expect(head.match(/^X-Content-Type-Options: nosniff$/gm)).toHaveLength(1);
    if (to.name === 'operators') expect(head).toMatch(/^Cache-Control: no-store$/m);
  }
});

test("the operators' pages may be cached but must be revalidated each time", async () => {
  const page = await send(`${stack.adminUrl}/`);
  expect(page.headers).toMatchObject({ 'cache-control': 'no-cache', 'x-content-type-options': 'nosniff' });
});

test('a body in UTF-8 is accepted, and one in another charset gets 415', async () => {
  const taken = ['charset=utf-8', 'charset="UTF-8"', 'charset=UTF8', 'profile=x', ''];
  const refused = ['charset=latin1', 'charset=utf-16', 'Charset="iso-8859-1"', 'charset=', 'charset=utf-8; charset=x'];
  const key = listeners[0]?.key;
  for (const parameter of [...taken, ...refused]) {
    const headers = { 'content-type': `application/json; ${parameter}` };
    const pet = { name: 'Rex', categoryId: 1 };
    const answers = await Promise.all([
      post(`${stack.gateway}/v1/pets`, pet, { key, headers }),
      post(`${stack.core}/v1/pets`, pet, { headers }),
      post(`${stack.adminUrl}/keys`, { name: 'x', plan: 'free' }, { key: ADMIN_TOKEN, headers }),
    ]);
    const expected = taken.includes(parameter) ? 201 : 415;
    expect([parameter, ...answers.map(({ status }) => status)]).toEqual([parameter, expected, expected, expected]);
  }
});

test('reads by internal services run concurrently, and none begins after a request that closes the connection', async () => {
  const to = listeners[3] as Listener;
  const twoHosts = `GET /v1/pets HTTP/1.1\r\n${hostOf(to)}${hostOf(to)}\r\n`;
  const before = stack.coreLog.length;
  expect(statuses(await exchange(to, get(to) + twoHosts + get(to).repeat(5)))).toEqual([200, 400]);
  expect(statuses(await exchange(to, get(to) + get(to, 'HTTP/1.0') + get(to).repeat(5)))).toEqual([200, 200]);
  await sleep(50);
  expect(stack.coreLog.slice(before).filter(({ msg }) => msg === 'request')).toHaveLength(4);
});

test('the core receives no request that follows one with Expect whose body may be left unread', async () => {
  const to = listeners[3] as Listener;
  const EXPECT = 'Expect: 100-continue\r\n';
  const refused: [bytes: string, status: number][] = [
    [write(to, EXPECT).replace('application/json', 'text/plain'), 415],
    [write({ ...to, write: '/v1/nothing' }, EXPECT), 404],
    [get(to).replace(/\r\n$/, `${EXPECT}\r\n`), 200],
    [get({ ...to, read: '/livez' }).replace(/\r\n$/, `${EXPECT}\r\n`), 200],
  ];
  for (const [bytes, status] of refused) {
    const before = stack.coreLog.length;
    expect(statuses(await exchange(to, bytes + write(to).repeat(20)))).toEqual([status]);
    await sleep(50);
    expect(stack.coreLog.slice(before).filter((line) => line.status === 201)).toEqual([]);
  }
  const read = write(to, EXPECT) + write(to).repeat(20) + last(to);
  expect(statuses(await exchange(to, read))).toEqual([100, ...Array(21).fill(201), 200]);
});

test('a client that half-closes its connection still receives the reason why its body was refused', async () => {
  const { url: REDIS_URL } = await emptyDatabase();
  const { gateway, issueKey } = await startStack({ REDIS_URL });
  const to = { ...(listeners[0] as Listener), url: gateway, key: await issueKey() };
  const bytes = writeHead(to, IN_CHUNKS) + chunk(' ').repeat(700) + chunk('');
  for (let sent = 0; sent < 5; sent++) expect(statuses(await exchange(to, bytes, true))).toEqual([413]);
});

test('a client cannot renegotiate TLS', async () => {
  const { port } = new URL(secure.gateway);
  const raw = net.connect(Number(port), '127.0.0.1');
  const socket = tls.connect({ socket: raw, host: '127.0.0.1', ca, maxVersion: 'TLSv1.2' });
  await new Promise((resolve) => socket.once('secureConnect', resolve));
  const fault = await new Promise((resolve) => {
    socket.once('error', resolve);
    socket.renegotiate({}, resolve);
  });
  expect(fault).toMatchObject({ code: expect.stringMatching(/NO_RENEGOTIATION/) });
  raw.resetAndDestroy();
});
