import { setTimeout as sleep } from 'node:timers/promises';
import { type CheckResult, fault, good, warning } from '../../check-result.ts';
import type { KeyEntry } from '../../limiter/key-record.ts';
import { isNetwork } from '../../limiter/networks.ts';
import type { Keys } from '../../stores/keys.ts';

/** A look at all keys is too much for every look at the page of the doctor. */
const KEPT_MS = 60_000;
const MOST_NAMED = 10;

/** What was found in all keys of a store. */
interface Found {
  readonly checkedAt: number;
  readonly total: number;
  /** One more than are named, if there are more. */
  readonly bad: readonly KeyEntry[];
  /** Keys that work and are in no list. */
  readonly unlisted: number;
}

const kept = new WeakMap<Keys, Found>();

/** How long an answer waits for a look at all keys. A long one goes on, and a later answer has it. */
const PATIENCE_MS = 1_500;
const looks = new WeakMap<Keys, Promise<Found | undefined>>();

/**
 * Checks all keys. What is good is not checked again for a minute, unless the list has become shorter; what is bad is, so
 * that a fix shows.
 */
export async function checkKeys(keys: Keys): Promise<CheckResult[]> {
  const before = kept.get(keys);
  const total = await keys.count().catch(() => undefined);
  if (total === undefined) return [unread()];
  const isFresh = before !== undefined && performance.now() - before.checkedAt <= KEPT_MS && total >= before.total;
  if (before !== undefined && isFresh && !isBad(before)) return describe(before);
  const found = await Promise.race([lookOnce(keys), sleep(PATIENCE_MS, 'late' as const, { ref: false })]);
  if (found === undefined) return [unread()];
  if (found !== 'late') return describe(found);
  if (before !== undefined && isFresh) return describe(before);
  return [warning('keys', `are still being checked, ${total} of them`, 'Ask again in some seconds.')];
}

const unread = () => fault('keys', 'cannot be read', 'See what the doctor says of Redis.');

const describe = (found: Found): CheckResult[] => [...entriesOf(found), orderOf(found)];

/** One look at a time. @returns undefined if the keys cannot be read */
function lookOnce(keys: Keys): Promise<Found | undefined> {
  const running = looks.get(keys);
  if (running !== undefined) return running;
  const looking = look(keys)
    .then((found) => {
      kept.set(keys, found);
      return found;
    })
    .catch(() => undefined)
    .finally(() => looks.delete(keys));
  looks.set(keys, looking);
  return looking;
}

const isBad = ({ bad, unlisted }: Found): boolean => bad.length + unlisted > 0;

/** In slices: each is read page by page, with decisions between. */
async function look(keys: Keys): Promise<Found> {
  const bad: KeyEntry[] = [];
  let total = 0;
  let next: number | undefined = 0;
  while (next !== undefined && bad.length <= MOST_NAMED) {
    const slice = await keys.list({ offset: next, limit: MOST_NAMED + 1 - bad.length, isWanted: hasFault });
    bad.push(...slice.keys);
    ({ total, next } = slice);
  }
  const { length: unlisted } = await keys.unlisted();
  return { checkedAt: performance.now(), total, bad, unlisted };
}

const hasFault = (key: KeyEntry): boolean => !key.isReadable || faultsOf(key).length > 0;

function entriesOf({ total, bad }: Found): CheckResult[] {
  if (bad.length === 0) return [good('keys', `all ${total} can be read`)];
  const faults = bad.flatMap((key) => [...(key.isReadable ? [] : [unreadable(key)]), ...faultsOf(key)]);
  if (faults.length <= MOST_NAMED) return faults;
  return [...faults.slice(0, MOST_NAMED), fault('keys', 'there are more faults than these', 'Fix these first.')];
}

const faultsOf = (key: KeyEntry): CheckResult[] => [...malformedNetworks(key), ...invalidValues(key)];

/** Keys from a version before the first release have no secrets that this version can read. */
const unreadable = ({ id }: KeyEntry): CheckResult =>
  fault(
    'keys',
    `${id} cannot be read, and is answered with 503`,
    'A hand, or another version of the gateway, has written it: issue it anew, then ctl keys revoke <id>.',
  );

/** Values typed by hand that are not valid. */
const invalidValues = ({ id, rejected = [] }: KeyEntry): CheckResult[] =>
  rejected.map(({ field, value, kept: stays }) =>
    fault(
      'keys',
      `${id}: ${field} is ${JSON.stringify(value.slice(0, 64))}, which is not valid; ${stays ?? 'nothing'} stays in force`,
      `HSET gateway:key:{${id}} ${field} … or ctl keys set ${id} --${field.replaceAll('_', '-')} …`,
    ),
  );

/** A malformed network lets nobody in. */
function malformedNetworks({ id, record }: KeyEntry): CheckResult[] {
  return record.secrets.flatMap((secret) =>
    secret.networks
      .filter((network) => !isNetwork(network))
      .map((network) =>
        fault(
          'keys',
          `${id}: networks of secret ${secret.id} has ${JSON.stringify(network.slice(0, 64))}, which is none: nobody is let in by it`,
          `ctl keys secrets set ${id} ${secret.id} --networks …`,
        ),
      ),
  );
}

/** Keys that no list has are in no backup either. */
function orderOf({ unlisted }: Found): CheckResult {
  if (unlisted === 0) return good('list of keys', 'has every key');
  const found = `${unlisted} keys work and are missing from it, and so from every backup`;
  return fault('list of keys', found, 'ctl keys reindex');
}
