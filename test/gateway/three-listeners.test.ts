import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import tls from 'node:tls';
import { expect, test } from 'vitest';
import { createAuthority } from '../support/certificates.ts';
import { post, send } from '../support/http.ts';
import { connectRaw } from '../support/raw-client.ts';
import { ADMIN_TOKEN, startStack } from '../support/stack.ts';

/** What the listeners for clients, operators and internal services have in common. */

const { caFile, certFile, keyFile } = await createAuthority();
const ca = readFileSync(caFile);
const stack = await startStack();
const secure = await startStack({ TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile });
const CLIENT = `Authorization: Bearer ${await stack.issueKey({ plan: 'enterprise', minute: 100_000, day: 1_000_000 })}\r\n`;
const SECURE = `Authorization: Bearer ${await secure.issueKey({ plan: 'enterprise', minute: 100_000, day: 1_000_000 })}\r\n`;

interface Listener {
  readonly url: string;
  readonly read: string;
  readonly credential: string;
}

const LISTENERS: Readonly<Record<string, Listener>> = {
  clients: { url: stack.gateway, read: '/v1/pets', credential: CLIENT },
  'clients over TLS': { url: secure.gateway, read: '/v1/pets', credential: SECURE },
  operators: { url: stack.adminUrl, read: '/plans', credential: `Authorization: Bearer ${ADMIN_TOKEN}\r\n` },
  'internal services': { url: stack.core, read: '/v1/pets', credential: '' },
};
const all = Object.entries(LISTENERS);
const hostOf = ({ url }: Listener) => `Host: ${new URL(url).host}\r\n`;
const get = (to: Listener, version = 'HTTP/1.1') => `GET ${to.read} ${version}\r\n${hostOf(to)}${to.credential}\r\n`;

/** Sends, and reads until the other side closes. */
async function exchange({ url }: Listener, bytes: string, ends = false): Promise<string> {
  const { socket, received, closed } = await connectRaw(url, ca);
  socket.write(bytes, 'latin1');
  if (ends) socket.end();
  await closed;
  socket.destroy();
  return received();
}

const statuses = (received: string) =>
  (received.match(/HTTP\/1\.1 \d{3} /g) ?? []).map((line) => Number(line.slice(9)));

test.for(all)('%s: a client that ends its side after its requests gets all answers', async ([, to]) => {
  for (const count of [1, 2, 5]) {
    expect(statuses(await exchange(to, get(to).repeat(count), true))).toEqual(Array(count).fill(200));
  }
  expect(statuses(await exchange(to, get(to, 'HTTP/1.0'), true))).toEqual([200]);
  // The end may come while the answer is on its way.
  const { socket, received, closed } = await connectRaw(to.url, ca);
  socket.write(get(to).repeat(2));
  setImmediate(() => socket.end());
  await closed;
  expect(statuses(received())).toEqual([200, 200]);
});

test.for(all)('%s: half a request and the end of the client is 400', async ([, to]) => {
  expect(statuses(await exchange(to, get(to).slice(0, -10), true))).toEqual([400]);
  const post = `POST ${to.read} HTTP/1.1\r\n${hostOf(to)}${to.credential}Content-Type: application/json\r\n`;
  const [status = 0] = statuses(await exchange(to, `${post}Content-Length: 100\r\n\r\n{"name`, true));
  expect([400, 405]).toContain(status);
});

test.for(all)('%s: what is no request is answered in the Error shape, and closes', async ([, to]) => {
  const headers = `${hostOf(to)}${to.credential}`;
  const rows: [bytes: string, status: number][] = [
    [`BREW ${to.read} HTTP/1.1\r\n${headers}\r\n`, 400],
    [`POST ${to.read} HTTP/1.1\r\n${headers}Content-Length: x\r\n\r\n`, 400],
    [`POST ${to.read} HTTP/1.1\r\n${headers}Content-Length: 1\r\nContent-Length: 2\r\n\r\n`, 400],
    ['garbage\r\n\r\n', 400],
    [`GET  ${to.read} HTTP/1.1\r\n${headers}\r\n`, 400],
    [`GET ${to.read}  HTTP/1.1\r\n${headers}\r\n`, 400],
    [`POST  ${to.read} HTTP/1.1\r\n${headers}Content-Length: 2\r\n\r\n{}`, 400],
    [`GET ${to.read} HTTP/3.0\r\n${headers}\r\n`, 505],
    [`GET ${to.read} HTTP/1.1\r\n${headers}${'X: y\r\n'.repeat(1_200)}\r\n`, 431],
    [`GET ${to.read} HTTP/1.1\r\n${headers}X: ${'y'.repeat(50_000)}\r\n\r\n`, 431],
    [`GET ${to.read} HTTP/1.1\r\n${to.credential}\r\n`, 400],
    [`GET ${to.read} HTTP/1.1\r\n${headers}${hostOf(to)}\r\n`, 400],
    [`GET ${to.read} HTTP/1.1\r\nHost: a b\r\n${to.credential}\r\n`, 400],
    [`GET ${to.read} HTTP/1.1\r\n${headers}Expect: banana\r\n\r\n`, 417],
    [`POST ${to.read} HTTP/1.1\r\n${headers}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n`, 400],
    [`CONNECT a:1 HTTP/1.1\r\n${headers}\r\n`, 405],
  ];
  for (const [bytes, status] of rows) {
    const answer = await exchange(to, bytes);
    expect([bytes.slice(0, 80), statuses(answer)]).toEqual([bytes.slice(0, 80), [status]]);
    const [head = '', body = ''] = answer.split('\r\n\r\n');
    expect(JSON.parse(body)).toEqual({ code: expect.any(String), message: expect.any(String), status });
    expect(head).toMatch(/^Connection: close$/m);
    expect(head).toMatch(/^X-Request-Id: \S+$/m);
    expect(head).toMatch(/^X-Content-Type-Options: nosniff$/m);
  }
});

test.for(all)('%s: a request line with two spaces is refused behind others too', async ([, to]) => {
  const twoSpaces = get(to).replace(' ', '  ');
  expect(statuses(await exchange(to, get(to) + twoSpaces + get(to)))).toEqual([200, 400]);
  const { socket, received, closed } = await connectRaw(to.url, ca);
  for (const [at, bytes] of [get(to), get(to), twoSpaces, get(to)].entries()) {
    socket.write(bytes);
    await expect.poll(() => statuses(received()).length).toBe(Math.min(at + 1, 3));
  }
  await closed;
  expect(statuses(received())).toEqual([200, 200, 400]);
});

test.for(all)('%s: every answer says nosniff, and those to operators are not stored', async ([name, to]) => {
  for (const request of [
    get(to),
    get({ ...to, read: '/livez' }),
    get({ ...to, credential: '' }),
    get({ ...to, read: '/nothing' }),
    get({ ...to, read: '/v1/openapi.json' }),
    get({ ...to, read: '/docs/' }),
  ]) {
    const head = (await exchange(to, request, true)).split('\r\n\r\n', 1)[0] as string;
    expect(head.match(/^X-Content-Type-Options: nosniff$/gm)).toHaveLength(1);
    if (name === 'operators') expect(head).toMatch(/^Cache-Control: no-store$/m);
  }
});

test('the pages of the operators may be stored, if they are checked each time', async () => {
  const page = await send(`${stack.adminUrl}/`);
  expect(page.headers).toMatchObject({ 'cache-control': 'no-cache', 'x-content-type-options': 'nosniff' });
});

test('a body in another charset than UTF-8 is 415, in UTF-8 it is taken', async () => {
  const taken = ['charset=utf-8', 'charset="UTF-8"', 'charset=UTF8', 'profile=x', ''];
  const refused = ['charset=latin1', 'charset=utf-16', 'Charset="iso-8859-1"', 'charset=', 'charset=utf-8; charset=x'];
  const key = CLIENT.slice('Authorization: Bearer '.length).trim();
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

test('operators: nothing behind an answer that closes is executed', async () => {
  const to = LISTENERS.operators as Listener;
  const body = '{"name":"behind","plan":"free"}';
  const create = `POST /keys HTTP/1.1\r\n${hostOf(to)}${to.credential}Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
  const closing = [
    `GET /plans HTTP/1.1\r\n${hostOf(to)}${hostOf(to)}${to.credential}\r\n`,
    `GET /plans HTTP/1.1\r\n${hostOf(to)}${to.credential}Connection: close\r\n\r\n`,
    `POST /keys HTTP/1.1\r\n${hostOf(to)}${to.credential}Expect: banana\r\nContent-Length: 0\r\n\r\n`,
    get(to, 'HTTP/1.0'),
  ];
  for (const bytes of closing) expect(statuses(await exchange(to, bytes + create.repeat(10)))).toHaveLength(1);
  const { json } = await send(`${stack.adminUrl}/keys?search=behind`, { key: ADMIN_TOKEN });
  expect(JSON.stringify(json)).not.toContain('behind');
});

test('internal services: reads run at once, and none begins behind a head that closes', async () => {
  const to = LISTENERS['internal services'] as Listener;
  const twoHosts = `GET /v1/pets HTTP/1.1\r\n${hostOf(to)}${hostOf(to)}\r\n`;
  const before = stack.coreLog.length;
  expect(statuses(await exchange(to, get(to) + twoHosts + get(to).repeat(5)))).toEqual([200, 400]);
  expect(statuses(await exchange(to, get(to) + get(to, 'HTTP/1.0') + get(to).repeat(5)))).toEqual([200, 200]);
  await sleep(50);
  expect(stack.coreLog.slice(before).filter(({ msg }) => msg === 'request')).toHaveLength(4);
});

test('a client cannot renegotiate TLS', async () => {
  const { port } = new URL(secure.gateway);
  const socket = tls.connect({ port: Number(port), host: '127.0.0.1', ca, maxVersion: 'TLSv1.2' });
  await new Promise((resolve) => socket.once('secureConnect', resolve));
  const fault = await new Promise((resolve) => {
    socket.once('error', resolve);
    socket.renegotiate({}, resolve);
  });
  expect(fault).toMatchObject({ code: expect.stringMatching(/NO_RENEGOTIATION/) });
  socket.destroy();
});
