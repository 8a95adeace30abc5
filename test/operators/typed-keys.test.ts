import { expect, test } from 'vitest';
import { createApiKey } from '../../gateway/limiter/credential.ts';
import type { BackupAnswer, DoctorAnswer } from '../../gateway/operators/api/answers.ts';
import { auditOf as auditIn } from '../support/activity.ts';
import { idOf } from '../support/api-key.ts';
import {
  alarmsOf as alarmsIn,
  ask,
  get,
  hashOf,
  issueId,
  operatorsRedis,
  statusOf,
  viewOf,
} from '../support/operators.ts';

/** Keys and secrets, valid and invalid, that were typed into Redis by hand. */

const { redis, fresh } = await operatorsRedis();
const stack = await fresh();

const auditOf = (id: string) => auditIn(stack, id);
const alarmsOf = (id: string) => alarmsIn(stack, id);
/** The status of an operator's call. */
const act = async (method: string, path: string, body?: unknown) => (await stack.admin(method, path, body)).status;

async function issue(name = 'test') {
  const key = await stack.issueKey({ name });
  const id = idOf(key);
  return { key, id, path: `/keys/${id}` };
}

const GOOD = { plan: 'free', name: 'typed', created_at: '1795132800' };

/** Writes a key into Redis, as an operator who knows the fields would. */
async function type(fields: Record<string, string>, secret = 'k3JtQz81 - read,write - 1795132800 first') {
  const { apiKey, credential } = createApiKey();
  await redis.hset(hashOf(credential.id), { ...fields, [`secret:${credential.digest}`]: secret });
  await redis.zadd('gateway:keys', 1_795_132_800, credential.id);
  return { id: credential.id, apiKey };
}

test('a key that was typed by hand is adopted once and works like any other', async () => {
  const { id, apiKey } = await type(GOOD);
  expect(await statusOf(stack, apiKey)).toBe(200);
  await expect.poll(() => auditOf(id), { timeout: 5_000 }).toEqual(['by hand: key.create']);
  expect(await redis.hmget(hashOf(id), 'ok_plan', 'ok_name')).toEqual(['free', 'typed']);
  expect(alarmsOf(id)).toEqual([]);
  expect(await act('PATCH', `/keys/${id}`, { minute: 7 })).toBe(200);
  expect(await act('PUT', `/keys/${id}/ban`, { seconds: 60 })).toBe(200);
  expect(await act('POST', `/keys/${id}/rotate`, { graceSeconds: 0 })).toBe(201);
  await redis.hset(hashOf(id), 'minute', 'many');
  await expect
    .poll(() => alarmsOf(id), { timeout: 5_000 })
    .toEqual([expect.stringContaining('minute is not valid: 7')]);
  expect((await auditOf(id)).filter((entry) => entry === 'by hand: key.create')).toHaveLength(1);
});

test('the audit log records that a key was typed by hand before it records a change to that key', async () => {
  const { id } = await type(GOOD);
  await stack.admin('PATCH', `/keys/${id}`, { name: 'mine' });
  expect(await auditOf(id)).toEqual(['api: key.change', 'by hand: key.create']);
});

// Concurrent, because each test waits for the check for edits, which runs once a second.
test.concurrent.for([
  ['a plan that does not exist', { ...GOOD, plan: 'gold' }, undefined, 'plan is not valid: "gold"'],
  ['an expiry that is not a time', { ...GOOD, expires_at: 'soon' }, undefined, 'expires_at is not valid: "soon"'],
  ['an enterprise plan without limits', { ...GOOD, plan: 'enterprise' }, undefined, 'minute and day are missing'],
  ['a secret that cannot be read', GOOD, 'first', 'One of its secrets cannot be read'],
] as const)(
  'a key typed with %s is logged as an error, and operators can change it',
  async ([, fields, secret, why], { expect }) => {
    const { id, apiKey } = await type(fields, secret);
    expect(await statusOf(stack, apiKey)).toBe(503);
    await expect.poll(() => alarmsOf(id), { timeout: 5_000 }).toEqual([expect.stringContaining(why)]);
    expect(await auditOf(id)).toEqual(['by hand: key.create']);
    expect(await statusOf(stack, apiKey)).toBe(503);
    expect(await act('PATCH', `/keys/${id}`, { disabled: true })).toBe(200);
    expect(await redis.hget(hashOf(id), 'disabled')).toBe('1');
    expect(await act('PUT', `/keys/${id}/ban`, { seconds: 60 })).toBe(200);
    expect(await act('DELETE', `/keys/${id}`)).toBe(204);
    expect(await statusOf(stack, apiKey)).toBe(401);
  },
);

test('a key without usable limits works once an operator has set all of them', async () => {
  const { id, apiKey } = await type({ ...GOOD, plan: 'gold' });
  expect(await viewOf(stack, id)).toMatchObject({ state: 'unreadable' });
  expect(await act('PATCH', `/keys/${id}`, { name: 'other' })).toBe(409);
  expect(await act('PATCH', `/keys/${id}`, { plan: 'enterprise', day: 30 })).toBe(400);
  expect(await act('PATCH', `/keys/${id}`, { plan: 'pro' })).toBe(200);
  expect(await statusOf(stack, apiKey)).toBe(200);
});

/** A key with two secrets, the second of which was damaged by hand. */
async function spoilt(text: (good: string) => string) {
  const { key: first, id } = await issue();
  const given = { name: 'second', scope: ['read'], networks: ['127.0.0.0/8'], expiresAt: '2200-01-01T00:00:00Z' };
  const added = (await stack.admin('POST', `/keys/${id}/secrets`, given)).json as { id: string; key: string };
  const [field = '', good = ''] =
    Object.entries(await redis.hgetall(hashOf(id))).find(([, value]) => value.startsWith(`${added.id} `)) ?? [];
  await redis.hset(hashOf(id), field, text(good));
  return { id, first, second: added.key };
}

const SPOILT: readonly (readonly [part: string, status: number, (good: string) => string])[] = [
  ['networks', 401, (good) => good.replace(/4:\S+/, '10.0.0.0/8')],
  ['scope', 403, (good) => good.replace(' read ', ' rad ')],
  ['expiresAt', 503, (good) => good.replace(/ \S+/, ' 2030-12-31')],
];

test.concurrent.for(SPOILT)(
  'a secret with damaged %s is logged as an error and can be changed only if that part is set again',
  async ([part, status, spoil], { expect }) => {
    const { id, first, second } = await spoilt(spoil);
    await expect
      .poll(() => alarmsOf(id), { timeout: 5_000 })
      .toEqual([expect.stringMatching(/^.* secret \w{8} is not valid/)]);
    expect([await statusOf(stack, first), await statusOf(stack, second)]).toEqual([200, status]);
    const secret = (await viewOf(stack, id)).secrets.find(({ name }) => name === 'second');
    expect(secret?.unreadable).toEqual([part]);
    const path = `/keys/${id}/secrets/${secret?.id}`;
    const { findings } = await get<DoctorAnswer>(stack, '/doctor');
    expect(findings.map(({ found }) => found).join()).toContain(`of secret ${secret?.id}`);
    expect((await stack.admin('PATCH', path, { name: 'other' })).json).toMatchObject({ status: 409 });
    const rotation = { graceSeconds: 60, secretId: secret?.id };
    expect((await stack.admin('POST', `/keys/${id}/rotate`, rotation)).json).toMatchObject({
      status: 409,
      message: expect.stringContaining(`Set ${part} again, or revoke it.`),
    });
    const said = { networks: ['127.0.0.0/8'], scope: ['read'], expiresAt: '2200-01-01T00:00:00Z' };
    expect(await act('POST', `/keys/${id}/rotate`, { ...rotation, ...said })).toBe(201);
    expect([await statusOf(stack, first), await statusOf(stack, second)]).toEqual([200, 401]);
    const { secrets } = await viewOf(stack, id);
    expect(secrets.filter(({ unreadable }) => unreadable)).toEqual([]);
    expect(await redis.hget(hashOf(id), 'rejected')).toBeNull();
  },
);

test('a damaged secret can be fixed by setting its unreadable fields, or revoked', async () => {
  const { id, second } = await spoilt((good) => good.replace(/ \S+/, ' soon'));
  const secret = (await viewOf(stack, id)).secrets.find(({ name }) => name === 'second');
  const path = `/keys/${id}/secrets/${secret?.id}`;
  expect(await act('PATCH', path, { expiresAt: '2200-01-01T00:00:00Z' })).toBe(200);
  expect(await statusOf(stack, second)).toBe(200);
  expect(await act('DELETE', path)).toBe(204);
  expect(await statusOf(stack, second)).toBe(401);
  expect(await act('DELETE', path)).toBe(404);
});

test('a key whose only secret is damaged can be disabled, banned and rotated', async () => {
  const id = await issueId(stack);
  const [field = ''] = Object.keys(await redis.hgetall(hashOf(id))).filter((one) => one.startsWith('secret:'));
  await redis.hset(hashOf(id), field, 'spoilt');
  expect(await act('PATCH', `/keys/${id}`, { disabled: true })).toBe(200);
  expect(await act('PUT', `/keys/${id}/ban`, { seconds: 60 })).toBe(200);
  expect(await act('POST', `/keys/${id}/rotate`, { graceSeconds: 60 })).toBe(409);
  const said = { scope: ['read'], networks: [], expiresAt: null };
  expect(await act('POST', `/keys/${id}/rotate`, { graceSeconds: 60, ...said })).toBe(201);
  expect(await viewOf(stack, id)).toMatchObject({ state: 'disabled', secrets: [{ scope: ['read'] }] });
});

test('a secret in a field whose name is not UTF-8 can be revoked', async () => {
  const id = await issueId(stack);
  const name = Buffer.from([...Buffer.from('secret:'), 0xff, 0x61, 0xfe]);
  await redis.call('HSET', hashOf(id), name, 'k3JtQz81 - read,write - 1795132800 typed');
  await stack.admin('POST', `/keys/${id}/secrets`, { name: 'third' });
  expect(await act('DELETE', `/keys/${id}/secrets/k3JtQz81`)).toBe(204);
  expect(Object.values(await redis.hgetall(hashOf(id))).filter((text) => text.includes('typed'))).toEqual([]);
  expect((await viewOf(stack, id)).secrets.map((secret) => secret.name)).toEqual(['first', 'third']);
});

test.for([
  ['key', 'tags', 'customer=other'],
  ['key', 'ok_tags', ''],
  ['key', 'usage_days', '20000:7:7'],
  ['marks', 'disabled', '1'],
  ['marks', 'name', 'other'],
  ['marks', 'tags', 'customer=other'],
  ['tags', 'name', 'other'],
  ['tags', 'plan', 'business'],
  ['tags', 'disabled', '1'],
] as const)(
  'gateway:%s:{<id>} with a stray field %s has no effect, and operators can change the key',
  async ([hash, field, value]) => {
    const { key, id } = await issue('mine');
    expect(await statusOf(stack, key)).toBe(200);
    const before = await viewOf(stack, id);
    const fields = async () => {
      const { keys } = await get<BackupAnswer>(stack, '/backup?limit=100');
      return keys.find((one) => one.id === id)?.fields;
    };
    const backedUp = await fields();
    await redis.hset(`gateway:${hash}:{${id}}`, field, value);
    expect(await viewOf(stack, id)).toEqual({ ...before, buckets: expect.anything() });
    expect(await fields()).toEqual(backedUp);
    expect(await statusOf(stack, key)).toBe(200);
    expect([
      await act('PATCH', `/keys/${id}`, { name: 'renamed' }),
      await act('PUT', `/keys/${id}/ban`, { seconds: 60 }),
      await act('POST', `/keys/${id}/reset`, {}),
      await act('PATCH', `/keys/${id}`, { disabled: true }),
      await statusOf(stack, key),
      await act('POST', `/keys/${id}/rotate`, { graceSeconds: 0 }),
      await act('DELETE', `/keys/${id}`),
    ]).toEqual([200, 200, 200, 200, 401, 201, 204]);
    expect(await redis.hmget(`gateway:usage:{${id}}`, 'name', 'tags', 'usage_days')).toEqual(['renamed', null, null]);
    expect(await redis.exists(...['key', 'marks', 'tags'].map((one) => `gateway:${one}:{${id}}`))).toBe(0);
  },
);

test.concurrent.for([
  ['that is empty', ''],
  ['of 101 characters', '🦁'.repeat(101)],
  ['with a line feed', 'a\nb'],
] as const)(
  'a name %s is refused for a new key and secret, and logged as an error if typed by hand',
  async ([, name], { expect }) => {
    const { key, id } = await issue('good');
    expect(await act('POST', '/keys', { name, plan: 'free' })).toBe(400);
    expect(await act('POST', `/keys/${id}/secrets`, { name })).toBe(400);
    const fields = await redis.hgetall(hashOf(id));
    const secret = Object.entries(fields).find(([field]) => field.startsWith('secret:')) ?? ['', ''];
    await redis.hset(hashOf(id), { name, [secret[0]]: secret[1].replace('first', () => name) });
    await expect
      .poll(() => alarmsOf(id), { timeout: 5_000 })
      .toEqual([expect.stringMatching(/name is not valid: good .*secret \w{8} is not valid/)]);
    expect(await viewOf(stack, id)).toMatchObject({ name: 'good', secrets: [{ unreadable: ['name'] }] });
    expect(await statusOf(stack, key)).toBe(200);
    expect(await act('POST', `/keys/${id}/rotate`, { graceSeconds: 0 })).toBe(201);
    expect(await act('PATCH', `/keys/${id}`, { name: 'better' })).toBe(200);
    const { name: now, secrets } = await viewOf(stack, id);
    expect([now, secrets.map((secret) => [secret.name, secret.unreadable])]).toEqual([
      'better',
      [['first', undefined]],
    ]);
  },
);

const UNREADABLE = {
  status: 409,
  json: { message: "The key's data cannot be read. Fix it by hand, or revoke the key." },
};

test('a key whose hash was replaced by a string can only be revoked', async () => {
  const { key, id, path } = await issue();
  await redis.set(hashOf(id), 'text');
  expect(await get(stack, '/keys?state=unreadable')).toMatchObject({ keys: [{ id }] });
  for (const [method, more, body] of [
    ['PATCH', '', { disabled: true }],
    ['PUT', '/ban', { seconds: 60 }],
    ['POST', '/rotate', { graceSeconds: 0 }],
    ['POST', '/secrets', { name: 'new' }],
  ] as const)
    expect(await stack.admin(method, path + more, body)).toMatchObject(UNREADABLE);
  expect(await act('DELETE', path)).toBe(204);
  expect(await statusOf(stack, key)).toBe(401);
});

test('a key that has lost its secrets can be disabled and banned, and works again with a new secret', async () => {
  const { key, id, path } = await issue();
  const fields = await redis.hkeys(hashOf(id));
  await redis.hdel(hashOf(id), ...fields.filter((field) => field.startsWith('secret:')));
  expect(await stack.admin('POST', `${path}/rotate`, { graceSeconds: 0 })).toMatchObject(UNREADABLE);
  expect(await act('PATCH', path, { disabled: true })).toBe(200);
  expect(await act('PUT', `${path}/ban`, { seconds: 60 })).toBe(200);
  expect(await act('POST', `${path}/reset`, {})).toBe(409);
  const added = (await stack.admin('POST', `${path}/secrets`, { name: 'new' })).json as { key: string };
  expect(await act('PATCH', path, { disabled: false })).toBe(200);
  expect(await act('DELETE', `${path}/ban`)).toBe(200);
  expect([await statusOf(stack, added.key), await statusOf(stack, key)]).toEqual([200, 401]);
});

test.for([
  ['on an unknown plan', { plan: 'gold' }, 'active'],
  ['on an unknown plan without a valid copy', { plan: 'gold', ok_plan: 'nothing' }, 'unreadable'],
  ['edited to have an invalid expiry', { expires_at: '2030-12-31' }, 'active'],
  ['disabled by hand', { disabled: '1' }, 'disabled'],
  ['marked as disabled with an empty string', { disabled: '' }, 'active'],
] as const)('a key that is %s is shown unchanged and can be revoked', async ([, edit, state]) => {
  const { key, id } = await issue();
  await redis.hset(hashOf(id), edit);
  expect(await viewOf(stack, id)).toMatchObject({ id, state });
  expect((await statusOf(stack, key)) === 200).toBe(state === 'active');
  expect(await act('DELETE', `/keys/${id}`)).toBe(204);
  expect(await redis.exists(hashOf(id))).toBe(0);
});

test('a key can be revoked whatever value was typed in place of its usage', async () => {
  const { key, id } = await issue();
  await redis.set(`gateway:usage:{${id}}`, 'text');
  expect(await act('DELETE', `/keys/${id}`)).toBe(204);
  expect(await statusOf(stack, key)).toBe(401);
  expect(await redis.hget(`gateway:usage:{${id}}`, 'plan')).toBe('free');
});

test.for(['Infinity', '-5', '1e3', '0x10', '1234567890123456'])(
  'a count of %s, set by hand, is shown as 0, and counting continues from 0',
  async (count) => {
    const { key, id } = await issue();
    await redis.hset(hashOf(id), { admitted: count, refused: count });
    expect(await viewOf(stack, id)).toMatchObject({ admitted: 0, refused: 0 });
    expect(await statusOf(stack, key)).toBe(200);
    expect(await viewOf(stack, id)).toMatchObject({ admitted: 1, refused: 0 });
  },
);

test('a ban with an impossible end is ignored', async () => {
  const { key, id } = await issue();
  await redis.hset(hashOf(id), 'banned_until', '9999999999999999');
  const { status, headers } = await ask(stack, key);
  expect([status, headers['x-ratelimit-reset']]).toEqual([200, expect.stringMatching(/^[1-9]\d*$/)]);
});
