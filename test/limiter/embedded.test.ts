import { expect, test } from 'vitest';
import { type Credential, createApiKey, credentialOf } from '../../gateway/limiter/credential.ts';
import { StoreUnavailable, type Verdict } from '../../gateway/limiter/limiter.ts';
import { DEFAULT_PLANS, type PlanTable } from '../../gateway/limiter/plans.ts';
import { EmbeddedLimiter } from '../../gateway/stores/embedded-limiter.ts';
import { writeKey } from '../../gateway/stores/key-hash.ts';
import { Keys } from '../../gateway/stores/keys.ts';
import { SqliteStorage } from '../../gateway/stores/sqlite/storage.ts';
import { cleanUp } from '../support/clean-up.ts';
import { BEGIN } from '../support/limiters.ts';
import { secretWith } from '../support/secrets.ts';
import { temporaryFolder } from '../support/stack.ts';

/** Opens a storage on disk and a limiter that uses it, and records the calls that the limiter makes. */
async function gateway() {
  const folder = await temporaryFolder();
  const time = { now: BEGIN };
  const asked: string[] = [];
  /** Hooks: `load` runs before a key is loaded, `loaded` after it has been read, and `save` before states are saved. */
  const faults = { load: async () => {}, loaded: async () => {}, save: async () => {} };
  const storage = new SqliteStorage(folder, {
    clock: () => time.now,
    owner: {
      release: async (id) => limiter.release(id, true),
      async flush() {
        await limiter.flush();
        return [];
      },
    },
  });
  // The eighth request of a minute causes a ban.
  const plans: PlanTable = {
    ...DEFAULT_PLANS,
    free: { ...DEFAULT_PLANS.free, minute: 6, ban_after: 1, ban_grace_seconds: 0, ban_seconds: 600 },
  };
  const source = {
    async load(id: string) {
      asked.push('load');
      await faults.load();
      const fields = await storage.load(id);
      await faults.loaded();
      return fields;
    },
    async save(states: Parameters<SqliteStorage['save']>[0], mustBeDurable: boolean) {
      asked.push(mustBeDurable ? 'save ban' : 'save');
      await faults.save();
      return await storage.save(states, mustBeDurable);
    },
  };
  const limiter = new EmbeddedLimiter(source, { table: plans }, () => time.now);
  const keys = new Keys(storage);
  cleanUp(async () => {
    faults.save = async () => {};
    await limiter.stop();
    await storage.close();
  });

  async function createKey(credential = createApiKey().credential): Promise<Credential> {
    const secrets = [secretWith(credential.digest)];
    await keys.create(credential.id, { plan: 'free', name: 'test', createdAt: time.now, secrets });
    return credential;
  }

  return { limiter, storage, keys, asked, faults, createKey };
}

const outcomeOf = async (verdict: Promise<Verdict>) => (await verdict).outcome;

test('concurrent requests with a key that is not in memory load it once and share its tokens', async () => {
  const { limiter, asked, createKey } = await gateway();
  const key = await createKey();
  const outcomes = await Promise.all(Array.from({ length: 7 }, () => outcomeOf(limiter.decide(key))));
  expect(outcomes.filter((outcome) => outcome === 'admitted')).toHaveLength(6);
  expect(asked).toEqual(['load']);
});

test('an unknown key is not cached and works once it exists', async () => {
  const { limiter, asked, createKey } = await gateway();
  const { credential } = createApiKey();
  for (let sent = 0; sent < 2; sent++)
    expect(await limiter.decide(credential)).toEqual({ outcome: 'unauthorized', reason: 'unknown', isOfKey: true });
  await createKey(credential);
  expect(await outcomeOf(limiter.decide(credential))).toBe('admitted');
  expect(asked).toEqual(['load', 'load', 'load']);
});

test("if a key's data is unreadable, a wrong secret counts as unknown, and no decision is made for a correct one", async () => {
  const { limiter, storage, createKey } = await gateway();
  const key = await createKey();
  const wrong = { ...createApiKey(key.id).credential };
  expect(await limiter.decide(wrong)).toEqual({ outcome: 'unauthorized', reason: 'unknown' });
  limiter.release(key.id, true);
  const set = { plan: 'none', ok_plan: undefined };
  await storage.change({ parts: [{ record: `key:${key.id}`, set }], entries: [] });
  expect(await limiter.decide(wrong)).toEqual({ outcome: 'unauthorized', reason: 'unknown' });
  expect(await limiter.decide(key)).toEqual({ outcome: 'undecided', reason: 'unreadable' });
});

test('data that was read before a revocation but arrives after it is discarded, and the key is loaded again', async () => {
  const { limiter, keys, faults, asked, createKey } = await gateway();
  const key = await createKey();
  const revocation = Promise.withResolvers<unknown>();
  faults.loaded = async () => {
    faults.loaded = async () => {};
    revocation.resolve(keys.remove(key.id));
    await revocation.promise;
  };
  const outcomes = Promise.all([outcomeOf(limiter.decide(key)), outcomeOf(limiter.decide(key))]);
  expect(await outcomes).toEqual(['unauthorized', 'unauthorized']);
  expect(asked).toEqual(['load', 'load']);
});

test('a ban that cannot be stored is not reported to clients, and is in force once it is stored', async () => {
  const { limiter, faults, createKey } = await gateway();
  const key = await createKey();
  for (let sent = 0; sent < 7; sent++) await limiter.decide(key);
  faults.save = () => Promise.reject(new Error('disk full'));
  for (let sent = 0; sent < 2; sent++)
    await expect(limiter.decide(key)).rejects.toThrow('The ban on the key could not be stored.');
  faults.save = async () => {};
  await limiter.flush();
  await expect.poll(() => limiter.decide(key).catch((fault) => fault)).toMatchObject({ outcome: 'banned' });
});

test('each state is stored once within about a second, and a failed save is retried', async () => {
  const { limiter, storage, faults, asked, createKey } = await gateway();
  const key = await createKey();
  faults.save = () => Promise.reject(new Error('disk full'));
  await limiter.decide(key);
  expect((await storage.load(key.id))?.admitted).toBeUndefined();
  await expect.poll(() => asked).toContain('save');
  faults.save = async () => {};
  await expect.poll(async () => (await storage.load(key.id))?.admitted).toBe('1');
  const saves = asked.length;
  await limiter.flush();
  expect(asked).toHaveLength(saves);
  const disk = Promise.withResolvers<void>();
  faults.save = () => disk.promise;
  await limiter.decide(key);
  for (let flushes = 0; flushes < 3; flushes++) await limiter.flush();
  disk.resolve();
  await limiter.stop();
  expect(asked).toHaveLength(saves + 1);
  expect((await storage.load(key.id))?.admitted).toBe('2');
});

test('the least recently used keys are evicted from memory once they are stored, and unsaved ones stay', async () => {
  const fields = writeKey({ plan: 'free', name: '', createdAt: BEGIN, secrets: [secretWith('d')] });
  const loads: string[] = [];
  let isStored = true;
  const source = {
    async load(id: string) {
      loads.push(id);
      return fields;
    },
    save: async () => isStored,
  };
  const limiter = new EmbeddedLimiter(source, { table: DEFAULT_PLANS }, () => BEGIN);
  cleanUp(() => limiter.stop());
  const decide = (id: string | number) => limiter.decide(credentialOf(String(id), 'd'));
  await decide('stored');
  await limiter.flush();
  isStored = false;
  await decide('unsaved');
  for (let id = 0; id < 60_000; id++) await limiter.peek(credentialOf(String(id), 'd'));
  loads.length = 0;
  await decide('unsaved');
  await decide('stored');
  await limiter.peek(credentialOf('59999', 'd'));
  expect(loads).toEqual(['stored']);
});

test('without a reply from the store, decisions are made only for keys in memory', async () => {
  const { limiter, faults, createKey } = await gateway();
  const key = await createKey();
  await limiter.decide(key);
  faults.load = () => Promise.reject(new Error('The primary process does not answer.'));
  expect(await outcomeOf(limiter.decide(key))).toBe('admitted');
  await expect(limiter.decide(createApiKey().credential)).rejects.toThrow(StoreUnavailable);
  limiter.forgetAll();
  await expect(limiter.decide(key)).rejects.toThrow(StoreUnavailable);
});
