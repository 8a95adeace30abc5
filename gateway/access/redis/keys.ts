import type { KeyEntry, KeyRecord } from '../keys.ts';
import type { KeyList, KeyStore } from '../limiter.ts';
import type { RedisConnection } from './connection.ts';
import { keyOf, toEntry, toHash } from './key-hash.ts';
import { reach } from './reach.ts';

const INDEX = 'gateway:keys';

/** API keys in Redis: a hash each, and a sorted set of their ids by time of creation. */
export class RedisKeys implements KeyStore {
  readonly #redis: RedisConnection;

  constructor(redis: RedisConnection) {
    this.#redis = redis;
  }

  /** The hash first: an id that is listed always opens something. */
  async create(id: string, record: KeyRecord): Promise<void> {
    await reach(this.#redis.hset(keyOf(id), toHash(record)));
    await reach(this.#redis.zadd(INDEX, record.createdAt / 1e6, id));
  }

  /** An id that holds something else than a key's hash is a key too: one that can be seen and removed. */
  async get(id: string): Promise<KeyEntry | undefined> {
    const type = await reach(this.#redis.type(keyOf(id)));
    if (type === 'none') return undefined;
    return toEntry(id, type === 'hash' ? await reach(this.#redis.hgetall(keyOf(id))) : {});
  }

  async list(offset: number, limit: number): Promise<KeyList> {
    const total = await reach(this.#redis.zcard(INDEX));
    const ids = await reach(this.#redis.zrevrange(INDEX, offset, offset + limit - 1));
    const entries = await Promise.all(ids.map((id) => this.get(id)));
    return { total, keys: entries.filter((entry) => entry !== undefined) };
  }

  async remove(id: string): Promise<boolean> {
    const removed = await reach(this.#redis.del(keyOf(id)));
    await reach(this.#redis.zrem(INDEX, id));
    return removed === 1;
  }
}
