import { setTimeout as sleep } from 'node:timers/promises';
import { type CheckResult, fault, good, warning } from '../../check-result.ts';
import type { KeyEntry } from '../../limiter/key-record.ts';
import { isNetwork } from '../../limiter/networks.ts';
import type { Keys } from '../../stores/keys.ts';

/** To read all keys is too much for every look at the page of the doctor; to compare their names with the list is less. */
const KEYS_KEPT_MS = 60_000;
const LIST_KEPT_MS = 2_000;
const MOST_NAMED = 10;

/** How long an answer waits for a look at all keys. A long one goes on, and a later answer has it. */
const PATIENCE_MS = 1_500;

/** What a look at all keys has found. */
interface Seen {
  readonly isGood: boolean;
  /** Of good and bad keys. */
  readonly total: number;
  describe(): CheckResult[];
}

/** A look that takes long: one at a time, and what it found is kept for a while. */
class Look {
  readonly #about: string;
  readonly #look: () => Promise<Seen>;
  readonly #keptMs: number;
  #last: (Seen & { readonly at: number }) | undefined;
  #running: Promise<Seen | undefined> | undefined;

  constructor(about: string, look: () => Promise<Seen>, keptMs: number) {
    this.#about = about;
    this.#look = look;
    this.#keptMs = keptMs;
  }

  /**
   * What is good is not looked at again for a while, unless keys have left the list; what is bad is, so that a fix shows.
   * @returns undefined if the keys cannot be read
   */
  async ask(total: number): Promise<CheckResult[] | undefined> {
    const last = this.#last !== undefined && total >= this.#last.total ? this.#last : undefined;
    const age = performance.now() - (last?.at ?? 0);
    if (last?.isGood && age <= this.#keptMs) return last.describe();
    const seen = await Promise.race([this.#once(), sleep(PATIENCE_MS, 'late' as const, { ref: false })]);
    if (seen !== 'late') return seen?.describe();
    if (last === undefined)
      return [warning(this.#about, `still being checked: ${total} keys`, 'Ask again in some seconds.')];
    return last.describe().map((one) => ({ ...one, found: `${one.found}, ${Math.round(age / 1_000)} s ago` }));
  }

  #once(): Promise<Seen | undefined> {
    this.#running ??= this.#look()
      .then((seen) => {
        this.#last = { ...seen, at: performance.now() };
        return seen;
      })
      .catch(() => undefined)
      .finally(() => {
        this.#running = undefined;
      });
    return this.#running;
  }
}

const looks = new WeakMap<Keys, readonly Look[]>();

/** Checks all keys, and the list of keys. */
export async function checkKeys(keys: Keys): Promise<CheckResult[]> {
  const both = looks.get(keys) ?? [
    new Look('keys', () => readAll(keys), KEYS_KEPT_MS),
    new Look('list of keys', () => list(keys), LIST_KEPT_MS),
  ];
  looks.set(keys, both);
  const total = await keys.count().catch(() => undefined);
  const found = total === undefined ? [] : await Promise.all(both.map((look) => look.ask(total)));
  if (found.length > 0 && found.every((one) => one !== undefined)) return found.flat();
  return [fault('keys', 'cannot be read', 'See what the doctor says of Redis.')];
}

/** In slices: each is read page by page, with decisions between. */
async function readAll(keys: Keys): Promise<Seen> {
  const bad: KeyEntry[] = [];
  let total = 0;
  let next: number | undefined = 0;
  while (next !== undefined && bad.length <= MOST_NAMED) {
    const slice = await keys.list({ offset: next, limit: MOST_NAMED + 1 - bad.length, isWanted: hasFault });
    bad.push(...slice.keys);
    ({ total, next } = slice);
  }
  return { isGood: bad.length === 0, total, describe: () => entriesOf(total, bad) };
}

/** Keys that no list has are in no backup either. */
async function list(keys: Keys): Promise<Seen> {
  const total = await keys.count();
  const { length } = await keys.unlisted();
  const describe = () =>
    length === 0
      ? [good('list of keys', 'has every key')]
      : [
          fault(
            'list of keys',
            `${length} keys work and are missing from it, and so from every backup`,
            'ctl keys reindex',
          ),
        ];
  return { isGood: length === 0, total, describe };
}

const hasFault = (key: KeyEntry): boolean => !key.isReadable || faultsOf(key).length > 0;

/** @param bad one more than are named, if there are more */
function entriesOf(total: number, bad: readonly KeyEntry[]): CheckResult[] {
  if (bad.length === 0) return [good('keys', `all ${total} can be read`)];
  const faults = bad.flatMap((key) => [...(key.isReadable ? [] : [unreadable(key)]), ...faultsOf(key)]);
  if (faults.length <= MOST_NAMED) return faults;
  return [...faults.slice(0, MOST_NAMED), fault('keys', 'there are more faults than these', 'Fix these first.')];
}

const faultsOf = (key: KeyEntry): CheckResult[] => [...malformedSecrets(key), ...invalidValues(key)];

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
      field === 'tags'
        ? `HSET gateway:tags:{${id}} tags … or ctl keys set ${id} --tag …`
        : `HSET gateway:key:{${id}} ${field} … or ctl keys set ${id} --${field.replaceAll('_', '-')} …`,
    ),
  );

/** A malformed network lets nobody in. */
function malformedSecrets({ id, record }: KeyEntry): CheckResult[] {
  return record.secrets.flatMap((secret) => {
    const networks = secret.networks.filter((network) => !isNetwork(network));
    const others = (secret.unreadable ?? []).filter((part) => part !== 'networks' || networks.length === 0);
    return [
      ...networks.map((network) =>
        fault(
          'keys',
          `${id}: networks of secret ${secret.id} has ${JSON.stringify(network.slice(0, 64))}, which is none: nobody is let in by it`,
          `ctl keys secrets set ${id} ${secret.id} --networks …`,
        ),
      ),
      ...(others.length === 0
        ? []
        : [
            fault(
              'keys',
              `${id}: ${others.join(', ')} of secret ${secret.id} cannot be read`,
              `ctl keys secrets set ${id} ${secret.id} … or ctl keys secrets revoke ${id} ${secret.id}`,
            ),
          ]),
    ];
  });
}
