import { type CheckResult, fault, good } from '../../check-result.ts';
import type { KeyEntry } from '../../limiter/key-record.ts';
import { isNetwork } from '../../limiter/networks.ts';
import type { KeyStore } from '../../stores/stores.ts';

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

const kept = new WeakMap<KeyStore, Found>();

/** Checks all keys. What is good is not checked again for a minute; what is bad is, so that a fix shows. */
export async function checkKeys(keys: KeyStore): Promise<CheckResult[]> {
  let found = kept.get(keys);
  if (found === undefined || isBad(found) || performance.now() - found.checkedAt > KEPT_MS) {
    found = await look(keys).catch(() => undefined);
    if (found === undefined) return [fault('keys', 'cannot be read', 'See what the doctor says of Redis.')];
    kept.set(keys, found);
  }
  return [...entriesOf(found), orderOf(found)];
}

const isBad = ({ bad, unlisted }: Found): boolean => bad.length + unlisted > 0;

/** In slices: each is read page by page, with decisions between. */
async function look(keys: KeyStore): Promise<Found> {
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
