import { expect, test } from 'vitest';
import type { KeyEntry } from '../../gateway/limiter/key-record.ts';
import { FRESH } from '../../gateway/limiter/key-record.ts';
import { checkKeys } from '../../gateway/operators/api/check-keys.ts';
import type { KeyQuery, Keys } from '../../gateway/stores/keys.ts';
import { secretWith } from '../support/secrets.ts';

/** What the doctor says of keys, however many there are and wherever the bad ones are. */

const SLICE = 5_000;

const good = (at: number): KeyEntry => ({
  ...FRESH,
  id: `key-${at}`,
  isReadable: true,
  record: { plan: 'free', name: 'x', createdAt: 0, secrets: [secretWith(`digest-${at}`)] },
});
const withNetwork = (entry: KeyEntry): KeyEntry => ({
  ...entry,
  record: { ...entry.record, secrets: [secretWith('digest', { networks: ['10.0.0.0/99'] })] },
});

/** A store with so many keys, some of them bad, which notes how it is asked. */
function storeOf(count: number, bad: (at: number) => boolean, unlisted: readonly string[] = []) {
  const asked: number[] = [];
  const entries = Array.from({ length: count }, (_, at) => (bad(at) ? withNetwork(good(at)) : good(at)));
  const store = {
    async list({ offset, limit, isWanted }: KeyQuery) {
      // One key is asked for to count them.
      if (limit > 1) asked.push(offset);
      const keys: KeyEntry[] = [];
      let at = offset;
      for (; at < Math.min(count, offset + SLICE) && keys.length < limit; at++)
        if (isWanted(entries[at] as KeyEntry)) keys.push(entries[at] as KeyEntry);
      return { total: count, keys, next: at < count ? at : undefined };
    },
    unlisted: async () => unlisted,
  };
  return { store: store as unknown as Keys, entries, asked };
}

const told = async (store: Keys) => (await checkKeys(store)).map(({ status, found }) => `${status} ${found}`);

test('a malformed network of the oldest of many keys is found', async () => {
  const { store, asked } = storeOf(12_000, (at) => at === 11_999);
  expect(await told(store)).toEqual([
    expect.stringMatching(/^fault key-11999: networks of secret \S+ has "10\.0\.0\.0\/99", which is none/),
    'good has every key',
  ]);
  expect(asked).toEqual([0, SLICE, 2 * SLICE]);
});

test('ten faults are named, and that there are more', async () => {
  const { store, asked } = storeOf(12_000, (at) => at % 100 === 0);
  const found = await told(store);
  expect(found).toHaveLength(12);
  expect(found[0]).toMatch(/^fault key-0: /);
  expect(found[9]).toMatch(/^fault key-900: /);
  expect(found[10]).toBe('fault there are more faults than these');
  expect(asked).toEqual([0]);
});

test('what is good is not looked at again for a minute; what is bad is, so that a fix shows', async () => {
  const { store, entries, asked } = storeOf(3, (at) => at === 1);
  expect((await told(store))[0]).toMatch(/^fault key-1: /);
  entries[1] = good(1);
  expect((await told(store))[0]).toBe('good all 3 can be read');
  expect((await told(store))[0]).toBe('good all 3 can be read');
  expect(asked).toEqual([0, 0]);
});

test('keys that cannot be read, and keys in no list, are faults too', async () => {
  const { store, entries } = storeOf(2, () => false, ['a', 'b']);
  entries[0] = { ...good(0), isReadable: false };
  expect(await told(store)).toEqual([
    'fault key-0 cannot be read, and is answered with 503',
    'fault 2 keys work and are missing from it, and so from every backup',
  ]);
});
