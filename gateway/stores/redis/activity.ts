import {
  type Activity,
  type ActivityPage,
  type ActivityQuery,
  type ActivityStore,
  RecordedActivity,
} from '../activity-entry.ts';
import { orUnavailable } from './calls.ts';
import { fromFlat } from './change-hash.ts';
import { ACTIVITY, type Trail } from './trail.ts';

/** Entries that one call checks. The answer says where to continue. */
const LOOKED_AT_ONCE = 5_000;

/** Entries that are read together. */
const PAGE = 500;

/** The activity in Redis: a stream of bounded length. */
export class RedisActivity implements ActivityStore {
  readonly #trail: Trail;

  constructor(trail: Trail) {
    this.#trail = trail;
  }

  record(entry: Activity): Promise<void> {
    return this.#trail.note(this.#trail.notesOf([entry]));
  }

  /** One call checks a limited number of entries. Entries that were made unreadable by hand are left out. */
  async list({ after, limit, isWanted }: ActivityQuery): Promise<ActivityPage> {
    const activity: RecordedActivity[] = [];
    let last = after;
    for (let looked = 0; looked < LOOKED_AT_ONCE; ) {
      const count = looked === 0 ? Math.min(PAGE, limit + 1) : PAGE;
      const page = await this.#page(last, count);
      looked += count;
      for (const [id, fields] of page) {
        if (activity.length === limit) return { activity, next: last };
        last = id;
        const entry = toEntry(id, fromFlat(fields));
        if (entry !== undefined && isWanted(entry)) activity.push(entry);
      }
      if (page.length < count) return { activity, next: undefined };
    }
    return { activity, next: last };
  }

  async #page(after: string | undefined, count: number): Promise<[id: string, fields: string[]][]> {
    const from = after === undefined ? '+' : `(${after}`;
    return await orUnavailable(this.#trail.redis.xrevrange(ACTIVITY, from, '-', 'COUNT', count));
  }
}

function toEntry(id: string, fields: Record<string, string>): RecordedActivity | undefined {
  try {
    return RecordedActivity.parse({ ...fields, id, changes: JSON.parse(fields.changes ?? '') });
  } catch {
    return undefined;
  }
}
