import { type Activity, type ActivityPage, type ActivityQuery, RecordedActivity } from './activity-entry.ts';
import { type Fields, type LogEntry, type Storage, withChanges } from './storage.ts';

/** Entries that one call checks. The answer says where to continue. */
const CHECKED_AT_ONCE = 5_000;
/** Entries that are read together. */
const PAGE = 500;

/** The audit log: who changed what, when and why. Most entries are written in the step that makes the change. */
export class AuditLog {
  readonly #storage: Storage;

  constructor(storage: Storage) {
    this.#storage = storage;
  }

  /** Adds an entry about something that was done already. A repetition of the newest about its target is left out. */
  async record(entry: Activity): Promise<void> {
    await this.#storage.append(auditEntries(entry));
  }

  /** One call checks a limited number of entries. Entries that were made unreadable by hand are left out. */
  async list({ after, limit, isWanted }: ActivityQuery): Promise<ActivityPage> {
    const activity: RecordedActivity[] = [];
    let last = after;
    for (let checked = 0; checked < CHECKED_AT_ONCE; ) {
      const count = checked === 0 ? Math.min(PAGE, limit + 1) : PAGE;
      const page = await this.#storage.tail('audit', { after: last, count });
      checked += count;
      for (const [id, fields] of page) {
        if (activity.length === limit) return { activity, next: last };
        last = id;
        const entry = readEntry(id, fields);
        if (entry !== undefined && isWanted(entry)) activity.push(entry);
      }
      if (page.length < count) return { activity, next: undefined };
    }
    return { activity, next: last };
  }
}

/** Entries as a change takes them along. */
export const auditEntries = (...entries: readonly (Activity | undefined)[]): LogEntry[] =>
  entries.filter((entry) => entry !== undefined).map((entry) => ({ log: 'audit', fields: toFields(entry) }));

function toFields({ changes, ...entry }: Activity): Fields {
  return withChanges({}, { ...entry, changes: JSON.stringify(changes) });
}

function readEntry(id: string, fields: Fields): RecordedActivity | undefined {
  try {
    return RecordedActivity.parse({ ...fields, id, changes: JSON.parse(fields.changes ?? '') });
  } catch {
    return undefined;
  }
}
