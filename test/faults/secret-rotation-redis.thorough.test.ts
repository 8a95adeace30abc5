import { execFileSync } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import type { Redis } from 'ioredis';
import { expect, test } from 'vitest';
import { createAuthority } from '../support/certificates.ts';
import { scrape } from '../support/metrics.ts';
import { freePort } from '../support/port.ts';
import { startRedisCluster } from '../support/redis-cluster.ts';
import { connectionTo, ownRedis } from '../support/redis-database.ts';
import { MASTER_NAME, startSentinels } from '../support/redis-sentinel.ts';
import { startRedisWithUsers, urlOf } from '../support/redis-users.ts';
import {
  elsewhere,
  expectNoFailure,
  linesOf,
  NEW,
  OLD,
  secretFile,
  serves,
  startLoad,
  valuesOf,
  WITHIN,
} from '../support/rotation.ts';
import { type Stack, startStack } from '../support/stack.ts';

/** Rotates the Redis secrets under load, with the commands from deploy/RUNBOOK.md. */

const REDIS_PAGE = 'Redis password';

test('the Redis password is rotated without a failed request', async () => {
  const { server, root } = await startRedisWithUsers();
  await root.acl('SETUSER', 'gateway', 'resetpass', `>${OLD}`);
  const { host } = new URL(server.url);
  const REDIS_URL_FILE = await secretFile(`redis://gateway:${OLD}@${host}`);
  const admin = connectionTo(urlOf('admin', server.url));
  const stack = await startStack({ REDIS_URL_FILE });
  const load = await startLoad(stack);
  await serves(load);

  const [add = [], reconnect = [], remove = []] = linesOf(REDIS_PAGE, 'redis-cli --user admin').map((line) =>
    line.replaceAll('"', '').split(' '),
  );
  expect([add.at(-1), remove.at(-1)]).toEqual([`>${NEW}`, `<${OLD}`]);
  await admin.call(...(add as [string, ...string[]]));
  await writeFile(REDIS_URL_FILE, elsewhere(valuesOf(REDIS_PAGE)[0] ?? '', host));
  expect(Number(await admin.call(...(reconnect as [string, ...string[]])))).toBeGreaterThan(0);
  await expect.poll(() => timesLogged(stack, 'the setting was changed'), WITHIN).toBe(1);
  await expect.poll(() => timesLogged(stack, 'redis is back'), WITHIN).toBe(1);
  await admin.call(...(remove as [string, ...string[]]));
  await serves(load);
  // Open connections survive the change. New ones need the new password.
  for (let round = 0; round < 3; round++) {
    expect(Number(await root.call('CLIENT', 'KILL', 'USER', 'gateway'))).toBeGreaterThan(0);
    await expect.poll(async () => String(await root.call('CLIENT', 'LIST')), WITHIN).toMatch(/ user=gateway /);
    await expect.poll(async () => (await scrape(stack.adminUrl)).sum('gateway_redis_nodes_away'), WITHIN).toBe(0);
    await serves(load);
  }
  await expectNoFailure(load);
  expect((await stack.admin('GET', '/keys')).status).toBe(200);
});

test('the password for a Redis Cluster is rotated without a failed request', async () => {
  const { nodes, urls } = await startRedisCluster();
  const withPassword = (password: string) => urls.replaceAll('redis://', `redis://gateway:${password}@`);
  const onAll = (...rules: string[]) =>
    Promise.all(nodes.map(({ redis }) => redis.acl('SETUSER', 'gateway', ...rules)));
  await onAll('on', '~*', '&*', '+@all', `>${OLD}`);
  const REDIS_URL_FILE = await secretFile(withPassword(OLD));
  const stack = await startStack({ REDIS_MODE: 'cluster', REDIS_URL_FILE });
  const load = await startLoad(stack);
  await serves(load);

  await onAll(`>${NEW}`);
  await writeFile(REDIS_URL_FILE, withPassword(NEW));
  await onAll(`<${OLD}`);
  for (const { redis } of nodes) await redis.call('CLIENT', 'KILL', 'USER', 'gateway');
  // The client library reconnects to a node only when a key needs it.
  const clients = async () => (await Promise.all(nodes.map(({ redis }) => redis.call('CLIENT', 'LIST')))).join('');
  await expect.poll(clients, WITHIN).toMatch(/ user=gateway /);
  await expect.poll(async () => (await scrape(stack.adminUrl)).sum('gateway_redis_nodes_away'), WITHIN).toBe(0);
  await expectNoFailure(load);
});

const timesLogged = ({ log }: Stack, text: string): number => log.filter(({ msg }) => msg === text).length;

/** Closes the connections of the gateway's user, and waits until the gateway shares decisions again. */
async function connectsAgain(stack: Stack, redis: Redis): Promise<void> {
  const before = timesLogged(stack, 'redis is back');
  expect(Number(await redis.call('CLIENT', 'KILL', 'USER', 'gateway'))).toBeGreaterThan(0);
  await expect.poll(() => timesLogged(stack, 'redis is back'), WITHIN).toBeGreaterThan(before);
  await expect.poll(async () => (await scrape(stack.adminUrl)).sum('gateway_redis_nodes_away'), WITHIN).toBe(0);
}

const SENTINELS_PAGE = 'Sentinel password';

/** Starts sentinels and nodes with a user `gateway`, and a stack that logs in as this user. */
async function startWithSentinels() {
  const { urls, nodes, sentinels, primary } = await startSentinels();
  const rules = ['SETUSER', 'gateway', 'on', `>${OLD}`, '~*', '&*', '+@all'] as const;
  for (const { redis } of [...nodes, ...sentinels]) await redis.call('ACL', ...rules);
  const REDIS_SENTINEL_PASSWORD_FILE = await secretFile(OLD);
  const stack = await startStack({
    REDIS_MODE: 'sentinel',
    REDIS_URL: urls.replaceAll('redis://', `redis://gateway:${OLD}@`),
    REDIS_MASTER_NAME: MASTER_NAME,
    REDIS_SENTINEL_USERNAME: 'gateway',
    REDIS_SENTINEL_PASSWORD_FILE,
  });
  const onAll = async (line: string) => {
    const words = line.replaceAll('"', '').split(' ') as [string, ...string[]];
    for (const { redis } of sentinels) await redis.call(...words);
  };
  return { stack, sentinels, onAll, file: REDIS_SENTINEL_PASSWORD_FILE, redis: (await primary()).redis };
}

test('the sentinel password is rotated without a failed request', async () => {
  const { stack, sentinels, onAll, file, redis } = await startWithSentinels();
  const load = await startLoad(stack);
  await serves(load);
  const [add = '', remove = '', keep = ''] = linesOf(SENTINELS_PAGE, 'redis-cli -p 26379');
  await onAll(add);
  await connectsAgain(stack, redis);
  await writeFile(file, valuesOf(SENTINELS_PAGE)[0] ?? '');
  await connectsAgain(stack, redis);
  await onAll(remove);
  await onAll(keep);
  for (let round = 0; round < 3; round++) await connectsAgain(stack, redis);
  await expectNoFailure(load);
  for (const { redis: sentinel, configuration } of sentinels) {
    await expect(sentinel.call('AUTH', 'gateway', OLD)).rejects.toThrow('WRONGPASS');
    const kept = await readFile(configuration, 'utf8');
    expect(kept).toMatch(/^user gateway on .*#/m);
  }
});

test('a gateway that is cut off by a changed sentinel password reconnects once its password file contains the new one', async () => {
  const { stack, onAll, file, redis } = await startWithSentinels();
  const [away, back] = [timesLogged(stack, 'redis is unavailable'), timesLogged(stack, 'redis is back')];
  await onAll(`ACL SETUSER gateway resetpass >${NEW}`);
  await redis.call('CLIENT', 'KILL', 'USER', 'gateway');
  await expect.poll(() => timesLogged(stack, 'redis is unavailable'), WITHIN).toBe(away + 1);
  await writeFile(file, NEW);
  await expect.poll(() => timesLogged(stack, 'redis is back'), WITHIN).toBe(back + 1);
});

test('the Redis CA is rotated without a failed request', async () => {
  const page = 'Redis CA';
  const [old, next] = [await createAuthority(), await createAuthority()];
  const port = String(await freePort());
  const server = await ownRedis({
    'tls-port': port,
    'tls-ca-cert-file': old.caFile,
    'tls-cert-file': old.certFile,
    'tls-key-file': old.keyFile,
    'tls-auth-clients': 'no',
  });
  const root = connectionTo(server.url);
  await root.acl('SETUSER', 'gateway', 'on', `>${OLD}`, '~*', '&*', '+@all');
  const REDIS_CA_FILE = await secretFile(await readFile(old.caFile, 'utf8'));
  const stack = await startStack({ REDIS_URL: `rediss://gateway:${OLD}@127.0.0.1:${port}`, REDIS_CA_FILE });
  const load = await startLoad(stack);
  await serves(load);

  const given: Readonly<Record<string, string>> = {
    'old-ca.pem': old.caFile,
    'new-ca.pem': next.caFile,
    '"$CERT"': next.certFile,
    '"$KEY"': next.keyFile,
    '"$REDIS_CA_FILE"': REDIS_CA_FILE,
  };
  const wordsOf = (line = '') => line.split(' ').map((word) => given[word] ?? word);
  const [both, alone] = linesOf(page, 'cat').map((line) => `cat ${wordsOf(line).join(' ')}`);
  const [install] = linesOf(page, 'redis-cli --user admin').map(wordsOf);
  execFileSync('sh', ['-c', both as string]);
  await connectsAgain(stack, root);
  await root.call(...(install as [string, ...string[]]));
  await connectsAgain(stack, root);
  execFileSync('sh', ['-c', alone as string]);
  for (let round = 0; round < 3; round++) await connectsAgain(stack, root);
  await expectNoFailure(load);
  expect(stack.log.filter(({ setting }) => setting === 'REDIS_CA_FILE')).toHaveLength(2);

  // A certificate from the old CA is no longer trusted.
  const refused = timesLogged(stack, 'no TLS with redis');
  await root.call('CONFIG', 'SET', 'tls-cert-file', old.certFile, 'tls-key-file', old.keyFile);
  await root.call('CLIENT', 'KILL', 'USER', 'gateway');
  await expect.poll(() => timesLogged(stack, 'no TLS with redis'), WITHIN).toBeGreaterThan(refused);
});
