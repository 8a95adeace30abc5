import { z } from 'zod';
import { ACTIONS, VIAS } from './audit-words.ts';
import { type Fields, type LogEntry, type Storage, withChanges } from './storage.ts';

/** One field, named as in `gateway:plans`. Undefined if there was, or is, no value. */
export const FieldChange = z.object({ field: z.string(), from: z.string().optional(), to: z.string().optional() });

export type FieldChange = Readonly<z.infer<typeof FieldChange>>;

/** The id of a record in a Redis stream: Unix time in milliseconds, and a sequence number. */
export const RecordId = z.string().regex(/^\d{1,16}-\d{1,9}$/);

/** What an operator did. No entry holds a secret. */
export const Activity = z.object({
  /** A person or a program, as far as known; else 'unknown'. */
  actor: z.string(),
  action: z.enum(ACTIONS),
  /** The id of the key or the token, or the name of the plan. `*` for a restore. */
  target: z.string(),
  reason: z.string(),
  via: z.enum(VIAS),
  changes: z.array(FieldChange),
  requestId: z.string().optional(),
  /** The id of the named token that was used. */
  token: z.string().optional(),
});

export type Activity = Readonly<z.infer<typeof Activity>>;

export const RecordedActivity = Activity.extend({ id: RecordId });

export type RecordedActivity = Readonly<z.infer<typeof RecordedActivity>>;

/** Entries that are kept by default. */
export const ACTIVITY_LENGTH = 10_000;

/** Entries that are searched for a repetition. */
export const LOOKED_BACK = 50;
/** A repetition comes within this time, in milliseconds. Some clients give all their requests one id. */
export const REPEATED_MS = 60_000;

/** Whether an entry can be a repetition: an operator's write may be sent again with its request id. */
export const canRepeat = ({ log, fields }: LogEntry): boolean => log === 'audit' && fields.requestId !== undefined;

export interface ActivityQuery {
  /** The id behind which the answer begins; undefined for the newest. */
  readonly after: string | undefined;
  readonly limit: number;
  /** Unix times in ms: the earliest, and the one that follows the latest. */
  readonly from?: number | undefined;
  readonly to?: number | undefined;
  isWanted(entry: RecordedActivity): boolean | Promise<boolean>;
}

export interface ActivityPage {
  /** Newest first. */
  readonly activity: readonly RecordedActivity[];
  /** Where to continue; undefined at the end. */
  readonly next: string | undefined;
}

/** The result of a change of a key, with its audit entry. */
export interface WithActivity {
  readonly activity?: Activity | undefined;
}

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

  /** Adds an entry about something that was done already. */
  async record(entry: Activity): Promise<void> {
    await this.#storage.change({ parts: [], entries: auditEntries(entry) });
  }

  /** One call checks a limited number of entries. Entries that were made unreadable by hand are left out. */
  async list({ after, limit, from = 0, to, isWanted }: ActivityQuery): Promise<ActivityPage> {
    const activity: RecordedActivity[] = [];
    const behind = to === undefined ? undefined : `${Math.max(0, to)}-0`;
    let last = after !== undefined && behind !== undefined ? earlier(after, behind) : (after ?? behind);
    for (let checked = 0; checked < CHECKED_AT_ONCE; ) {
      const count = checked === 0 ? Math.min(PAGE, limit + 1) : PAGE;
      const page = await this.#storage.tail('audit', { after: last, count });
      checked += count;
      for (const [id, fields] of page) {
        if (Number.parseInt(id, 10) < from) return { activity, next: undefined };
        if (activity.length === limit) return { activity, next: last };
        last = id;
        const entry = readEntry(id, fields);
        if (entry !== undefined && (await isWanted(entry))) activity.push(entry);
      }
      if (page.length < count) return { activity, next: undefined };
    }
    return { activity, next: last };
  }
}

/** The earlier of two ids. */
function earlier(one: string, other: string): string {
  const [a = 0, b = 0] = one.split('-').map(Number);
  const [c = 0, d = 0] = other.split('-').map(Number);
  return a < c || (a === c && b < d) ? one : other;
}

/** Entries as a change takes them along. */
export const auditEntries = (...entries: readonly (Activity | undefined)[]): LogEntry[] =>
  entries.filter((entry) => entry !== undefined).map((entry) => ({ log: 'audit', fields: toFields(entry) }));

function toFields({ changes, ...entry }: Activity): Fields {
  return withChanges({}, { ...entry, changes: JSON.stringify(changes) });
}

/** @throws {Error} for fields that are no entry */
export const activityIn = (fields: Fields): Activity =>
  Activity.parse({ ...fields, changes: JSON.parse(fields.changes ?? '') });

function readEntry(id: string, fields: Fields): RecordedActivity | undefined {
  try {
    return RecordedActivity.parse({ ...activityIn(fields), id });
  } catch {
    return undefined;
  }
}
