import { hash } from 'node:crypto';
import { z } from 'zod';
import { Conflict } from '../../shared/domain-errors.ts';
import { redactApiKeys } from '../limiter/credential.ts';
import {
  DEFAULT_PLANS,
  isPlanName,
  isUsable,
  PLAN_NAMES,
  STORED_FIELDS,
  type StoredPlans,
  storedPlans,
  storedValue,
  withFewUnknown,
} from '../limiter/plans.ts';
import { type Activity, auditEntries, FieldChange, RecordId, readEntry, readJson } from './audit.ts';
import { type FieldChanges, fieldsOfTable, type LogEntry, type Storage } from './storage.ts';

export const PlanChange = z.object({
  author: z.string(),
  reason: z.string(),
  /** 'by hand': edited in the table, not through a gateway. 'restore': a gateway wrote a missing table back. */
  action: z.enum(['set', 'rollback', 'by hand', 'restore']),
  changes: z.array(FieldChange),
  version: z.string(),
});

export type PlanChange = Readonly<z.infer<typeof PlanChange>>;

export const RecordedChange = PlanChange.extend({ id: RecordId, at: z.number() });

export type RecordedChange = Readonly<z.infer<typeof RecordedChange>>;

export const versionOf = (stored: StoredPlans): string =>
  hash('sha256', JSON.stringify(STORED_FIELDS.map((field) => [field, storedValue(stored, field)])), 'hex').slice(0, 16);

type About = Pick<PlanChange, 'author' | 'reason' | 'action'>;

/** The record of a change; undefined if it has no effect. */
function changeFrom(
  before: StoredPlans,
  after: StoredPlans,
  { author, reason, action }: About,
): PlanChange | undefined {
  const changes = changesBetween(before, after);
  return changes.length === 0 ? undefined : { author, reason, action, changes, version: versionOf(after) };
}

/** The fields in which two tables differ. */
export function changesBetween(before: StoredPlans, after: StoredPlans): FieldChange[] {
  const changes = STORED_FIELDS.map((field) => ({
    field,
    from: storedValue(before, field),
    to: storedValue(after, field),
  }));
  return changes.filter(({ from, to }) => from !== to);
}

const NO_TABLE =
  'The plan table is missing, and no gateway has the last good one. Restore a backup, or set all values of all plans.';

/** Who changes the plan table and why, and the audit entries of the change. */
export interface AboutChange extends About {
  /** The table in force. If the stored table is missing, this one is written back first. */
  readonly last?: StoredPlans | undefined;
  entriesFor(changes: readonly FieldChange[]): readonly Activity[];
}

/** The audit entries of a change to plans, one for each plan. */
export function planActivity(
  changes: readonly FieldChange[],
  about: Omit<Activity, 'action' | 'target' | 'changes'>,
): Activity[] {
  const plans = [...new Set(changes.map(({ field }) => planOf(field)))];
  return plans.map((plan) => ({
    ...about,
    action: 'plan.change',
    target: plan,
    changes: changes.filter(({ field }) => planOf(field) === plan).map(shown),
  }));
}

/** The maximum number of characters of a plan's value in an entry: people can write anything into the table. */
const MOST_CHARACTERS = 100;

const shown = ({ field, from, to }: FieldChange): FieldChange => ({
  field,
  ...(from !== undefined && { from: redactApiKeys(from.slice(0, MOST_CHARACTERS)) }),
  ...(to !== undefined && { to: redactApiKeys(to.slice(0, MOST_CHARACTERS)) }),
});

export const planOf = (field: string): string => field.split('.', 1)[0] ?? '';

const ATTEMPTS = 10;

export type MakeChanges = (before: StoredPlans, untouched: readonly string[]) => StoredPlans;

/**
 * The plan table, which people edit: `HSET gateway:plans free.minute 120`. `plans:kept` holds the table as a gateway
 * last left it. A difference shows a manual edit, and a deleted table is written back from there.
 */
export class Plans {
  readonly #storage: Storage;

  constructor(storage: Storage) {
    this.#storage = storage;
  }

  /** @returns undefined if there is no table. @throws {Unavailable}; {OtherValue} if the name holds a value of another type */
  async read(): Promise<StoredPlans | undefined> {
    const table = fieldsOfTable('plans', await this.#storage.read('plans'));
    return table && withFewUnknown(table);
  }

  /** The good values as a gateway last saved them. Also undefined if the name holds a value of another type. */
  async readKept(): Promise<StoredPlans | undefined> {
    const kept = await this.#storage.read('plans:kept');
    return kept !== undefined && Object.keys(kept).length > 0 ? kept : undefined;
  }

  /**
   * Writes the built-in table into an empty store. If people have begun to type a table there, completes that table. In
   * any other store, only keeps a copy of a complete table.
   */
  async begin(): Promise<void> {
    const [table, kept] = await Promise.all([this.read(), this.readKept()]);
    if (kept !== undefined) return;
    const isNew = table === undefined ? await this.#storage.isEmpty() : (await this.#storage.countKeys()) === 0;
    if (!isNew && !isWhole(table)) return;
    const lastGood = isNew ? storedPlans(DEFAULT_PLANS) : {};
    const whole = { ...storedPlans(DEFAULT_PLANS), ...table };
    const typed = Object.keys(table ?? {}).map(planOf);
    const builtIn = PLAN_NAMES.filter((plan) => !typed.includes(plan)).join(' ');
    await this.#storage.change({
      parts: [
        { record: 'plans', exists: table !== undefined, set: whole },
        { record: 'plans:kept', exists: false, set: { ...keeps(whole, lastGood), [BUILT_IN]: builtIn } },
      ],
      entries: [],
    });
  }

  /** The plans that nobody has changed since `begin` wrote them. */
  async untouched(): Promise<readonly string[]> {
    const [table = {}, kept] = await Promise.all([this.read(), this.readKept()]);
    return untouchedIn(table, kept);
  }

  /**
   * Sets fields and records the change, in one step. A change without effect is not recorded.
   * @param make returns the changes to the current table, given the plans that still have their built-in values. Called
   *   again if another change came first
   * @returns undefined if `make` returns no changes. `change` is undefined if nothing changed; `unrecorded` is the
   *   reason why the history lacks the change, if it does
   * @throws {Conflict} if there is no table and the fields do not form a complete one
   */
  async change(make: MakeChanges, about: AboutChange) {
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      let table = await this.read();
      if (table === undefined) {
        await this.writeBack(about.last);
        table = await this.read();
      }
      const [before, kept] = [table ?? {}, await this.readKept()];
      const changes = make(before, untouchedIn(before, kept));
      if (Object.keys(changes).length === 0) return undefined;
      if (table === undefined && !isWhole(changes)) throw new Conflict(NO_TABLE);
      const last = lastOf(kept, about.last);
      // Records manual edits first, because this change would hide them.
      const byHand = editsIn(before, last);
      const after = { ...before, ...changes };
      const change = changeFrom(before, after, about);
      let unrecorded: string | undefined;
      const isMade = await this.#storage.change({
        parts: [
          { record: 'plans', expect: pick(before), set: changes },
          { record: 'plans:kept', expect: pickKept(kept), set: keeps(after, last) },
        ],
        entries: [...byHand, ...(change === undefined ? [] : entriesOf(change, about.entriesFor(change.changes)))],
        onLost({ log }, why) {
          if (log === 'plan history') unrecorded = why;
        },
      });
      if (isMade) return { after, change, unrecorded };
    }
    throw new Conflict('Others changed the plans during every attempt. Repeat the change.');
  }

  /**
   * Records manual edits, once across all gateways. Writes the kept copy again if it was lost.
   * @param lastGood the table in force, if it is known
   * @returns the version of the table that was compared; undefined if it must be compared again
   */
  async acceptEdit(lastGood?: StoredPlans): Promise<string | undefined> {
    const [table, kept] = await Promise.all([this.read(), this.readKept()]);
    const last = lastOf(kept, lastGood);
    if (table === undefined || last === undefined) return undefined;
    const entries = editsIn(table, last);
    const version = versionOf(table);
    if (entries.length === 0 && (isWhole(kept) || lastGood === undefined)) return version;
    const isMade = await this.#storage.change({
      parts: [
        { record: 'plans', exists: true, expect: pick(table) },
        { record: 'plans:kept', expect: pickKept(kept), set: keeps(table, last) },
      ],
      entries,
    });
    return isMade ? version : undefined;
  }

  /** Writes a missing table back from the kept copy, or from `last` if the copy is missing too. */
  async writeBack(last: StoredPlans | undefined): Promise<void> {
    const kept = await this.readKept();
    const table = isWhole(kept) ? kept : last;
    if (table === undefined) return;
    const reason = 'The table was missing: the last good one was written back.';
    const change = changeFrom({}, table, { author: 'gateway', reason, action: 'restore' });
    if (change === undefined) return;
    await this.#storage.change({
      parts: [
        { record: 'plans', exists: false, set: pick(table) },
        { record: 'plans:kept', expect: pickKept(kept), set: keeps(table, kept) },
      ],
      entries: entriesOf(change, planActivity(change.changes, { actor: 'gateway', reason, via: 'gateway' })),
    });
  }

  async history(limit: number): Promise<RecordedChange[]> {
    const entries = await this.#storage.tail('plan history', { count: limit });
    return entries.flatMap((entry) => RecordedChange.safeParse(readEntry(entry)).data ?? []);
  }
}

/** Holds the whole table as last seen, including bad values, as JSON, so that each edit is recorded only once. */
const SEEN = 'seen';
/** The plans that nobody has changed since `begin` wrote them, by name. */
const BUILT_IN = 'built_in';

/** The kept copy. Values missing from it come from the table in force. */
const lastOf = (kept: StoredPlans | undefined, inForce: StoredPlans | undefined): StoredPlans | undefined =>
  kept === undefined ? inForce : { ...inForce, ...kept };

function untouchedIn(table: StoredPlans, kept: StoredPlans = {}): readonly string[] {
  const changed = STORED_FIELDS.filter((field) => table[field] !== kept[field]).map(planOf);
  return (kept[BUILT_IN] ?? '').split(' ').filter((plan) => isPlanName(plan) && !changed.includes(plan));
}

/** The entries for the manual edits since a gateway last saw the table. */
function editsIn(table: StoredPlans, last: StoredPlans | undefined): LogEntry[] {
  const about = { author: 'unknown', reason: '', action: 'by hand' } as const;
  const change = last && changeFrom(readSeen(last) ?? last, table, about);
  if (change === undefined) return [];
  return entriesOf(change, planActivity(change.changes, { actor: 'unknown', reason: '', via: 'by hand' }));
}

/** Undefined if somebody has edited this field too. */
const readSeen = ({ [SEEN]: text }: StoredPlans): StoredPlans | undefined =>
  readJson(z.record(z.string(), z.string()), text);

/** Whether a table has all required values, and only good ones. */
export const isWhole = (table: StoredPlans = {}): boolean =>
  STORED_FIELDS.every((field) => isUsable(field, table[field]));

/** All fields of a table. Missing ones are undefined. */
const pick = (table: StoredPlans): FieldChanges =>
  Object.fromEntries(STORED_FIELDS.map((field) => [field, table[field]]));

const pickKept = (kept: StoredPlans = {}) => ({ ...pick(kept), [SEEN]: kept[SEEN], [BUILT_IN]: kept[BUILT_IN] });

/** The values of a table to keep: each good value, and the last good one in place of each bad value. */
function keeps(table: StoredPlans, last: StoredPlans = {}): FieldChanges {
  // An optional value that was removed counts as good too.
  const good = STORED_FIELDS.map((field) => [field, (isUsable(field, table[field]) ? table : last)[field]]);
  const builtIn = untouchedIn(table, last).join(' ') || undefined;
  return { ...Object.fromEntries(good), [SEEN]: JSON.stringify(pick(table)), [BUILT_IN]: builtIn };
}

const entriesOf = ({ changes, ...rest }: PlanChange, activity: readonly Activity[]): LogEntry[] => [
  { log: 'plan history', fields: { ...rest, changes: JSON.stringify(changes) } },
  ...auditEntries(...activity),
];
