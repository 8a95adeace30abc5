import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { SECOND } from '../../gateway/limiter/bucket.ts';
import { createApiKey } from '../../gateway/limiter/credential.ts';
import type { DoctorAnswer } from '../../gateway/operators/api/answers.ts';
import { keysCheck } from '../../gateway/operators/api/doctor.ts';
import { Keys } from '../../gateway/stores/keys.ts';
import { RedisStorage } from '../../gateway/stores/redis/storage.ts';
import { networkKindOf } from '../../gateway/telemetry/request-metrics.ts';
import { send } from '../support/http.ts';
import { inTurn } from '../support/in-turn.ts';
import { manifestsOf, OVERLAY, workloadsOf } from '../support/manifests.ts';
import { get, hashOf } from '../support/operators.ts';
import { connectedRedis, countCommands, emptyDatabase } from '../support/redis-database.ts';
import { secretWith } from '../support/secrets.ts';
import { type Stack, startStack } from '../support/stack.ts';
import { startWorkers } from '../support/workers.ts';

/** Tests what the doctor reports about keys, however many there are and wherever the invalid ones are. */

const { url, redis } = await emptyDatabase();
const connection = await connectedRedis(url, 30_000);
const sent = countCommands(connection);
const reads = () => sent('hgetall');

const MALFORMED = '10.0.0.0/99999999999999999999';

const secretsOf = (digest: string, networks: string[] = []) => [secretWith(digest, { networks })];

/** Keys in a separate store, newest first, some of them with a malformed network. */
async function storeOf(count: number, isBad: (at: number) => boolean = () => false) {
  await redis.flushdb();
  const keys = new Keys(new RedisStorage(connection));
  const credentials = Array.from({ length: count }, () => createApiKey().credential);
  // A busy machine cannot store thousands of keys within the deadline of a change.
  await inTurn([...credentials.entries()], 500, ([at, { id, digest }]) => {
    const secrets = secretsOf(digest, isBad(at) ? [MALFORMED] : []);
    return keys.create(id, { plan: 'free', name: 'x', createdAt: (count - at) * SECOND, secrets });
  });
  const check = keysCheck(keys, () => false);
  const findings = async () => (await check()).map(({ status, found }) => `${status} ${found}`);
  return { keys, findings, credentials, ids: credentials.map(({ id }) => id) };
}

/** On a busy machine, the result of a check can be a second old when it is reported. */
const EVERY_KEY = /^good has every key/;
const ALL_READ = /^good all 3 can be read/;

test('a malformed network in the oldest of many keys is found, and each key is read once', async () => {
  const { findings, ids } = await storeOf(5_200, (at) => at === 5_199);
  const found = [
    expect.stringMatching(
      new RegExp(`^fault ${ids[5_199]}: networks of secret \\S+ contains "${MALFORMED}", which is not a network`),
    ),
    expect.stringMatching(EVERY_KEY),
  ];
  // On a busy machine, the check may take longer than one call, so the call is repeated.
  const before = reads();
  await expect.poll(findings, { timeout: 20_000 }).toEqual(found);
  expect((reads() - before) % (3 * 5_200)).toBe(0);
});

test('the doctor lists ten faults, reports that there are more, and stops reading keys', async () => {
  const { findings, ids } = await storeOf(1_400, (at) => at % 100 === 0);
  const before = reads();
  let found: string[] = [];
  await expect.poll(async () => (found = await findings()), { timeout: 20_000 }).toHaveLength(12);
  expect(found[0]).toMatch(`fault ${ids[0]}: `);
  expect(found[9]).toMatch(`fault ${ids[900]}: `);
  expect(found[10]).toBe('fault there are more faults than these');
  expect((reads() - before) % (3 * 1_100)).toBe(0);
});

test('keys without faults are checked again after a minute, and keys with faults at the next call', async () => {
  const { keys, findings, ids, credentials } = await storeOf(3, (at) => at === 1);
  expect((await findings())[0]).toMatch(`fault ${ids[1]}: `);
  await keys.change(ids[1] as string, () => ({ record: { secrets: secretsOf(credentials[1]?.digest as string) } }));
  expect((await findings())[0]).toMatch(ALL_READ);
  const before = reads();
  expect((await findings())[0]).toMatch(ALL_READ);
  await sleep(1_100);
  expect((await findings())[0]).toMatch(/^good all 3 can be read, \d+ s ago$/);
  expect(reads()).toBe(before);
});

test('the doctor detects within seconds that the list of keys was damaged or repaired, however often it runs', async () => {
  const { keys, findings, ids } = await storeOf(3);
  const list = async () => (await findings()).at(-1);
  expect(await list()).toMatch(EVERY_KEY);
  // The length of the list does not change.
  await redis.zrem('gateway:keys', ids[0] as string);
  await redis.zadd('gateway:keys', 1, createApiKey().credential.id);
  const before = sent('SCAN');
  expect(before).toBeGreaterThan(0);
  for (let asked = 0; asked < 50; asked++) await list();
  expect(sent('SCAN') - before).toBeLessThanOrEqual(1);
  await expect.poll(list, { timeout: 5_000 }).toMatch(/^fault lacks 1 working key/);
  await keys.relist();
  expect(await list()).toMatch(EVERY_KEY);
  await redis.del('gateway:keys');
  expect(await list()).toMatch(/^fault lacks 3 working keys/);
});

test('the doctor reports unreadable keys and unlisted keys as faults', async () => {
  const { findings, ids } = await storeOf(4);
  await redis.hset(hashOf(ids[0] as string), { plan: 'gold', ok_plan: 'damaged' });
  await redis.hset(hashOf(ids[1] as string), { expires_at: 'soon', ok_expires_at: 'damaged' });
  await redis.zrem('gateway:keys', ...ids.slice(2));
  const found = await findings();
  const unreadable = ids
    .slice(0, 2)
    .map((id) => `fault ${id} cannot be read: its requests get 503, except from gateways that have used it lately`);
  expect(found).toEqual(expect.arrayContaining(unreadable));
  expect(found.at(-1)).toBe('fault lacks 2 working keys, and so do backups');
});

test('the doctor says that an enterprise key lacks its limits, and what is in force instead', async () => {
  const { findings, ids } = await storeOf(1);
  await redis.hset(hashOf(ids[0] as string), 'plan', 'enterprise');
  expect(await findings()).toContain(
    `fault ${ids[0]}: plan is "enterprise", but minute or day is missing; free stays in force`,
  );
});

/** What the doctor reports about client addresses. */

const REQUESTS = 100;

async function addressFindings({ admin }: Pick<Stack, 'admin'>): Promise<string[]> {
  const { findings } = await get<DoctorAnswer>({ admin }, '/doctor');
  return findings
    .filter(({ about }) => about === 'client addresses')
    .map(({ status, found, advice }) => [status, found, ...(advice === undefined ? [] : [advice])].join(': '));
}

/** Sends a hundred requests without a key, as a proxy that names these clients in turn. Undefined: none. */
async function askAs(gateway: string, clients: readonly (string | undefined)[]): Promise<void> {
  for (let sent = 0; sent < REQUESTS; sent++) {
    const client = clients[sent % clients.length];
    await send(`${gateway}/v1/pets`, { headers: client === undefined ? {} : { 'x-forwarded-for': client } });
  }
}

test.for([
  ['10.0.0.0/8', 'warning: TRUSTED_PROXIES 10.0.0.0/8 covers a whole network'],
  ['10.2.0.0/23', 'warning: TRUSTED_PROXIES 10.2.0.0/23 covers a whole network'],
  ['fd00:1::/48', 'warning: TRUSTED_PROXIES fd00:1::/48 covers a whole network'],
  ['0.0.0.0/0', 'fault: TRUSTED_PROXIES 0.0.0.0/0 covers every address'],
  ['::/0', 'fault: TRUSTED_PROXIES ::/0 covers every address'],
])('the doctor reports TRUSTED_PROXIES %s', async ([TRUSTED_PROXIES, found]) => {
  const stack = await startStack({ TRUSTED_PROXIES: `127.0.0.1,${TRUSTED_PROXIES}` });
  expect(await addressFindings(stack)).toEqual([expect.stringMatching(`^${found}: List only your proxies`)]);
});

test('the doctor does not report single proxies, small blocks, or a gateway with few requests', async () => {
  const stack = await startStack({ TRUSTED_PROXIES: '127.0.0.1,10.2.3.0/24,fd00::/64' });
  expect(await addressFindings(stack)).toEqual(['good: too few requests to judge by']);
});

const PROXY = '203.0.113.9';
const TRUSTING = { TRUSTED_PROXIES: '127.0.0.1' };
const UNTRUSTED = '^warning: 100 % of the requests name a client but come from an untrusted address: If they';

test.for([
  ['names all clients and is not trusted', {}, [PROXY], UNTRUSTED],
  ['is trusted and names a client', TRUSTING, [PROXY], '^good: 0 from the connection, 100 from a trusted proxy$'],
  [
    'is trusted and has clients on its own machine',
    TRUSTING,
    ['127.0.0.1'],
    '^good: 0 from the connection, 100 from a trusted proxy$',
  ],
  [
    'is not trusted and forwards only half of the requests',
    {},
    [PROXY, undefined],
    '^good: 50 from the connection, 0 from a trusted proxy$',
  ],
  // This is the case behind a load balancer that hides the clients.
  ['names only private addresses', TRUSTING, ['10.1.2.3', '10.1.2.4'], '^warning: all are private: .*SNAT'],
  [
    'names at least one public address',
    TRUSTING,
    [...Array(99).fill('10.1.2.3'), PROXY],
    '^good: 0 from the connection, 100 from a trusted proxy$',
  ],
] as const)('the doctor reports the state of a proxy that %s', async ([, environment, clients, finding]) => {
  const stack = await startStack(environment);
  await askAs(stack.gateway, clients);
  await expect.poll(() => addressFindings(stack)).toEqual([expect.stringMatching(finding)]);
});

test('the doctor counts the requests on all workers', async () => {
  const workers = await startWorkers(TRUSTING);
  await askAs(workers.gateway, ['10.1.2.3']);
  const finding = expect.stringMatching('^warning: all are private');
  await expect.poll(() => addressFindings({ admin: workers.change })).toEqual([finding]);
});

test.for([
  ['loopback', '127.0.0.1 127.9.9.9 ::1'],
  ['private', '10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 100.64.0.1 100.127.0.1 169.254.1.1'],
  ['private', 'fd00::1 fc00::1 fe80::1 FD00::1'],
  ['public', '9.9.9.9 11.0.0.1 172.15.0.1 172.32.0.1 100.63.0.1 100.128.0.1 192.169.1.1 2001:db8::1 ff02::1'],
] as const)('these addresses are classified as %s: %s', ([kind, addresses]) => {
  for (const address of addresses.split(' ')) expect([address, networkKindOf(address)]).toEqual([address, kind]);
});

test('the Kubernetes manifests trust no whole network', () => {
  const gateway = workloadsOf(manifestsOf(OVERLAY)).find(({ name }) => name === 'gateway');
  const trusted = gateway?.pod.containers[0]?.env.find(({ name }) => name === 'TRUSTED_PROXIES')?.value;
  expect(trusted).toBe(undefined);
});

test('a Redis that has lost all keys is reported, but not one without keys from the start or without only their list', async () => {
  await redis.flushdb();
  const stack = await startStack({ REDIS_URL: url, REDIS_TIMEOUT_MS: '5000' });
  const aboutKeys = async (name = 'keys') =>
    (await get<DoctorAnswer>(stack, '/doctor')).findings.find(({ about }) => about === name);
  expect(await aboutKeys()).toMatchObject({ status: 'good' });
  const key = await stack.issueKey();
  expect((await send(`${stack.gateway}/v1/pets`, { key })).status).toBe(200);
  await redis.del('gateway:keys');
  await expect.poll(() => aboutKeys('list of keys')).toMatchObject({ status: 'fault', advice: 'ctl keys reindex' });
  expect(await aboutKeys()).toMatchObject({ status: 'good' });
  await redis.flushdb();
  await expect
    .poll(() => aboutKeys())
    .toMatchObject({
      status: 'fault',
      found: 'there are none, although this gateway has admitted requests',
      advice: expect.stringContaining('"Redis lost its data"'),
    });
});
