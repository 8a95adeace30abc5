import { z } from 'zod';
import type { Logger } from '../../shared/process/logger.ts';
import {
  type Change,
  type Fields,
  type LogEntry,
  type LoggedEntry,
  type Storage,
  Unconfirmed,
  withChanges,
  withOwn,
} from './storage.ts';
import { ACTIONS, VIAS } from './words.ts';

/** A changed field, named as in `gateway:plans`. `from` or `to` is undefined if the field was, or is, absent. */
export const FieldChange = z.object({ field: z.string(), from: z.string().optional(), to: z.string().optional() });

export type FieldChange = Readonly<z.infer<typeof FieldChange>>;

/** The id of an entry in a Redis stream: Unix time in milliseconds, and a sequence number. */
export const RecordId = z.string().regex(/^\d{1,16}-\d{1,9}$/);

/** What an operator did. No entry contains a secret. */
export const Activity = z.object({
  /** A person or a program; 'unknown' if neither is known. */
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

export const RecordedActivity = Activity.extend({ id: RecordId, at: z.number() });

export type RecordedActivity = Readonly<z.infer<typeof RecordedActivity>>;

/** The number of newest entries that are searched for a repetition. */
export const LOOKED_BACK = 50;
/** A repetition follows within this many ms. The time is short because some clients use one id for all requests. */
export const REPEATED_MS = 60_000;

/** Whether an entry can be a repetition: operators may repeat a write with its request id. */
export const canRepeat = ({ log, fields }: LogEntry): boolean => log === 'audit' && fields.requestId !== undefined;

interface ActivityQuery {
  /** The last id of the previous page; undefined for the first page. */
  readonly after: string | undefined;
  readonly limit: number;
  /** The earliest time (inclusive) and the latest (exclusive), in Unix ms. */
  readonly from?: number | undefined;
  readonly to?: number | undefined;
  isWanted(entry: RecordedActivity): boolean | Promise<boolean>;
}

/** The result of a change to a key, with its audit entry. */
export interface WithActivity {
  readonly activity?: Activity | undefined;
}

/** The number of entries that one call checks. The result says where to continue. */
const CHECKED_AT_ONCE = 5_000;
const PAGE = 500;

/** The audit log: who changed what, when and why. Most changes write their entry in the same step. */
export class AuditLog {
  readonly #storage: Storage;

  constructor(storage: Storage) {
    this.#storage = storage;
  }

  /** Adds an entry about a past event. */
  async record(entry: Activity): Promise<void> {
    await this.#storage.change({ parts: [], entries: auditEntries(entry) });
  }

  /**
   * Lists the newest entries first. One call checks a limited number, and skips those that a manual edit
   * has made unreadable.
   * @returns `next` says where to continue; undefined at the end
   */
  async list({ after, limit, from = 0, to = Infinity, isWanted }: ActivityQuery) {
    const activity: RecordedActivity[] = [];
    let last = after;
    for (let checked = 0; checked < CHECKED_AT_ONCE; ) {
      const count = checked === 0 ? Math.min(PAGE, limit + 1) : PAGE;
      const page = await this.#storage.tail('audit', { after: last, count });
      checked += count;
      for (const logged of page) {
        const [id] = logged;
        // No entry is newer than its id.
        if (Number.parseInt(id, 10) < from) return { activity, next: undefined };
        if (activity.length === limit) return { activity, next: last };
        last = id;
        const entry = RecordedActivity.safeParse(readEntry(logged)).data;
        if (entry !== undefined && entry.at >= from && entry.at < to && (await isWanted(entry))) activity.push(entry);
      }
      if (page.length < count) return { activity, next: undefined };
    }
    return { activity, next: last };
  }
}

/** Audit entries in the form that a change expects. */
export const auditEntries = (...entries: readonly (Activity | undefined)[]): LogEntry[] =>
  entries
    .filter((entry) => entry !== undefined)
    .map((entry) => ({ log: 'audit', fields: withChanges({}, { ...entry, changes: JSON.stringify(entry.changes) }) }));

/**
 * The operators' storage, with a log line for each audit entry. The line is written as soon as the change is made,
 * whether or not the change is acknowledged.
 */
export function logged(storage: Storage, logger: Logger): Storage {
  async function change(given: Change): Promise<boolean> {
    try {
      const isMade = await storage.change(given);
      if (isMade) log(given);
      return isMade;
    } catch (fault) {
      if (fault instanceof Unconfirmed) log(given);
      throw fault;
    }
  }

  /** An invalid value that was typed by hand is also logged as an error. */
  function log({ entries }: Change): void {
    for (const { log, fields } of entries) {
      if (log !== 'audit') continue;
      const activity = Activity.parse(readChanges(fields));
      const { target: keyId, reason, via } = activity;
      logger.info({ activity }, 'activity');
      if (via === 'by hand' && reason.includes('is not valid'))
        logger.error({ keyId, reason }, 'value of a key rejected');
    }
  }

  return withOwn(storage, { change });
}

/** Changes to these fields do not affect decisions. `secret` says which secret changed. */
const WITHOUT_EFFECT = ['name', 'tags', 'secret'];

/** Whether the change that an entry records can affect decisions. A new key or secret has no effect on the others. */
export function concernsDecisions({ action, changes }: Fields): boolean {
  if (action === 'key.create' || action === 'secret.create') return false;
  if (action !== 'key.change' && action !== 'secret.change') return true;
  const changed = readJson(z.array(FieldChange), changes) ?? [];
  return changed.length === 0 || changed.some(({ field }) => !WITHOUT_EFFECT.includes(field));
}

/** Undefined for a string that is not valid JSON of this schema, for example after a manual edit. */
export function readJson<T>(schema: z.ZodType<T>, text = ''): T | undefined {
  try {
    return schema.parse(JSON.parse(text));
  } catch {
    return undefined;
  }
}

/** Returns the fields of a log entry, with `changes` parsed from JSON. */
const readChanges = ({ changes, ...fields }: Fields) => ({ ...fields, changes: readJson(z.unknown(), changes) });

const OWN_TIME = /^\d{1,15}$/;

/** An entry as it was logged, with its id, and with the time at which it was written, in Unix ms. */
export function readEntry([id, fields]: LoggedEntry) {
  const { at = '' } = fields;
  return { ...readChanges(fields), id, at: OWN_TIME.test(at) ? Number(at) : Number.parseInt(id, 10) };
}
