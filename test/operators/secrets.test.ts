import { describe, expect, test } from 'vitest';
import type { DoctorAnswer, ExplainAnswer, KeyView } from '../../gateway/operators/api/answers.ts';
import { idOf } from '../support/api-key.ts';
import { type Answer, post, send } from '../support/http.ts';
import { get, hashOf, operatorsRedis, statusOf, viewOf } from '../support/operators.ts';
import { bothStacks, type Stack, startStack } from '../support/stack.ts';

const { url, redis, fresh } = await operatorsRedis();

type Secret = KeyView['secrets'][number];

const PET = { name: 'Rex', categoryId: 1 };
const read = (stack: Stack, key: string, from?: string) =>
  send(`${stack.gateway}/v1/pets`, { key, headers: from === undefined ? {} : { 'X-Forwarded-For': from } });
const write = (stack: Stack, key: string) => post(`${stack.gateway}/v1/pets`, PET, { key });
const remaining = ({ headers }: Answer) => Number(headers['x-ratelimit-remaining']);
const path = (key: string, secretId = '') => `/keys/${idOf(key)}/secrets${secretId && `/${secretId}`}`;

async function add(stack: Stack, key: string, about: Record<string, unknown>) {
  const { status, json } = await stack.admin('POST', path(key), { name: 'billing service', ...about });
  expect([status, json]).toEqual([201, { id: expect.stringMatching(/^\w{8}$/), key: expect.any(String) }]);
  return json as { readonly id: string; readonly key: string };
}

const secretsOf = async (stack: Stack, key: string): Promise<readonly Secret[]> =>
  (await viewOf(stack, idOf(key))).secrets;

describe.for(bothStacks(url))('with %s', async ([, environment]) => {
  const stack = await startStack({ TRUSTED_PROXIES: '127.0.0.1', ...environment });

  test('all secrets of a key share its pair of buckets', async () => {
    const first = await stack.issueKey({ plan: 'enterprise', minute: 100, day: 10 });
    const { key } = await add(stack, first, {});
    expect(idOf(key)).toBe(idOf(first));
    const left = [];
    for (const one of [first, key, first, key]) left.push(remaining(await read(stack, one)));
    expect(left).toEqual([9, 8, 7, 6]);
    const [own, added] = await secretsOf(stack, first);
    expect(own).toMatchObject({ name: 'first', scope: ['read', 'write'], networks: [] });
    expect(added).toMatchObject({ name: 'billing service', createdAt: expect.any(String) });
    for (const { lastUsedAt = '', createdAt } of [own, added] as Secret[]) {
      expect(Date.parse(lastUsedAt)).toBeGreaterThanOrEqual(Date.parse(createdAt));
      expect(Math.abs(Date.now() - Date.parse(lastUsedAt))).toBeLessThan(120_000);
    }
    expect((await stack.admin('GET', `/keys/${idOf(first)}`)).text).not.toContain(key.slice(16, 48));
  });

  test('the first secret is as old as its key, even if it has been renamed or replaced', async () => {
    const first = await stack.issueKey();
    const { createdAt } = await viewOf(stack, idOf(first));
    const [{ id = '' } = {}] = await secretsOf(stack, first);
    const created = async () => (await secretsOf(stack, first)).map((secret) => secret.createdAt);
    expect(await created()).toEqual([createdAt]);
    expect((await stack.admin('PATCH', path(first, id), { name: 'renamed' })).status).toBe(200);
    expect(await created()).toEqual([createdAt]);
    const rotated = await stack.admin('POST', `/keys/${idOf(first)}/rotate`, { graceSeconds: 600 });
    expect(rotated.status).toBe(201);
    const [oldest, newest] = await created();
    expect(oldest).toBe(createdAt);
    expect(Date.parse(newest ?? '')).toBeGreaterThan(Date.parse(createdAt));
  });

  test('a revoked secret is refused at once while others stay valid, and revoking the key revokes all', async () => {
    const first = await stack.issueKey();
    const { id, key } = await add(stack, first, {});
    expect((await stack.admin('DELETE', path(first, id))).status).toBe(204);
    expect([(await read(stack, key)).status, (await read(stack, first)).status]).toEqual([401, 200]);
    expect((await stack.admin('DELETE', path(first, id))).status).toBe(404);
    const [{ id: last = '' } = {}] = (await secretsOf(stack, first)) as Partial<Secret>[];
    expect((await stack.admin('DELETE', path(first, last))).json).toMatchObject({ code: 'conflict' });
    const other = await add(stack, first, {});
    await stack.admin('DELETE', `/keys/${idOf(first)}`);
    expect([(await read(stack, other.key)).status, (await read(stack, first)).status]).toEqual([401, 401]);
  });

  test('a rotation keeps scope, networks and expiry unless the call changes them', async () => {
    const first = await stack.issueKey();
    const bounds = { scope: ['read'], networks: ['10.0.0.0/8'], expiresAt: '2099-01-02T03:04:05.000Z' };
    const { id } = await add(stack, first, bounds);
    const rotate = async (secretId: string, given: Record<string, unknown> = {}) => {
      await stack.admin('POST', `/keys/${idOf(first)}/rotate`, { graceSeconds: 0, secretId, ...given });
      return (await secretsOf(stack, first)).at(-1);
    };
    const kept = await rotate(id);
    expect(kept).toMatchObject({ name: 'billing service', ...bounds });
    expect(await rotate(kept?.id ?? '', { networks: [] })).toMatchObject({ ...bounds, networks: [] });
  });

  const rotate = (key: string, body: unknown) => stack.admin('POST', `/keys/${idOf(key)}/rotate`, body);
  const whole = ({ json }: { json: unknown }) => (json as { key: string }).key;
  const statuses = (...keys: string[]) => Promise.all(keys.map((key) => statusOf(stack, key)));

  test('a repeated rotation does not revoke a secret at once, and the secret in use keeps its grace period', async () => {
    const old = await stack.issueKey();
    const second = whole(await rotate(old, { graceSeconds: 60 }));
    const third = whole(await rotate(old, { graceSeconds: 60 }));
    expect(await statuses(old, second, third)).toEqual([200, 200, 200]);
    const last = await rotate(old, { graceSeconds: 0 });
    expect(await statuses(old, second, third, whole(last))).toEqual([200, 200, 401, 200]);
  });

  test('a repeated rotation gives the new secret its own expiry, not the one set by the first rotation', async () => {
    const key = await stack.issueKey();
    const secretsIn = ({ json }: { json: unknown }) => (json as { secrets: Secret[] }).secrets;
    const ofKey = `/keys/${idOf(key)}`;
    const [first = { id: '' }] = await secretsOf(stack, key);
    const repeated = async () => {
      for (let time = 1; time < 3; time++) await rotate(key, { graceSeconds: 60, secretId: first.id });
      return secretsIn(await rotate(key, { graceSeconds: 60, secretId: first.id }));
    };
    for (const expiresAt of [undefined, '2250-12-01T00:00:00.000Z', '2251-12-01T00:00:00.000Z']) {
      if (expiresAt !== undefined) await stack.admin('PATCH', `${ofKey}/secrets/${first.id}`, { expiresAt });
      const [replaced, ...others] = await repeated();
      expect(Date.parse(replaced?.expiresAt ?? '') - Date.now()).toBeLessThan(60_000);
      expect(others.slice(-3).map((secret) => secret.expiresAt)).toEqual([expiresAt, expiresAt, expiresAt]);
    }
  });

  test('if several secrets have no expiry, a rotation must name the one to replace, and the others do not expire', async () => {
    const first = await stack.issueKey();
    const { id, key: billing } = await add(stack, first, { name: 'billing', scope: ['read'] });
    const message = expect.stringMatching(
      /^This key has several secrets\. Choose the one to replace with secretId: \w+ \(first\), \w+ \(billing\)\.$/,
    );
    expect(await rotate(first, { graceSeconds: 60 })).toMatchObject({ status: 409, json: { message } });
    const rotated = await rotate(first, { graceSeconds: 0, secretId: id });
    expect(rotated.json).toMatchObject({ secrets: [{ name: 'first' }, { name: 'billing', scope: ['read'] }] });
    expect(await statuses(first, billing, whole(rotated))).toEqual([200, 401, 200]);
    expect((await rotate(first, { graceSeconds: 60, secretId: id })).status).toBe(404);
    expect((await rotate(first, { graceSeconds: 60, ends: 'old' })).status).toBe(400);
  });

  test('an operation outside the scope gets a 403 Error with the limit headers and takes no token', async () => {
    const first = await stack.issueKey({ plan: 'enterprise', minute: 100, day: 10 });
    const reader = await add(stack, first, { scope: ['read'] });
    const writer = await add(stack, first, { scope: ['write'] });
    const refused = await write(stack, reader.key);
    expect(refused.json).toEqual({
      code: 'insufficient_scope',
      message: 'This request needs the write scope, but this API key has only the read scope.',
      status: 403,
    });
    expect(refused.headers['www-authenticate']).toBe('Bearer error="insufficient_scope"');
    expect(remaining(refused)).toBe(10);
    expect((await read(stack, writer.key)).status).toBe(403);
    const [got, made] = [await read(stack, reader.key), await write(stack, writer.key)];
    expect([got.status, remaining(got), made.status, remaining(made)]).toEqual([200, 9, 201, 8]);
    const atOnce = await Promise.all(Array.from({ length: 12 }, (_, at) => (at % 2 ? read : write)(stack, reader.key)));
    expect(atOnce.map(({ status }) => status)).toEqual(Array.from({ length: 12 }, (_, at) => (at % 2 ? 200 : 403)));
    const limits = await send(`${stack.gateway}/v1/limits`, { key: reader.key });
    expect(limits.json).toMatchObject({ scope: ['read'], day: { remaining: 2 } });
    expect(await viewOf(stack, idOf(first))).toMatchObject({ admitted: 8, refused: 0 });
    await stack.admin('PATCH', path(first, reader.id), { scope: ['write', 'read'] });
    expect((await write(stack, reader.key)).status).toBe(201);
  });

  test('a secret used outside its networks is treated as unknown, and the log gives the reason', async () => {
    const first = await stack.issueKey();
    const { id, key } = await add(stack, first, { networks: ['10.0.0.0/9', '2001:db8::/33'] });
    expect((await secretsOf(stack, first)).at(-1)).toMatchObject({ networks: ['10.0.0.0/9', '2001:db8::/33'] });
    const status = async (from: string) => (await read(stack, key, from)).status;
    expect(await Promise.all(['10.1.2.3', '10.127.255.255', '2001:db8:7fff::1'].map(status))).toEqual([200, 200, 200]);
    const warnings = () =>
      stack.log.filter(({ msg }) => msg === 'a secret came from outside its networks and was refused');
    // A request for the limits shows whether a key works, so a thief tries that first.
    await send(`${stack.gateway}/v1/limits`, { key, headers: { 'X-Forwarded-For': '10.128.0.0' } });
    expect(warnings()).toHaveLength(1);
    const elsewhere = await read(stack, key, '10.128.0.0');
    const unknown = await read(stack, `${first.slice(0, -6)}000000`, '10.128.0.0');
    expect([elsewhere.status, elsewhere.text]).toEqual([401, unknown.text]);
    expect(await Promise.all(['2001:db8:8000::1', '192.0.2.1', '::1'].map(status))).toEqual([401, 401, 401]);
    expect(warnings()).toMatchObject([{ keyId: idOf(first), address: '10.128.0.0' }]);
    const explained = await get<ExplainAnswer>(stack, `/keys/${idOf(first)}/explain`);
    expect(explained.decisions.map(({ outcome }) => outcome)).toContain('elsewhere');
    await stack.admin('PATCH', path(first, id), { networks: [] });
    expect(await status('192.0.2.1')).toBe(200);
  });

  test('a ban applies to the key and is not revealed outside its networks', async () => {
    const first = await stack.issueKey();
    const { key } = await add(stack, first, { networks: ['10.0.0.0/8'], scope: ['read'] });
    await stack.admin('PUT', `/keys/${idOf(first)}/ban`, { seconds: 60, reason: 'too much' });
    const status = async (from: string) => (await read(stack, key, from)).status;
    expect([await status('10.0.0.1'), await status('10.0.0.1'), await status('192.0.2.1')]).toEqual([429, 429, 401]);
  });

  test('a key has at most 20 secrets', async () => {
    const first = await stack.issueKey();
    for (let count = 1; count < 20; count++) await add(stack, first, { name: `secret ${count}` });
    expect(await stack.admin('POST', path(first), { name: 'one more' })).toMatchObject({
      status: 409,
      json: { message: 'A key has at most 20 secrets. Revoke an unused one first.' },
    });
    expect(await secretsOf(stack, first)).toHaveLength(20);
  });
});

test('a key in an older format gets 503, and the doctor names the remedy', async () => {
  const stack = await fresh();
  const key = await stack.issueKey();
  const hash = hashOf(idOf(key));
  const fields = Object.keys(await redis.hgetall(hash)).filter((field) => /^(secret|ok_)/.test(field));
  await redis.hdel(hash, ...fields);
  await redis.hset(hash, 'secret', 'a'.repeat(64));
  expect((await read(stack, key)).status).toBe(503);
  const { findings } = await get<DoctorAnswer>(stack, '/doctor');
  expect(findings.filter(({ about }) => about === 'keys')).toMatchObject([
    {
      status: 'fault',
      found: `${idOf(key)} cannot be read: its requests get 503, except from gateways that have used it lately`,
    },
  ]);
});
