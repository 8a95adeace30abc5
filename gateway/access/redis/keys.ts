import type { KeyEntry, KeyRecord } from '../keys.ts';
import type { KeyStore } from '../limiter.ts';
import type { RedisConnection } from './connection.ts';
import { keyOf, toEntry, toHash } from './key-hash.ts';

const INDEX = 'gateway:keys';

/** API keys in Redis: a hash each, and a sorted set of their ids by time of creation. */
export class RedisKeys implements KeyStore {
  readonly #redis: RedisConnection;

  constructor(redis: RedisConnection) {
    this.#redis = redis;
  }

  /** The hash first: an id that is listed always opens something. */
  async create(id: string, record: KeyRecord): Promise<void> {
    await this.#redis.hset(keyOf(id), toHash(record));
    await this.#redis.zadd(INDEX, record.createdAt / 1e6, id);
  }

  async get(id: string): Promise<KeyEntry | undefined> {
    return toEntry(id, await this.#redis.hgetall(keyOf(id)));
  }

  async list(offset: number, limit: number): Promise<{ total: number; keys: KeyEntry[] }> {
    const total = await this.#redis.zcard(INDEX);
    const ids = await this.#redis.zrevrange(INDEX, offset, offset + limit - 1);
    const entries = await Promise.all(ids.map((id) => this.get(id)));
    return { total, keys: entries.filter((entry) => entry !== undefined) };
  }

  async remove(id: string): Promise<boolean> {
    const removed = await this.#redis.del(keyOf(id));
    await this.#redis.zrem(INDEX, id);
    return removed === 1;
  }
}
