import { readFileSync } from 'node:fs';
import type { PlanStore } from '../limiter.ts';
import { fieldsIn, HISTORY_LENGTH, type PlanChange, RecordedChange } from '../plan-history.ts';
import type { StoredPlans } from '../plans.ts';
import { changeHash, fromFlat, holds } from './change-hash.ts';
import type { RedisConnection } from './connection.ts';
import { settle } from './settle.ts';
import { orUnavailable } from './unavailable.ts';

const TABLE = 'gateway:plans';
const HISTORY = 'gateway:plans:history';

const RECORD_ONCE = readFileSync(new URL('./record-once.lua', import.meta.url), 'utf8');

/**
 * The plan table in Redis, where people edit it: `HSET gateway:plans free.minute 120`. Table and history are on different
 * slots of a cluster, so no step can be one for both: the table is changed first, and then it is told.
 */
export class RedisPlans implements PlanStore {
  readonly #redis: RedisConnection;

  constructor(redis: RedisConnection) {
    this.#redis = redis;
  }

  read(): Promise<StoredPlans> {
    return orUnavailable(this.#redis.hgetall(TABLE));
  }

  async seed(plans: StoredPlans): Promise<void> {
    await Promise.all(
      Object.entries(plans).map(([field, value]) => orUnavailable(this.#redis.hsetnx(TABLE, field, value))),
    );
  }

  async change(changes: StoredPlans, seen?: StoredPlans): Promise<StoredPlans | undefined> {
    const before = seen ?? (await this.read());
    const expected = seen === undefined ? {} : Object.fromEntries(fieldsIn(seen));
    return await settle(changeHash(this.#redis, TABLE, expected, changes), async () =>
      holds(await this.read(), changes) === undefined ? undefined : before,
    );
  }

  async record(change: PlanChange): Promise<void> {
    await orUnavailable(this.#redis.xadd(HISTORY, 'MAXLEN', '=', HISTORY_LENGTH, '*', ...toFields(change)));
  }

  async recordOnce(change: PlanChange): Promise<void> {
    const fields = toFields(change);
    await orUnavailable(this.#redis.eval(RECORD_ONCE, 1, HISTORY, change.version, HISTORY_LENGTH, ...fields));
  }

  /** A record that somebody's hand has made unreadable is left out. */
  async history(limit: number): Promise<RecordedChange[]> {
    const records = await orUnavailable(this.#redis.xrevrange(HISTORY, '+', '-', 'COUNT', limit));
    return records.flatMap(([id, fields]) => fromFields(id, fromFlat(fields)) ?? []);
  }
}

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
