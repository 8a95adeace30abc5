import { StoreUnavailable } from '../../limiter/limiter.ts';
import type { StoredPlans } from '../../limiter/plans.ts';
import type { AboutChange, Activity } from '../activity-entry.ts';
import { changeFrom, fieldsIn, HISTORY_LENGTH, type PlanChange, RecordedChange } from '../plan-history.ts';
import type { PlanStore, PlansChanged } from '../stores.ts';
import { orUnavailable, type RedisConnection } from './calls.ts';
import { changeHash, fromFlat } from './change-hash.ts';
import { type Note, scriptWithNotes, Trail } from './trail.ts';

const TABLE = 'gateway:plans';
const HISTORY = 'gateway:plans:history';

const RECORD_ONCE = scriptWithNotes('record-once');
const ATTEMPTS = 10;

/**
 * The plan table in Redis, where people edit it: `HSET gateway:plans free.minute 120`. The table, its history and the
 * activity change in one step. In a cluster they are in different slots: first the table, then the others.
 */
export class RedisPlans implements PlanStore {
  readonly #redis: RedisConnection;
  readonly #trail: Trail;

  constructor(redis: RedisConnection, trail = new Trail(redis)) {
    this.#redis = redis;
    this.#trail = trail;
  }

  read(): Promise<StoredPlans> {
    return orUnavailable(this.#redis.hgetall(TABLE));
  }

  async seed(plans: StoredPlans): Promise<void> {
    await Promise.all(
      Object.entries(plans).map(([field, value]) => orUnavailable(this.#redis.hsetnx(TABLE, field, value))),
    );
  }

  async change(changes: StoredPlans, about: AboutChange, seen?: StoredPlans): Promise<PlansChanged | undefined> {
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      const before = seen ?? (await this.read());
      const made = await this.#changeFrom(before, changes, about);
      if (made !== undefined || seen !== undefined) return made;
    }
    throw new StoreUnavailable('The plans were changed by others, again and again.');
  }

  async #changeFrom(before: StoredPlans, changes: StoredPlans, about: AboutChange): Promise<PlansChanged | undefined> {
    const change = changeFrom(before, { ...before, ...changes }, about);
    const notes =
      change === undefined ? [] : [historyNote(change), ...this.#trail.notesOf(about.entriesFor(change.changes))];
    const made = await changeHash(this.#trail, TABLE, {
      expected: Object.fromEntries(fieldsIn(before)),
      changes,
      notes,
      read: () => this.read(),
    });
    return made && { before, change, unrecorded: made.lost.find(({ stream }) => stream === HISTORY)?.why };
  }

  async recordOnce(change: PlanChange, entries: readonly Activity[]): Promise<boolean> {
    const { reply } = await this.#trail.write(
      this.#trail.notesOf(entries),
      (run) => run(RECORD_ONCE, [HISTORY], [change.version, HISTORY_LENGTH, ...toFields(change)]),
      async () => undefined,
    );
    return reply !== undefined;
  }

  /** A record that was made unreadable by hand is left out. */
  async history(limit: number): Promise<RecordedChange[]> {
    const records = await orUnavailable(this.#redis.xrevrange(HISTORY, '+', '-', 'COUNT', limit));
    return records.flatMap(([id, fields]) => fromFields(id, fromFlat(fields)) ?? []);
  }
}

const historyNote = (change: PlanChange): Note => ({
  stream: HISTORY,
  length: HISTORY_LENGTH,
  fields: toFields(change),
  isOnce: false,
});

const toFields = ({ changes, ...rest }: PlanChange): string[] => [
  ...Object.entries(rest).flat(),
  'changes',
  JSON.stringify(changes),
];

function fromFields(id: string, fields: Record<string, string>): RecordedChange | undefined {
  try {
    return RecordedChange.parse({ ...fields, id, changes: JSON.parse(fields.changes ?? '') });
  } catch {
    return undefined;
  }
}
