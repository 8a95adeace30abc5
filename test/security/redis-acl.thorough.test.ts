import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { expect, test } from 'vitest';
import type { DoctorAnswer } from '../../gateway/operators/api/answers.ts';
import { AUDIT_LOG, follow } from '../../gateway/primary/changes.ts';
import { RedisStorage } from '../../gateway/stores/redis/storage.ts';
import { idOf } from '../support/api-key.ts';
import { send } from '../support/http.ts';
import { ROOT } from '../support/process.ts';
import { startRedisCluster } from '../support/redis-cluster.ts';
import { connectedRedis, connectionTo, ownRedis } from '../support/redis-database.ts';
import { MASTER_NAME, startSentinels } from '../support/redis-sentinel.ts';
import { installUsers, passwordOf, refusals, startRedisWithUsers, USERS, urlOf } from '../support/redis-users.ts';
import { replicated } from '../support/replicated.ts';
import { type Stack, startStack, temporaryFolder } from '../support/stack.ts';
import { WEBHOOK_SECRET, webhookReceiver } from '../support/webhook-receiver.ts';

async function webhookSettings() {
  const { url, types } = await webhookReceiver();
  return { WEBHOOK_URL: url, WEBHOOK_SECRET, types };
}

const ask = (stack: Stack, key: string) => send(`${stack.gateway}/v1/pets`, { key });

/** Makes a gateway use all of its Redis commands, for keys, plans, admissions, refusals, bans and unknown keys. */
async function useAll(stack: Stack, deliveries: () => readonly string[]): Promise<void> {
  expect((await stack.admin('PATCH', '/plans/free', { ban_after: 2, ban_grace_seconds: 0, minute: 3 })).status).toBe(
    200,
  );
  const keys = await Promise.all(Array.from({ length: 6 }, () => stack.issueKey()));
  expect(stack.log.filter(({ level }) => level > 30)).toEqual([]);
  for (const key of keys) {
    const answers = [];
    for (let sent = 0; sent < 6; sent++) answers.push(await ask(stack, key));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 429, 429, 429]);
    expect(answers.at(-1)?.json).toMatchObject({ code: 'key_banned' });
  }
  expect((await stack.admin('GET', '/keys')).json).toMatchObject({ total: 6 });
  await expect.poll(() => deliveries().length).toBe(6);
  await operate(stack, idOf(keys[1] as string));
  await expect.poll(async () => (await ask(stack, keys[1] as string)).status).toBe(200);
  expect((await stack.admin('GET', '/doctor')).status).toBe(200);
  const id = idOf(keys[0] as string);
  expect((await stack.admin('DELETE', `/keys/${id}`)).status).toBe(204);
  // A ban is cached for a second.
  await expect.poll(async () => (await ask(stack, keys[0] as string)).status).toBe(401);
  expect((await stack.admin('GET', `/keys/${id}`)).status).toBe(404);
  const { usage } = (await stack.admin('GET', '/usage')).json as { usage: { id: string }[] };
  expect(new Set(usage.map((row) => row.id))).toEqual(new Set(keys.map((key) => idOf(key))));
  await restoreOne(stack);
}

/** Starts a gateway that has to notify another one of each change. */
async function startBesideAnother(settings: Record<string, string>): Promise<Stack> {
  const { WEBHOOK_URL: _url, ...others } = settings;
  await startStack(others);
  return await startStack(settings);
}

async function restoreOne(stack: Stack): Promise<void> {
  const { at, keys } = (await stack.admin('GET', '/backup')).json as { at: string; keys: [{ fields: object }] };
  const page = { at, plans: { 'free.minute': '60' }, keys: [{ id: 'RestoredKey1', fields: keys[0].fields }] };
  expect((await stack.admin('POST', '/restore', page)).json).toMatchObject({ restored: 1 });
  expect((await stack.admin('DELETE', '/keys/RestoredKey1')).status).toBe(204);
  expect((await stack.admin('POST', '/restore', page)).json).toMatchObject({ revoked: 1 });
}

/** Calls the remaining operations for operators. */
async function operate(stack: Stack, id: string | undefined): Promise<void> {
  for (const [status, method, path, body] of [
    [200, 'PATCH', `/keys/${id}`, { disabled: true, expiresAt: '2100-01-01T00:00:00Z' }],
    [200, 'PATCH', `/keys/${id}`, { disabled: false, expiresAt: null, tags: { customer: 'acme' } }],
    [201, 'POST', `/keys/${id}/rotate`, { graceSeconds: 60 }],
    [200, 'PUT', `/keys/${id}/ban`, { seconds: 60, reason: 'test' }],
    [200, 'DELETE', `/keys/${id}/ban`],
    [200, 'POST', `/keys/${id}/reset`, { reason: 'test' }],
    [200, 'GET', '/bans'],
    [200, 'GET', '/usage'],
    [200, 'POST', '/plans/free/try', { minute: 5 }],
    [200, 'GET', '/plans/history'],
    [200, 'POST', '/plans/rollback', {}],
    [200, 'GET', '/activity'],
    [201, 'POST', '/tokens', { name: 'ann', role: 'viewer' }],
  ] as const)
    expect([(await stack.admin(method, path, body)).status, method, path]).toEqual([status, method, path]);
  const { tokens } = (await stack.admin('GET', '/tokens')).json as { tokens: { id: string }[] };
  for (const one of tokens) expect((await stack.admin('DELETE', `/tokens/${one.id}`)).status).toBe(204);
  expect(stack.log.filter(({ level }) => level > 30)).toEqual([]);
}

test.for(['', '/2'])(
  'the gateway’s user may run all commands that the gateway needs on a single Redis%s',
  async (database) => {
    const { server, root } = await startRedisWithUsers();
    const { types, ...webhook } = await webhookSettings();
    const settings = { REDIS_URL: urlOf('gateway', server.url + database), REDIS_TIMEOUT_MS: '2000' };
    await useAll(await startBesideAnother({ ...settings, ...webhook }), types);
    expect(await refusals(root)).toEqual([]);
  },
);

test('the gateway’s user may run all commands that the gateway needs on a cluster', async () => {
  const cluster = await startRedisCluster();
  for (const { redis } of cluster.nodes) await installUsers(redis);
  const urls = cluster.nodes.map(({ url }) => urlOf('gateway', url)).join(',');
  const { types, ...webhook } = await webhookSettings();
  const settings = { REDIS_MODE: 'cluster', REDIS_URL: urls, REDIS_TIMEOUT_MS: '2000' };
  await useAll(await startBesideAnother({ ...settings, ...webhook }), types);
  for (const { redis } of cluster.nodes) expect(await refusals(redis)).toEqual([]);
});

test('gateways that may not query each other act on changes by the audit log, and the doctor names the cause', async () => {
  const { server, root } = await startRedisWithUsers();
  const rules = USERS.get('gateway')?.filter((rule) => !rule.includes('gateway:answers')) ?? [];
  await root.acl('SETUSER', 'gateway', 'reset', ...rules, `>${passwordOf('gateway')}`);
  const settings = { REDIS_URL: urlOf('gateway', server.url), REDIS_TIMEOUT_MS: '2000' };
  const [first, second] = [await startStack(settings), await startStack(settings)];
  const key = await first.issueKey();
  expect((await ask(second, key)).status).toBe(200);
  expect((await first.admin('DELETE', `/keys/${idOf(key)}`)).status).toBe(204);
  await expect.poll(async () => (await ask(second, key)).status).toBe(401);
  const { findings } = (await first.admin('GET', '/doctor')).json as DoctorAnswer;
  const { found } = findings.find(({ about }) => about === 'other gateways') ?? {};
  expect(found).toMatch(/^cannot be queried through Redis: NOPERM /);
});

test('the users of sentinels and replicas have all permissions that a failover needs', async () => {
  const watched = await startSentinels();
  for (const { redis } of watched.sentinels) {
    await redis.call('SENTINEL', 'SET', MASTER_NAME, 'auth-user', 'sentinel', 'auth-pass', passwordOf('sentinel'));
  }
  for (const { redis } of watched.nodes) {
    await redis.config('SET', 'masteruser', 'replica');
    await redis.config('SET', 'masterauth', passwordOf('replica'));
    await installUsers(redis);
    await redis.call('CLIENT', 'KILL', 'SKIPME', 'yes');
    await redis.acl('LOG', 'RESET');
  }
  const lost = await watched.primary();
  const stack = await startStack({
    REDIS_MODE: 'sentinel',
    REDIS_URL: watched.sentinels.map(({ url }) => urlOf('gateway', url)).join(','),
    REDIS_MASTER_NAME: MASTER_NAME,
    REDIS_TIMEOUT_MS: '500',
  });
  await expect.poll(async () => (await stack.admin('GET', '/keys')).status).toBe(200);
  const key = await stack.issueKey();
  await replicated(lost.redis, 2);
  await lost.server.stop();
  await expect.poll(() => watched.primary()).not.toBe(lost);
  await expect.poll(async () => (await ask(stack, key)).status).toBe(200);
  for (const { redis } of watched.nodes.filter((node) => node !== lost)) expect(await refusals(redis)).toEqual([]);
});

const FOREIGN = [
  ...['FLUSHALL', 'FLUSHDB', 'KEYS *', 'CONFIG GET *', 'CONFIG SET maxmemory 1', 'ACL LIST', 'SCRIPT FLUSH'],
  ...['CLIENT KILL TYPE normal', 'REPLICAOF NO ONE', 'SHUTDOWN NOSAVE', 'MONITOR', 'EXPIRE gateway:plans 1'],
  ...['EXPIRE gateway:key:{abc} 1', 'SET gateway:plans x', 'SET gateway:key:{abc} x', 'GET somebody:else'],
  ...['HSET somebody:else field value', 'HGETALL gateway:key:without-braces'],
].map((command) => command.split(' '));
FOREIGN.push(
  ['EVAL', "return redis.call('HSET', KEYS[1], 'a', 'b')", '1', 'somebody:else'],
  ['EVAL', "return redis.call('HSET', 'somebody:else', 'a', 'b')", '0'],
  ['EVAL', "return redis.call('FLUSHALL')", '0'],
);

const REFUSED = /^(NOPERM|ERR The user executing the script)/;
const { server, root } = await startRedisWithUsers();
const as = (user: string) => connectionTo(urlOf(user, server.url), { disableClientInfo: true });

test.for(FOREIGN)("the gateway's user may not run %s %s %s", async ([name = '', ...rest]) => {
  await expect(as('gateway').call(name, ...rest)).rejects.toThrow(REFUSED);
});

test('SREs can read and edit plans and keys and inspect Redis, but not break anything', async () => {
  const sre = as('sre');
  expect(await sre.hset('gateway:plans', 'free.minute', '120')).toBe(1);
  expect(await sre.hgetall('gateway:plans')).toEqual({ 'free.minute': '120' });
  expect(await sre.hset('gateway:key:{abc}', 'disabled', '1')).toBe(1);
  expect(await sre.hset('gateway:tags:{abc}', 'tags', 'customer=acme')).toBe(1);
  expect(await sre.zcard('gateway:keys')).toBe(0);
  expect(await sre.xrevrange('gateway:activity', '+', '-')).toEqual([]);
  expect(await sre.info('memory')).toContain('used_memory');
  expect(await sre.call('SLOWLOG', 'GET', '1')).toEqual(expect.any(Array));
  for (const [name = '', ...rest] of [
    ...FOREIGN.filter(([command]) => command !== 'HGETALL' && command !== 'GET'),
    ['DEL', 'gateway:plans'],
    ['HSET', 'gateway:tokens', '00000000', '{}'],
    ['XADD', 'gateway:activity', '*', 'actor', 'somebody else'],
    ['XTRIM', 'gateway:activity', 'MAXLEN', '0'],
  ])
    await expect(sre.call(name, ...rest), name).rejects.toThrow(REFUSED);
  expect(await root.dbsize()).toBe(3);
});

test('while a script keeps Redis busy, the doctor names the command that ends it, which SREs may run', async () => {
  const { server, root } = await startRedisWithUsers({ 'busy-reply-threshold': '100' });
  const stack = await startStack({ REDIS_URL: urlOf('gateway', server.url), REDIS_TIMEOUT_MS: '500' });
  const key = await stack.issueKey();
  const sre = connectionTo(urlOf('sre', server.url), { disableClientInfo: true });
  await sre.ping();
  const ended = root.eval('while true do end', 0).catch(({ message }: Error) => message);
  const finding = async () => {
    const { findings } = (await stack.admin('GET', '/doctor')).json as DoctorAnswer;
    return findings.find(({ about }) => about === 'redis');
  };
  const advice = expect.stringContaining('redis-cli SCRIPT KILL');
  await expect.poll(finding, { timeout: 10_000 }).toMatchObject({ status: 'fault', advice });
  expect(await sre.call('SCRIPT', 'KILL')).toBe('OK');
  expect(await ended).toContain('killed by user');
  await expect.poll(finding, { timeout: 10_000 }).toMatchObject({ status: 'good' });
  await expect.poll(async () => (await ask(stack, key)).status).toBe(200);
  // SREs cannot leave half a change: Redis does not end a script that has written.
  const written = root.eval("redis.call('SET', 'x', 1) for _ = 1, 1e8 do end", 0);
  await expect.poll(() => sre.call('SCRIPT', 'KILL').catch(String), { interval: 50 }).toContain('UNKILLABLE');
  await written;
});

/** Starts a server with this ACL file. */
async function serverWith(users: string): Promise<string> {
  const aclfile = join(await temporaryFolder(), 'users.acl');
  await writeFile(aclfile, '');
  const { url } = await ownRedis({ aclfile });
  const operator = connectionTo(url);
  await operator.ping();
  await writeFile(aclfile, users);
  await operator.acl('LOAD');
  return url;
}

/** @returns 'OK', or why the login was refused */
async function logIn(url: string, username: string, password: string): Promise<string> {
  const redis = new Redis(url, { username, password, retryStrategy: () => null, lazyConnect: true });
  let reason = 'OK';
  redis.on('error', ({ message }: Error) => {
    reason = message;
  });
  await redis.connect().catch(() => undefined);
  redis.disconnect();
  return reason;
}

test('the shipped users cannot log in until a password hash is added to their line', async () => {
  const shipped = readFileSync(join(ROOT, 'deploy/redis/users.acl'), 'utf8');
  const closed = await serverWith(shipped);
  for (const user of ['', ...USERS.keys()]) expect(await logIn(closed, user, 'any')).toMatch(/^(WRONGPASS|NOAUTH)/);
  const hash = createHash('sha256').update('secret').digest('hex');
  const open = await serverWith(shipped.replace('user gateway on resetpass', `user gateway on #${hash}`));
  expect(await logIn(open, 'gateway', 'secret')).toBe('OK');
  expect(await logIn(open, 'gateway', 'any')).toMatch(/^WRONGPASS/);
  expect(await logIn(open, 'sre', 'secret')).toMatch(/^WRONGPASS/);
});

test('the gateway’s user may run exactly the commands in its source code and those of the client library', () => {
  const source = (path: string) => readFileSync(join(ROOT, 'gateway', path), 'utf8');
  const files = ['storage', 'key-places', 'step', 'peers'];
  const typescript = files.map((name) => source(`stores/redis/${name}.ts`)).join('');
  const scripts = source('limiter/decide.lua') + source('stores/redis/change.lua');
  const called = [...typescript.matchAll(/redis\.(?!call)(\w+)\(/g), ...scripts.matchAll(/call\('(\w+)'/g)];
  // These commands are sent by the client library, or to a single node of a cluster.
  const connection =
    'asking client|info client|setname cluster|slots eval evalsha info readonly readwrite scan select wait'.split(' ');
  const needed = new Set([...called.map(([, name = '']) => name.toLowerCase()), ...connection]);
  const allowed = USERS.get('gateway')?.filter((rule) => rule.startsWith('+')) ?? [];
  expect(allowed.map((rule) => rule.slice(1).replace(')', '')).sort()).toEqual([...needed].sort());
});

test('while Redis refuses to read the audit log, the doctor names the refusal', async () => {
  const { server, root } = await startRedisWithUsers();
  const tail = follow(AUDIT_LOG, new RedisStorage(await connectedRedis(urlOf('gateway', server.url))), async () => {});
  await tail.read();
  await root.acl('SETUSER', 'gateway', '-xrevrange');
  await sleep(2_100);
  await expect(tail.read()).rejects.toThrow('NOPERM');
  expect(tail.check()).toMatchObject({
    found: expect.stringMatching(/^were last read \d\.\d s ago: NOPERM .*'xrevrange'.*\. Until they are read, /),
    advice: expect.stringMatching(/^Redis answers, but .* users\.acl/),
  });
});
