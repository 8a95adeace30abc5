import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Redis } from 'ioredis';
import { expect, test, vi } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { freshSecrets, readCompose } from '../support/compose.ts';
import { send } from '../support/http.ts';
import { freePort } from '../support/port.ts';
import { ROOT, type Started, startProcess } from '../support/process.ts';
import { connectionTo } from '../support/redis-database.ts';
import { startStack, temporaryFolder } from '../support/stack.ts';

/** Tests Redis as compose.yaml starts it: with its start.sh, redis.conf, users.acl, environment and health check. */

const { redis: service } = readCompose(freshSecrets()).services;
const environment = service?.environment ?? {};
const password = (user: string) => environment[`REDIS_${user.toUpperCase()}_PASSWORD`] ?? '';

const port = String(await freePort());
const folder = await temporaryFolder();
let server = await start();

async function start(): Promise<Started> {
  const place = ['--port', port, '--bind', '127.0.0.1'];
  const script = join(ROOT, 'deploy/redis/start.sh');
  const started = startProcess('sh', [script, ...place], { ...environment, RUN_FOLDER: folder, DATA_FOLDER: folder });
  await vi.waitFor(() => expect(started.out()).toContain('Ready to accept connections'), { timeout: 30_000 });
  return started;
}

async function as(username: string, secret: string): Promise<Redis> {
  const own = { username, password: secret, retryStrategy: () => null, lazyConnect: true };
  const redis = connectionTo(`redis://127.0.0.1:${port}`, own);
  await redis.connect();
  return redis;
}

/** The health check's shell command, with the test's port. */
function isHealthy(variables: NodeJS.ProcessEnv): boolean {
  const [kind, command = ''] = service?.healthcheck?.test ?? [];
  expect(kind).toBe('CMD-SHELL');
  const onPort = command.replace('redis-cli', `redis-cli -p ${port}`);
  try {
    execFileSync('sh', ['-c', onPort], { env: { PATH: process.env.PATH, ...variables }, stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

test('Redis refuses writes instead of evicting keys, and persists its data', async () => {
  const admin = await as('admin', password('admin'));
  const kept = await admin.config('GET', 'maxmemory', 'maxmemory-policy', 'appendonly', 'appendfsync');
  expect(kept).toEqual(expect.arrayContaining(['noeviction', 'yes', 'everysec', String(256 * 1024 * 1024)]));
});

test('a failover between sentinels does not change the shipped configuration', async () => {
  const shipped = () => readFileSync(join(ROOT, 'deploy/redis/redis.conf'), 'utf8');
  const before = shipped();
  const admin = await as('admin', password('admin'));
  await admin.config('SET', 'masterauth', 'of-the-replica');
  // This is what a sentinel does to each node.
  await admin.config('REWRITE');
  expect(shipped()).toBe(before);
  expect(readFileSync(join(folder, 'redis.conf'), 'utf8')).toContain('of-the-replica');
});

test('users with a password can log in, others and the default user cannot', async () => {
  for (const user of ['admin', 'gateway', 'sre']) {
    await (await as(user, password(user))).disconnect();
    await expect(as(user, 'another')).rejects.toThrow();
  }
  await expect(as('replica', '')).rejects.toThrow();
  const nobody = await startProcess('redis-cli', ['-p', port, 'ping'], {}).ended;
  expect(nobody.out + nobody.err).toContain('NOAUTH');
});

test('a gateway connected as in compose.yaml works, and its keys survive a restart', async () => {
  const url = `redis://gateway:${password('gateway')}@127.0.0.1:${port}`;
  const stack = await startStack({ REDIS_URL: url, REDIS_TIMEOUT_MS: '10000' });
  const key = await stack.issueKey();
  expect((await send(`${stack.gateway}/v1/pets`, { key })).status).toBe(200);
  const unused = await stack.issueKey();
  await (await as('admin', password('admin'))).multi().set('one', '1').set('two', '2').exec();
  server.child.kill('SIGTERM');
  await server.ended;
  expect(isHealthy(environment)).toBe(false);
  server = await start();
  expect(isHealthy(environment)).toBe(true);
  expect(isHealthy({ ...environment, REDISCLI_AUTH: 'another' })).toBe(false);
  const again = async () => (await send(`${stack.gateway}/v1/pets`, { key })).headers['x-ratelimit-remaining'];
  await expect.poll(again, { timeout: 30_000 }).toMatch(/^5[0-8]$/);
  // Redis replays transactions and scripts with several writes, such as the one that created this key, as one user.
  expect(await (await as('admin', password('admin'))).mget('one', 'two')).toEqual(['1', '2']);
  const statusOf = async (secret: string) => (await send(`${stack.gateway}/v1/pets`, { key: secret })).status;
  await expect.poll(() => statusOf(unused), { timeout: 30_000 }).toBe(200);
  const hash = await (await as('sre', password('sre'))).hgetall(`gateway:key:{${idOf(key)}}`);
  expect(Number(hash.admitted)).toBeGreaterThanOrEqual(1);
});
