import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { SECOND } from '../../gateway/limiter/bucket.ts';
import { createApiKey } from '../../gateway/limiter/credential.ts';
import { checkKeys } from '../../gateway/operators/api/doctor.ts';
import { Keys } from '../../gateway/stores/keys.ts';
import { RedisStorage } from '../../gateway/stores/redis/storage.ts';
import { connectedRedis, countCommands, emptyDatabase } from '../support/redis-database.ts';
import { secretWith } from '../support/secrets.ts';

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
  await Promise.all(
    credentials.map(({ id, digest }, at) => {
      const secrets = secretsOf(digest, isBad(at) ? [MALFORMED] : []);
      return keys.create(id, { plan: 'free', name: 'x', createdAt: (count - at) * SECOND, secrets });
    }),
  );
  return { keys, credentials, ids: credentials.map(({ id }) => id) };
}

const findingsOf = async (keys: Keys) => (await checkKeys(keys)).map(({ status, found }) => `${status} ${found}`);

/** On a busy machine, the result of a check can be a second old when it is reported. */
const EVERY_KEY = /^good has every key/;
const ALL_READ = /^good all 3 can be read/;

test('a malformed network in the oldest of many keys is found, and each key is read once', async () => {
  const { keys, ids } = await storeOf(5_200, (at) => at === 5_199);
  const found = [
    expect.stringMatching(
      new RegExp(`^fault ${ids[5_199]}: networks of secret \\S+ contains "${MALFORMED}", which is not a network`),
    ),
    expect.stringMatching(EVERY_KEY),
  ];
  // On a busy machine, the check may take longer than one call, so the call is repeated.
  const before = reads();
  await expect.poll(() => findingsOf(keys), { timeout: 20_000 }).toEqual(found);
  expect((reads() - before) % (3 * 5_200)).toBe(0);
});

test('the doctor lists ten faults, reports that there are more, and stops reading keys', async () => {
  const { keys, ids } = await storeOf(1_400, (at) => at % 100 === 0);
  const before = reads();
  let found: string[] = [];
  await expect.poll(async () => (found = await findingsOf(keys)), { timeout: 20_000 }).toHaveLength(12);
  expect(found[0]).toMatch(`fault ${ids[0]}: `);
  expect(found[9]).toMatch(`fault ${ids[900]}: `);
  expect(found[10]).toBe('fault there are more faults than these');
  expect((reads() - before) % (3 * 1_100)).toBe(0);
});

test('keys without faults are checked again after a minute, and keys with faults at the next call', async () => {
  const { keys, ids, credentials } = await storeOf(3, (at) => at === 1);
  expect((await findingsOf(keys))[0]).toMatch(`fault ${ids[1]}: `);
  await keys.change(ids[1] as string, () => ({ record: { secrets: secretsOf(credentials[1]?.digest as string) } }));
  expect((await findingsOf(keys))[0]).toMatch(ALL_READ);
  const before = reads();
  expect((await findingsOf(keys))[0]).toMatch(ALL_READ);
  await sleep(1_100);
  expect((await findingsOf(keys))[0]).toMatch(/^good all 3 can be read, \d+ s ago$/);
  expect(reads()).toBe(before);
});

test('the doctor detects within seconds that the list of keys was damaged or repaired, however often it runs', async () => {
  const { keys, ids } = await storeOf(3);
  const list = async () => (await findingsOf(keys)).at(-1);
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
  const { keys, ids } = await storeOf(4);
  await redis.hset(`gateway:key:{${ids[0]}}`, { plan: 'gold', ok_plan: 'damaged' });
  await redis.hset(`gateway:key:{${ids[1]}}`, { expires_at: 'soon', ok_expires_at: 'damaged' });
  await redis.zrem('gateway:keys', ...ids.slice(2));
  const found = await findingsOf(keys);
  const unreadable = ids.slice(0, 2).map((id) => `fault ${id} cannot be read, and its requests get 503`);
  expect(found).toEqual(expect.arrayContaining(unreadable));
  expect(found.at(-1)).toBe('fault lacks 2 working keys, and so do backups');
});
