import { once } from 'node:events';
import net from 'node:net';
import { expect, test } from 'vitest';
import { readGatewaySettings } from '../../gateway/config.ts';
import { activityOf } from '../support/activity.ts';
import { cleanUp } from '../support/clean-up.ts';
import { type Answer, send, sendBytes } from '../support/http.ts';
import { get, tokenFor } from '../support/operators.ts';
import { type Stack, startStack, ADMIN_TOKEN as TOKEN } from '../support/stack.ts';

/** Tests who may reach the operators' listeners, and which actor is recorded. */

const NEW_KEY = { name: 'test', plan: 'free' };

const stack = await startStack();
const port = new URL(stack.adminUrl).port;
const own = stack.adminUrl;

/** The status of an operator's POST, as a browser would send it. */
const change = async (headers: Record<string, string>) =>
  (await stack.admin('POST', '/keys', NEW_KEY, { headers })).status;

test.for([
  ['a program', {}],
  ['the console', { Origin: own, 'Sec-Fetch-Site': 'same-origin' }],
  ['the console in a browser that sends only the origin', { Origin: own }],
  ['the console under another name of this machine', { Host: `localhost:${port}`, Origin: `http://localhost:${port}` }],
  ['the console behind a tunnel', { Host: 'LOCALHOST:1234', Origin: 'http://localhost:1234' }],
  ['an operator on IPv6', { Host: `[::1]:${port}` }],
] as const)('%s may make changes', async ([, headers]) => {
  expect(await change(headers)).toBe(201);
});

test.for([
  ['another site', { Origin: 'https://evil.example', 'Sec-Fetch-Site': 'cross-site' }],
  ['another site, in a browser that sends only the origin', { Origin: 'https://evil.example' }],
  ['another site, in a browser that sends only Sec-Fetch-Site', { 'Sec-Fetch-Site': 'cross-site' }],
  ['another service on this machine', { Origin: 'http://127.0.0.1:3000', 'Sec-Fetch-Site': 'same-site' }],
  ['a page with an opaque origin', { Origin: 'null' }],
  ['a malformed origin', { Origin: 'evil' }],
  ['a foreign name that resolves to this machine', { Host: `evil.example:${port}` }],
  ['a foreign name with a page of the same origin', { Host: 'evil.example', Origin: 'http://evil.example' }],
  ['an address of another machine', { Host: `10.0.0.1:${port}` }],
  ['a name that only begins with a valid one', { Host: 'localhost.evil.example' }],
] as const)('%s changes nothing, even with the right token', async ([, headers]) => {
  const before = await get(stack, '/keys');
  expect(await change(headers)).toBe(403);
  expect(await get(stack, '/keys')).toEqual(before);
});

test('nothing, not even public files, can be read under a name other than loopback', async () => {
  const elsewhere = { headers: { Host: `evil.example:${port}` } };
  for (const path of ['/keys', '/metrics', '/livez'])
    expect((await stack.admin('GET', path, undefined, elsewhere)).status).toBe(403);
  // HTTP/1.0 requires no Host header. Health checks use it; browsers do not.
  expect(await sendBytes(stack.adminUrl, 'GET /livez HTTP/1.0\r\n\r\n')).toMatch(/^HTTP\/1\.1 200 /);
});

test('a page from another origin cannot read answers, and a preflight allows nothing', async () => {
  const headers = {
    Origin: 'https://evil.example',
    'Access-Control-Request-Method': 'DELETE',
    'Access-Control-Request-Headers': 'authorization',
  };
  for (const method of ['OPTIONS', 'GET', 'DELETE']) {
    for (const key of [undefined, TOKEN]) {
      const answer = await send(`${stack.adminUrl}/keys`, { method, key, headers });
      expect(Object.keys(answer.headers).filter((name) => name.startsWith('access-control'))).toEqual([]);
      expect([200, 401, 403, 405]).toContain(answer.status);
    }
  }
});

test('after ten different wrong tokens within a minute, an address is blocked even if it sends the right one; probes and named tokens in use are exempt', async () => {
  const other = await startStack();
  const ask = (key: string | undefined, path = '/plans', from = '127.0.0.2') =>
    send(other.adminUrl + path, { key, from });
  const without = await Promise.all(Array.from({ length: 12 }, () => ask(undefined)));
  expect(without.map(({ status }) => status)).toEqual(Array(12).fill(401));
  // A program that keeps sending a revoked token locks nobody out.
  const { id, token: revoked } = await tokenFor(other, 'viewer', 'cron');
  await other.admin('DELETE', `/tokens/${id}`);
  for (let at = 0; at < 12; at++) expect((await ask(revoked)).status).toBe(401);
  expect((await ask(TOKEN)).status).toBe(200);
  const { token: named } = await tokenFor(other, 'viewer', 'ann');
  const { token: unused } = await tokenFor(other, 'viewer', 'bob');
  expect((await ask(named)).status).toBe(200);
  for (let at = 1; at < 10; at++) expect((await ask(`wrong-token-of-the-tests-${at}`)).status).toBe(401);

  const refused = await ask(TOKEN);
  expect([refused.status, refused.json]).toEqual([429, expect.objectContaining({ code: 'rate_limit_exceeded' })]);
  expect(Number(refused.headers['retry-after'])).toBeGreaterThanOrEqual(1);
  expect(Number(refused.headers['retry-after'])).toBeLessThanOrEqual(6);
  expect((await ask(TOKEN, '/plans', '127.0.0.3')).status).toBe(200);
  expect([(await ask(named)).status, (await ask(`${named.slice(0, -1)}-`)).status]).toEqual([200, 429]);
  expect((await ask(unused)).status).toBe(429);
  expect((await ask(undefined, '/livez')).status).toBe(200);
});

test('a listener outside loopback accepts any host name and requires its token', async () => {
  const open = await startStack({ ADMIN_HOST: '0.0.0.0' });
  const headers = { Host: `admin.example:${port}` };
  expect((await open.admin('GET', '/plans', undefined, { headers })).status).toBe(200);
  expect((await send(`${open.adminUrl}/plans`, { headers })).status).toBe(401);
  const foreign = { ...headers, Origin: 'https://evil.example' };
  expect((await open.admin('POST', '/keys', NEW_KEY, { headers: foreign })).status).toBe(403);
});

test('bodies over 16 kB and heads over 8 kB are refused, and connections per address are limited', async () => {
  const long = { name: 'a'.repeat(17_000), plan: 'free' };
  expect((await stack.admin('POST', '/keys', long)).status).toBe(413);
  const ask = (length: number) =>
    stack.admin('GET', '/plans', undefined, { headers: { 'X-Long': 'a'.repeat(length) } });
  expect((await ask(7_000)).status).toBe(200);
  expect((await ask(9_000)).status).toBe(431);

  const sockets = await Promise.all(
    Array.from({ length: 51 }, async () => {
      const socket = net.connect({ port: Number(port), host: '127.0.0.1', localAddress: '127.0.0.4' });
      cleanUp(() => socket.destroy());
      await once(socket, 'connect');
      return socket;
    }),
  );
  await Promise.race(sockets.map((socket) => once(socket, 'close')));
  await expect.poll(() => sockets.filter(({ closed }) => closed).length).toBe(1);
  expect((await stack.admin('GET', '/plans')).status).toBe(200);
});

const HEADER = 'X-Forwarded-User';

function createKey(stack: Stack, headers: Record<string, string | string[]>, body: object = {}): Promise<Answer> {
  // Node writes headers as Latin-1 only if the body is not a string.
  const key = Buffer.from(JSON.stringify({ name: 'acme', plan: 'free', ...body }));
  return stack.admin('POST', '/keys', key, { headers });
}

const actorOf = async (stack: Stack) => (await activityOf(stack, '?limit=1'))[0]?.actor;

const trusting = await startStack({ ACTOR_HEADER: HEADER, TRUSTED_PROXIES: '127.0.0.1' });

test('a trusted proxy sets the actor, whatever the body contains', async () => {
  await createKey(trusting, { 'x-forwarded-user': 'ada@example.com' }, { author: 'eve' });
  expect(await actorOf(trusting)).toBe('ada@example.com');
  await createKey(trusting, { 'x-forwarded-user': Buffer.from('Jürgen').toString('latin1') });
  expect(await actorOf(trusting)).toBe('Jürgen');
  await createKey(trusting, {});
  expect(await actorOf(trusting)).toBe('unknown');
});

test('the token, not the actor, decides what is allowed', async () => {
  const { token } = await tokenFor(trusting, 'viewer', 'proxy');
  for (const [key, status] of [
    [token, 403],
    [undefined, 401],
  ] as const) {
    const sent = { key, headers: { 'x-forwarded-user': 'ada' } };
    expect((await trusting.admin('POST', '/keys', NEW_KEY, sent)).status).toBe(status);
  }
});

test.for([
  ['from any other peer', { ACTOR_HEADER: HEADER, TRUSTED_PROXIES: '10.0.0.0/8' }],
  ['without the setting', { TRUSTED_PROXIES: '127.0.0.1' }],
] as const)('%s, the actor header is ignored', async ([, environment]) => {
  const stack = await startStack(environment);
  await createKey(stack, { 'x-forwarded-user': 'eve' });
  expect(await actorOf(stack)).toBe('unknown');
});

test.for([
  ['is given twice', ['ada', 'eve']],
  ['is empty', ''],
  ['is too long', 'a'.repeat(101)],
  ['has a tab', 'a\tb'],
] as const)('an actor header that %s gets 400 and changes nothing', async ([, value]) => {
  const before = await get(trusting, '/keys');
  const answer = await createKey(trusting, { 'x-forwarded-user': value as string | string[] });
  expect([answer.status, answer.json]).toEqual([400, expect.objectContaining({ code: 'invalid_request' })]);
  expect(await get(trusting, '/keys')).toEqual(before);
});

test.for([
  [{ ACTOR_HEADER: HEADER }, 'TRUSTED_PROXIES: is required with ACTOR_HEADER'],
  [{ ACTOR_HEADER: 'a b', TRUSTED_PROXIES: '127.0.0.1' }, 'ACTOR_HEADER: must be a header name'],
  [{ ACTOR_HEADER: 'Cookie', TRUSTED_PROXIES: '127.0.0.1' }, 'ACTOR_HEADER: must not be a header that holds a secret'],
] as const)('the setting %j is refused', ([settings, message]) => {
  expect(() => readGatewaySettings(settings)).toThrow(message);
});
