import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type { DoctorAnswer } from '../../gateway/operators/api/answers.ts';
import { TlsConnector } from '../../gateway/stores/redis/connection.ts';
import { type Authority, createAuthority } from '../support/certificates.ts';
import { send } from '../support/http.ts';
import { get } from '../support/operators.ts';
import { freePort } from '../support/port.ts';
import { startProcess } from '../support/process.ts';
import { connectRaw } from '../support/raw-client.ts';
import { startRedisCluster } from '../support/redis-cluster.ts';
import { connectionTo, ownRedis } from '../support/redis-database.ts';
import { type Stack, startStack, temporaryFolder } from '../support/stack.ts';

const PASSWORD = 'canary, of: Redis@100 %';
const CREDENTIALS = `gateway:${encodeURIComponent(PASSWORD)}`;
const authority = await createAuthority();
const stranger = await createAuthority();

const tlsDirectives = ({ caFile, certFile, keyFile }: Authority) => ({
  'tls-ca-cert-file': caFile,
  'tls-cert-file': certFile,
  'tls-key-file': keyFile,
  'tls-auth-clients': 'no',
});

/** Starts a Redis that also accepts TLS, with a user for the gateway. @returns its TLS port */
async function startTlsServer(): Promise<number> {
  const port = await freePort();
  const { url } = await ownRedis({ 'tls-port': String(port), ...tlsDirectives(authority) });
  const redis = connectionTo(url);
  await redis.acl('SETUSER', 'gateway', 'on', `>${PASSWORD}`, '~*', '+@all');
  await redis.acl('SETUSER', 'default', 'off');
  return port;
}

/** Starts a sentinel that uses only TLS and watches a primary with TLS. @returns its port */
async function startTlsSentinel(primaryPort: number): Promise<number> {
  const [port, folder] = [await freePort(), await temporaryFolder()];
  const directives = Object.entries({
    ...tlsDirectives(authority),
    'tls-port': port,
    port: 0,
    'tls-replication': 'yes',
  });
  const lines = [
    ...directives.map(([name, value]) => `${name} ${value}`),
    'bind 127.0.0.1',
    `dir ${folder}`,
    `sentinel monitor limits 127.0.0.1 ${primaryPort} 1`,
  ];
  await writeFile(`${folder}/sentinel.conf`, lines.join('\n'));
  startProcess('redis-server', [`${folder}/sentinel.conf`, '--sentinel'], {}, { stdio: 'ignore' });
  await expect.poll(() => connectRaw(`http://127.0.0.1:${port}`)).toBeDefined();
  return port;
}

/** The status of a request with a new key. Without Redis, it is never 200. */
async function askWithNewKey(stack: Stack): Promise<number> {
  const created = await stack.admin('POST', '/keys', { name: 'test', plan: 'free' });
  const { key } = created.json as { key?: string };
  return key === undefined ? created.status : (await send(`${stack.gateway}/v1/pets`, { key })).status;
}

const becomes200 = (stack: Stack) => expect.poll(() => askWithNewKey(stack), { interval: 100 }).toBe(200);

const reportsCertificate = (stack: Stack) =>
  expect.poll(() => stack.log.find(({ msg }) => msg === 'no TLS with redis')?.reason).toMatch(/certificate/);

const port = await startTlsServer();
const trusted = { REDIS_CA_FILE: authority.caFile };

test('a single Redis is used over TLS, with the user and password of the URL', async () => {
  await becomes200(await startStack({ REDIS_URL: `rediss://${CREDENTIALS}@127.0.0.1:${port}`, ...trusted }));
});

test('the doctor names a CA file with which a gateway cannot start', async () => {
  const REDIS_CA_FILE = join(await temporaryFolder(), 'ca.crt');
  const certificates = await readFile(authority.caFile, 'utf8');
  await writeFile(REDIS_CA_FILE, certificates);
  const stack = await startStack({ REDIS_URL: `rediss://${CREDENTIALS}@127.0.0.1:${port}`, REDIS_CA_FILE });
  const found = async () =>
    (await get<DoctorAnswer>(stack, '/doctor')).findings.flatMap(({ about, status, found }) =>
      about === 'setting files' ? `${status} ${found}` : [],
    );
  const bad = `fault REDIS_CA_FILE ${REDIS_CA_FILE} must be a file that holds certificates in PEM; the last value stays in force until a restart`;
  expect(await found()).toEqual(['good REDIS_CA_FILE can be read']);
  await writeFile(REDIS_CA_FILE, 'junk');
  expect(await found()).toEqual([bad]);
  await rm(REDIS_CA_FILE);
  expect(await found()).toEqual([bad]);
  await writeFile(REDIS_CA_FILE, certificates);
  expect(await found()).toEqual(['good REDIS_CA_FILE can be read']);
});

test.for([
  ['a certificate of another CA', `${CREDENTIALS}@127.0.0.1`, { REDIS_CA_FILE: stranger.caFile }, /certificate/],
  ['a certificate of an unknown CA', `${CREDENTIALS}@127.0.0.1`, {}, /certificate/],
  ['a certificate for another name', `${CREDENTIALS}@localhost`, trusted, /altnames/],
  ['another password', 'gateway:wrong-canary@127.0.0.1', trusted, /^WRONGPASS/],
] as const)(
  'a Redis with %s is not used, and the reason is logged without the password',
  async ([, to, settings, reason]) => {
    const stack = await startStack({ REDIS_URL: `rediss://${to}:${port}`, LOG_LEVEL: 'trace', ...settings });
    expect(await askWithNewKey(stack)).toBe(503);
    expect(stack.log.find(({ msg }) => msg === 'redis is unavailable')?.reason).toMatch(reason);
    expect(JSON.stringify(stack.log)).not.toContain('canary');
  },
);

test('sentinels and primary are used over TLS', async () => {
  const sentinelPort = await startTlsSentinel(await startTlsServer());
  const settings = {
    REDIS_MODE: 'sentinel',
    REDIS_URL: `rediss://${CREDENTIALS}@127.0.0.1:${sentinelPort}`,
    REDIS_MASTER_NAME: 'limits',
  };
  const stack = await startStack({ ...settings, ...trusted });
  await becomes200(stack);
  expect(stack.log.filter(({ msg }) => msg === 'sentinel is unavailable')).toEqual([]);
  const wrong = await startStack({ ...settings, REDIS_CA_FILE: stranger.caFile });
  expect(await askWithNewKey(wrong)).toBe(503);
  await reportsCertificate(wrong);
});

test('the nodes of a cluster are used over TLS', async () => {
  const cluster = await startRedisCluster(tlsDirectives(authority));
  const settings = { REDIS_MODE: 'cluster', REDIS_URL: cluster.urls };
  expect(cluster.urls).toMatch(/^rediss:/);
  const stack = await startStack({ ...settings, ...trusted });
  for (let asked = 0; asked < 10; asked++) await becomes200(stack);
  const wrong = await startStack({ ...settings, REDIS_CA_FILE: stranger.caFile });
  expect(await askWithNewKey(wrong)).toBe(503);
  await reportsCertificate(wrong);
});

test('a connection that is closed during a handshake with an invalid certificate has no further effect', async () => {
  const ca = await readFile(authority.caFile, 'utf8');
  let refused = 0;
  for (let attempt = 0; attempt < 300; attempt++) {
    const connector = new TlsConnector({ host: 'localhost', port, tls: { ca } });
    const socket = await connector.connect();
    // Like the client library, the test listens only once.
    socket.once('error', () => refused++);
    const closed = new Promise((resolve) => socket.once('close', resolve));
    await sleep(Math.random() * 6);
    connector.disconnect();
    await closed;
  }
  expect(refused).toBeGreaterThan(100);
});
