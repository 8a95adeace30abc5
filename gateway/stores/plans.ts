import { Unavailable } from '../../shared/domain-errors.ts';
import { DEFAULT_PLANS, isUsable, STORED_FIELDS, type StoredPlans, storedPlans } from '../limiter/plans.ts';
import { type AboutChange, type Activity, planActivity } from './activity-entry.ts';
import { auditEntries } from './audit.ts';
import { changeFrom, changesBetween, type PlanChange, RecordedChange, versionOf } from './plan-history.ts';
import { type Fields, type LogEntry, NotMade, type Storage } from './storage.ts';
import type { PlanStore, PlansChanged } from './stores.ts';

const ATTEMPTS = 10;

/**
 * The plan table, which people edit: `HSET gateway:plans free.minute 120`. Beside it stands the table as a gateway last
 * left it (`plans:kept`). The two show what was edited by hand; and a table that was deleted is written back.
 */
export class Plans implements PlanStore {
  readonly #storage: Storage;

  constructor(storage: Storage) {
    this.#storage = storage;
  }

  /** @throws {Unavailable} also if somebody put another value in its place */
  async read(): Promise<StoredPlans | undefined> {
    const table = await this.#storage.read('plans');
    if (table !== undefined && Object.keys(table).length === 0) throw new Unavailable('gateway:plans is not a hash.');
    return table;
  }

  readKept(): Promise<StoredPlans | undefined> {
    return this.#storage.read('plans:kept');
  }

  async begin(): Promise<void> {
    const [table, kept] = await Promise.all([this.read(), this.readKept()]);
    if (kept !== undefined || (table === undefined && !(await this.#storage.isEmpty()))) return;
    const whole = { ...storedPlans(DEFAULT_PLANS), ...table };
    await this.#storage.change({
      parts: [
        { record: 'plans', exists: table !== undefined, set: whole },
        { record: 'plans:kept', exists: false, set: keeps(whole) },
      ],
      entries: [],
    });
  }

  async change(changes: StoredPlans, about: AboutChange, seen?: StoredPlans): Promise<PlansChanged | undefined> {
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      const before = seen ?? (await this.read()) ?? {};
      const made = await this.#changeFrom(before, changes, about);
      if (made !== undefined) return made;
      // Another gateway may have recorded an edit by hand meanwhile, which changes only what is kept.
      if (seen !== undefined && versionOf((await this.read()) ?? {}) !== versionOf(seen)) return undefined;
    }
    throw new NotMade('The plans were changed by others, again and again.');
  }

  async #changeFrom(before: StoredPlans, changes: StoredPlans, about: AboutChange): Promise<PlansChanged | undefined> {
    const kept = await this.readKept();
    // An edit by hand first, because this change hides it.
    const byHand = editOf(before, kept);
    const after = { ...before, ...changes };
    const change = changeFrom(before, after, about);
    let unrecorded: string | undefined;
    const isMade = await this.#storage.change({
      parts: [
        { record: 'plans', expect: pick(before), set: changes },
        { record: 'plans:kept', ...(kept && { expect: pick(kept) }), set: keeps(after, kept) },
      ],
      entries: [
        ...(byHand?.entries ?? []),
        ...(change === undefined ? [] : [historyEntry(change), ...auditEntries(...about.entriesFor(change.changes))]),
      ],
      onLost({ log }, why) {
        if (log === 'plan history') unrecorded = why;
      },
    });
    return isMade ? { before, change, unrecorded } : undefined;
  }

  async acceptEdit(): Promise<readonly Activity[]> {
    const [table, kept] = await Promise.all([this.read(), this.readKept()]);
    if (table === undefined) return [];
    const edit = editOf(table, kept);
    if (edit === undefined) return [];
    const isMade = await this.#storage.change({
      parts: [
        { record: 'plans', exists: true, expect: pick(table) },
        { record: 'plans:kept', expect: { ...pick(kept ?? {}), [SEEN]: kept?.[SEEN] }, set: keeps(table, kept) },
      ],
      entries: edit.entries,
    });
    return isMade ? edit.activity : [];
  }

  async writeBack(last: StoredPlans | undefined): Promise<readonly Activity[]> {
    const table = last ?? (await this.readKept());
    if (table === undefined) return [];
    const fields = pick(table);
    const about = { actor: 'gateway', reason: 'The table was missing: the last good one was written back.' };
    const activity = planActivity(changesBetween({}, table), { ...about, via: 'gateway' });
    const change = changeFrom({}, table, { author: about.actor, reason: about.reason, action: 'set' });
    const isMade = await this.#storage.change({
      parts: [
        { record: 'plans', exists: false, set: fields },
        { record: 'plans:kept', set: keeps(table) },
      ],
      entries: [...(change ? [historyEntry(change)] : []), ...auditEntries(...activity)],
    });
    return isMade ? activity : [];
  }

  /** A record that was made unreadable by hand is left out. */
  async history(limit: number): Promise<RecordedChange[]> {
    const entries = await this.#storage.tail('plan history', { count: limit });
    return entries.flatMap(([id, fields]) => readChange(id, fields) ?? []);
  }
}

/** The version of a table whose edits were recorded, bad values included, so that each is recorded once. */
const SEEN = 'seen';

/** What was edited by hand since a gateway last left the table; undefined if nothing was. */
function editOf(table: StoredPlans, kept: StoredPlans | undefined) {
  const version = versionOf(table);
  if (kept === undefined || kept[SEEN] === version) return undefined;
  const changes = changesBetween(kept, table);
  if (changes.length === 0) return undefined;
  const activity = planActivity(changes, { actor: 'unknown', reason: '', via: 'by hand' });
  const change = { author: 'unknown', reason: '', action: 'by hand', changes, version } as const;
  return {
    activity,
    entries: [historyEntry(change), ...auditEntries(...activity)],
  };
}

/** Every field of a table, undefined where it has none. */
const pick = (table: StoredPlans): Record<string, string | undefined> =>
  Object.fromEntries(STORED_FIELDS.map((field) => [field, table[field]]));

/** What is kept of a table: its values that can be in force, or else the last good ones. */
function keeps(table: StoredPlans, last: StoredPlans = {}): Record<string, string | undefined> {
  const good = STORED_FIELDS.map((field) => {
    const text = table[field];
    return [field, text !== undefined && isUsable(field, text) ? text : last[field]];
  });
  return { ...Object.fromEntries(good), [SEEN]: versionOf(table) };
}

const historyEntry = ({ changes, ...rest }: PlanChange): LogEntry => ({
  log: 'plan history',
  fields: { ...rest, changes: JSON.stringify(changes) },
});

function readChange(id: string, fields: Fields): RecordedChange | undefined {
  try {
    return RecordedChange.parse({ ...fields, id, changes: JSON.parse(fields.changes ?? '') });
  } catch {
    return undefined;
  }
}
