import http from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { parseApiKey } from '../../gateway/limiter/credential.ts';
import { faultyCore, listeningCore, okTo, withIdOf } from '../support/faulty-core.ts';
import { post, send } from '../support/http.ts';
import { startStack, UNLIMITED } from '../support/stack.ts';
import { stackBefore } from '../support/stack-before.ts';

/** Tests which parts of a request reach the core, and which parts of its response reach the client. */

test('the core receives neither the key nor forged headers about the client', async () => {
  const core = await listeningCore();
  const { key, get } = await stackBefore(core.url, { CORE_TOKEN: 'token-of-the-core' });
  const claims = {
    'X-Forwarded-For': '6.6.6.6',
    'X-Forwarded-Host': 'evil',
    X_Forwarded_For: '6.6.6.6',
    Forwarded: 'for=6.6.6.6',
    'X-Real-IP': '6.6.6.6',
    'Proxy-Authorization': 'Basic eA==',
    'Keep-Alive': 'timeout=9',
    TE: 'trailers',
    Connection: 'keep-alive, x-secret, X-Request-Id, Authorization',
    'X-Secret': 'hop',
    Accept: 'application/json',
  };
  expect((await get('?limit=5&x=%41', { headers: claims })).status).toBe(200);
  const [head = ''] = core.heads;
  expect(head).toMatch(/^GET \/v1\/pets\?limit=5&x=%41 HTTP\/1.1\r\n/);
  expect(head).toMatch(/\r\nX-Forwarded-For: 127.0.0.1\r\n/);
  expect(head).toMatch(/\r\nAuthorization: Bearer token-of-the-core\r\n/);
  expect(head).toMatch(/\r\nAccept: application\/json\r\n/);
  expect(head).not.toMatch(/6\.6\.6\.6|evil|x-secret|proxy-authorization|timeout=9|\r\nte:/i);
  expect(head).not.toContain(key);
  expect(head.match(/\r\n(x-forwarded-for|authorization|host|x-request-id):/gi)).toHaveLength(4);
});

const SHOP = 'https://shop.example';

test.for([
  ['without CORS', {}, undefined],
  ['with CORS', { CORS_ORIGINS: SHOP }, SHOP],
] as const)(
  'cookies from the core, and headers that the gateway sets itself, are not forwarded: %s',
  async ([, settings, to]) => {
    const own = {
      ...{
        Date: 'a',
        Server: 'b',
        'Set-Cookie': 'c=d',
        RateLimit: 'e',
        'X-RateLimit-Limit': '999',
        'Retry-After': '7',
        'Strict-Transport-Security': 'max-age=0',
      },
      ...{ 'Keep-Alive': 'timeout=9', 'Access-Control-Allow-Origin': 'https://core.example', 'X-Kept': 'f' },
    };
    const lines = Object.entries(own).map(([name, value]) => `${name}: ${value}\r\n`);
    const answer = (head: string) => okTo(head).replace('\r\n', `\r\n${lines.join('')}`);
    const { get } = await stackBefore((socket, head) => void socket.write(answer(head)), settings, {});
    const { headers } = await get('', { headers: { origin: SHOP } });
    expect(headers).toMatchObject({ 'x-kept': 'f', 'x-ratelimit-limit': '60', date: expect.stringMatching(/ GMT$/) });
    for (const name of ['server', 'set-cookie', 'retry-after', 'strict-transport-security'])
      expect(headers).not.toHaveProperty(name);
    for (const name of ['ratelimit', 'keep-alive']) expect(['e', 'timeout=9']).not.toContain(headers[name]);
    expect(headers['access-control-allow-origin']).toBe(to);
  },
);

test('a response keeps its Content-Length even if the core lists it in Connection', async () => {
  const answer = (head: string) => okTo(head).replace('\r\n', '\r\nConnection: content-length\r\n');
  const { get } = await stackBefore((socket, head) => void socket.write(answer(head)), {}, {});
  expect((await get()).headers['content-length']).toBe('2');
});

test('a 204 has no Content-Length, whatever the core sends', async () => {
  const bare = 'HTTP/1.1 204 No Content\r\ncontent-length: 5\r\netag: "e"\r\n\r\n';
  const { get } = await stackBefore((socket, head) => void socket.write(withIdOf(head, bare)), {}, {});
  const { status, headers } = await get();
  expect([status, headers['content-length'], headers.etag]).toEqual([204, undefined, '"e"']);
});

let retryAfter = '';
const refusing = await stackBefore((socket, head) => {
  const [status, code] = head.startsWith('GET') ? [429, 'rate_limit_exceeded'] : [503, 'unavailable'];
  const body = JSON.stringify({ code, message: 'Come again.', status });
  const type = `content-type: application/json\r\ncontent-length: ${body.length}`;
  socket.write(`HTTP/1.1 ${status} No\r\n${retryAfter}${type}\r\n\r\n${body}`);
});

test.for([
  ['retry-after: 7\r\n', '7'],
  ['retry-after: 100000\r\n', '100000'],
  ['retry-after: 0\r\n', '1'],
  ['retry-after: Fri, 31 Dec 1999 23:59:59 GMT\r\n', '1'],
  [`retry-after: ${new Date(Date.now() + 3_600_000).toUTCString()}\r\n`, expect.stringMatching(/^(35\d\d|3600)$/)],
  ['retry-after: soon\r\n', '1'],
  ['', '1'],
] as [header: string, seconds: string][])(
  'a 503 or 429 from the core reaches the client with Retry-After in seconds: %j',
  async ([header, seconds]) => {
    retryAfter = header;
    const answers = [await refusing.get(), await refusing.post()];
    expect(answers.map(({ status, headers }) => [status, headers['retry-after']])).toEqual([
      [429, seconds],
      [503, seconds],
    ]);
  },
);

const stack = await startStack();
const key = await stack.issueKey();

test('every request is logged in one line without its key or query', async () => {
  await send(`${stack.gateway}/v1/pets?limit=7`, { key, headers: { 'x-request-id': 'r1' } });
  await send(`${stack.gateway}/v1/pets/5`, { key, headers: { 'x-request-id': 'r2' } });
  await send(`${stack.gateway}/v1/pets?key=${key}`, { headers: { 'x-request-id': 'r3' } });
  const lines = stack.log.filter(({ msg }) => msg === 'request');
  expect(lines).toHaveLength(3);
  const common = { method: 'GET', address: '127.0.0.1', durationMs: expect.any(Number) };
  const known = { keyId: parseApiKey(key)?.id, plan: 'free', outcome: 'admitted' };
  expect(lines).toMatchObject([
    { ...common, ...known, requestId: 'r1', path: '/v1/pets', operation: 'listPets', status: 200 },
    { ...common, ...known, requestId: 'r2', path: '/v1/pets/5', operation: 'getPet', status: 404 },
    { ...common, requestId: 'r3', path: '/v1/pets', status: 401, code: 'unauthorized', outcome: 'malformed' },
  ]);
  expect(JSON.stringify(stack.log)).not.toContain(key.slice(16));
});

test('only responses of the deprecated operation have deprecation headers, including its 404', async () => {
  const pet = await post(`${stack.gateway}/v1/pets`, { name: 'Rex', categoryId: 1 }, { key });
  const { id } = pet.json as { id: number };
  for (const path of [`/v1/pets/${id}`, '/v1/pets/404404', '/v1/pets/abc']) {
    expect((await send(stack.gateway + path, { key })).headers).toMatchObject({
      deprecation: '@1795132800',
      sunset: 'Thu, 05 Dec 2030 00:00:00 GMT',
      link: expect.stringContaining('</v1/pets>; rel="successor-version"'),
    });
  }
  expect(pet.headers.deprecation).toBeUndefined();
  expect((await send(`${stack.gateway}/v1/pets`, { key })).headers.sunset).toBeUndefined();
});

test('a request whose client resets its connection is cancelled at the core and logged as 499', async () => {
  const gone = Promise.withResolvers<void>();
  const { stack, key } = await stackBefore((socket) => void socket.once('close', gone.resolve));
  const request = http.get(`${stack.gateway}/v1/pets`, { headers: { authorization: `Bearer ${key}` } });
  request.on('error', () => {});
  setTimeout(() => request.socket?.resetAndDestroy(), 100);
  await gone.promise;
  await expect.poll(() => stack.log.find(({ msg }) => msg === 'request')).toMatchObject({ status: 499 });
  expect(stack.log.find(({ msg }) => msg === 'request')?.code).toBeUndefined();
});

test('a core that is not ready receives no requests until it is ready again', async () => {
  let ready = true;
  const answer = (status: string) => `HTTP/1.1 ${status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n`;
  const heads: string[] = [];
  const flapping = await faultyCore((socket, head) => {
    if (!head.includes('/readyz')) heads.push(head);
    socket.end(answer(head.includes('/readyz') && !ready ? '503 x' : '200 OK'));
  });
  const steady = await faultyCore((socket) => socket.end(answer('200 OK')));
  const { post } = await stackBefore(`${flapping},${steady}`);
  const burst = async () => {
    heads.length = 0;
    for (let sent = 0; sent < 6; sent++) expect((await post()).status).toBe(200);
    return heads.length;
  };
  expect(await burst()).toBe(3);
  ready = false;
  await expect.poll(burst, { interval: 300 }).toBe(0);
  ready = true;
  await expect.poll(burst, { interval: 300 }).toBe(3);
});

test("a request gets 502 if the core rejects the gateway's token", async () => {
  const stack = await startStack({ CORE_TOKEN: 'token-of-the-core' });
  const gateway = await stackBefore(stack.core, { CORE_TOKEN: 'another-token-than-that' });
  const answer = await gateway.get();
  expect([answer.status, answer.json]).toEqual([502, expect.objectContaining({ code: 'bad_gateway' })]);
  expect(gateway.stack.log.find(({ status }) => status === 502)?.reason).toMatch(/it does not accept CORE_TOKEN/);
});

const HTML = '<h1>Bad Gateway</h1>';
const withHead = (status: number, ...lines: string[]) => `${[`HTTP/1.1 ${status} x`, ...lines].join('\r\n')}\r\n\r\n`;
/** What a server that may not be a core answers to every request, and how many it got. */
let foreign = '';
let foreignAsked = 0;
const foreignCore = await faultyCore((socket, head) => {
  foreignAsked += 1;
  socket.write(withIdOf(head, head.startsWith('HEAD') ? foreign.replace(/\r\n\r\n.*/s, '\r\n\r\n') : foreign));
});
const beforeForeign = await stackBefore(foreignCore);

test.for([
  [withHead(502, 'Content-Type: text/html', `Content-Length: ${HTML.length}`) + HTML, '502 with text/html'],
  [
    `${withHead(404, 'CONTENT-TYPE: Text/Plain; charset=x', 'Transfer-Encoding: chunked')}1\r\na\r\n0\r\n\r\n`,
    '404 with Text/Plain',
  ],
  [withHead(404, 'Content-Type: text/html', 'Content-Length: 0'), '404 with text/html'],
  [
    `${withHead(503, 'Content-Type: application/json-seq', 'Content-Length: 2', 'Connection: close')}{}`,
    '503 with application/json-seq',
  ],
  [
    `${withHead(400, 'Content-Type: application/json', 'Content-Type: text/html', 'Content-Length: 2')}{}`,
    '400 with text/html',
  ],
  [withHead(500, 'Content-Type: text/html', 'Content-Length: 70000') + 'x'.repeat(70_000), '500 with text/html'],
  [`${withHead(500, 'Content-Length: 2')}{}`, '500 with a body without Content-Type'],
] as const)('an error that is not JSON gets 502 instead, and its reason is logged: %#', async ([answer, found]) => {
  foreign = answer;
  foreignAsked = 0;
  const { get, post, stack } = beforeForeign;
  const hasType = /content-type/i.test(answer);
  const head = await get('', { method: 'HEAD' });
  const answers = [await get(), await post()];
  expect(answers).toMatchObject(Array(2).fill({ status: 502, json: { code: 'bad_gateway', status: 502 } }));
  for (const { text } of answers) expect(Object.keys(JSON.parse(text))).toEqual(['code', 'message', 'status']);
  // The answer to HEAD has no body, so its type is all there is.
  expect(head.status).toBe(hasType ? 502 : 500);
  const reason = `The core answered ${found} instead of JSON: CORE_URL may lead to something else than the core.`;
  const lines = () => stack.log.filter(({ msg, status }) => msg === 'request' && status === 502).slice(-2);
  await expect.poll(lines).toMatchObject([
    { method: 'GET', reason },
    { method: 'POST', reason },
  ]);
  // Another attempt at the same address would get the same answer. Only a large one is requested again, to stream it.
  expect(foreignAsked).toBeLessThanOrEqual(answer.length > 65_536 ? 4 : 3);
  foreign = `${withHead(200, 'Content-Type: application/json', 'Content-Length: 2')}[]`;
  expect((await get()).status).toBe(200);
});

test.for([
  withHead(404, 'Content-Length: 0'),
  withHead(304, 'Content-Type: text/html', 'ETag: "e"'),
  `${withHead(200, 'Content-Type: text/html', 'Content-Length: 2')}ab`,
  `${withHead(422, 'Content-Type: Application/JSON;charset=utf-8', 'Content-Length: 2')}{}`,
  `${withHead(400, 'Content-Type: application/problem+json', 'Content-Length: 2')}{}`,
])('an error that is JSON or empty, and any other response, is forwarded: %#', async (answer) => {
  foreign = answer;
  const { stack, key } = beforeForeign;
  const { status } = await fetch(`${stack.gateway}/v1/pets`, { headers: { authorization: `Bearer ${key}` } });
  expect(status).toBe(Number(answer.slice(9, 12)));
});

test('if one of several cores answers with errors that are not JSON, reads go to another core', async () => {
  foreign = withHead(502, 'Content-Type: text/html', `Content-Length: ${HTML.length}`) + HTML;
  const asked: string[] = [];
  const sound = await faultyCore((socket, head) => {
    if (!head.includes('/readyz')) asked.push(head);
    socket.write(okTo(head));
  });
  const wrong = await faultyCore(
    (socket, head) => void socket.write(head.includes('/readyz') ? okTo(head) : withIdOf(head, foreign)),
  );
  const { get, post, stack } = await stackBefore(`${sound},${wrong}`);
  for (let sent = 0; sent < 6; sent++) expect((await get()).status).toBe(200);
  expect((await Promise.all(Array.from({ length: 40 }, () => get()))).map(({ status }) => status)).toEqual(
    Array(40).fill(200),
  );
  expect(asked).toHaveLength(46);
  // A write may have taken effect behind the proxy, so it is not repeated.
  const statuses = [await post(), await post(), await post()].map(({ status }) => status);
  expect(statuses.filter((status) => status === 502).length).toBeLessThanOrEqual(1);
  expect(asked).toHaveLength(46 + statuses.filter((status) => status === 200).length);
  expect(stack.log.filter(({ level }) => level >= 50)).toEqual([]);
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

test('a write avoids a core whose last attempt failed, for two seconds or until that core answers a read', async () => {
  let isBroken = true;
  let written = 0;
  const broken = await faultyCore((socket, head) => {
    if (head.startsWith('POST')) written += 1;
    if (isBroken && !head.startsWith('GET /readyz')) socket.destroy();
    else socket.write(okTo(head));
  });
  const sound = await faultyCore((socket, head) => void socket.write(okTo(head)));
  const stack = await startStack({ CORE_URL: `${sound},${broken}` });
  const key = await stack.issueKey(UNLIMITED);
  const write = async () => (await post(`${stack.gateway}/v1/pets`, { name: 'Rex', categoryId: 1 }, { key })).status;
  const statuses: number[] = [];
  for (let sent = 0; sent < 10; sent++) statuses.push(await write());
  // The first write to it could not know that it is broken.
  expect(statuses.filter((status) => status !== 200).length).toBeLessThanOrEqual(1);
  // Without reads, a write tries it again.
  await sleep(2_000);
  written = 0;
  for (let sent = 0; sent < 2; sent++) await write();
  expect(written).toBe(1);
  isBroken = false;
  for (let sent = 0; sent < 4; sent++) expect((await send(`${stack.gateway}/v1/pets`, { key })).status).toBe(200);
  written = 0;
  for (let sent = 0; sent < 4; sent++) expect(await write()).toBe(200);
  expect(written).toBeGreaterThan(0);
});
