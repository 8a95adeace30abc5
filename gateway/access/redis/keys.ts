import { unauthorized } from '../decide.ts';
import { isWanted, LOOKED_AT_ONCE } from '../key-query.ts';
import type { Walked, WalkQuery } from '../key-walk.ts';
import type { KeyChange, KeyEntry, KeyRecord } from '../keys.ts';
import { AccessUnavailable, type KeyList, type KeyQuery, type KeyStore, Unreadable } from '../limiter.ts';
import { changeHash, holds } from './change-hash.ts';
import type { RedisConnection } from './connection.ts';
import { banFields, keyOf, recordFields, toEntry, toFields, toHash, toRecord, usageOf } from './key-hash.ts';
import { INDEX, issue, placesAfter, revoke } from './key-index.ts';
import { settle } from './settle.ts';
import { orUnavailable } from './unavailable.ts';

/** Keys that are asked for together; few enough to be answered in time by a Redis that has other work. */
const PAGE = 100;
const ATTEMPTS = 10;

/** API keys in Redis: a hash each, and a sorted set of their ids by time of creation. */
export class RedisKeys implements KeyStore {
  readonly #redis: RedisConnection;

  constructor(redis: RedisConnection) {
    this.#redis = redis;
  }

  async now(): Promise<number> {
    const [seconds, microseconds] = await orUnavailable(this.#redis.time());
    return Number(seconds) * 1e6 + Number(microseconds);
  }

  create(id: string, record: KeyRecord): Promise<void> {
    return issue(this.#redis, id, record.createdAt / 1e6, Object.entries(toHash(record)).flat());
  }

  async get(id: string): Promise<KeyEntry | undefined> {
    const hash = await this.#read(id);
    return hash && toEntry(id, hash);
  }

  async isGood(id: string, digest: string): Promise<boolean> {
    const hash = await this.#read(id);
    if (hash === undefined) return false;
    const { secret, old_secret: oldSecret } = hash;
    const record = { ...toEntry(id, hash).record, secret: secret ?? '', oldSecret };
    return secret === undefined || unauthorized(record, digest, await this.now()) === undefined;
  }

  /**
   * Goes through the index from the newest key on, a page at a time. Only so many keys are looked at in one call, so that
   * a search in a large Redis holds up nobody: there is `next` to go on with.
   */
  async list(query: KeyQuery): Promise<KeyList> {
    const total = await orUnavailable(this.#redis.zcard(INDEX));
    const keys: KeyEntry[] = [];
    let at = query.offset;
    while (at < total && at - query.offset < LOOKED_AT_ONCE) {
      const page = await this.#page(at);
      // Keys that were revoked meanwhile leave the end of the index nearer than it was.
      if (page.length === 0) return { total, keys, next: undefined };
      for (const entry of page) {
        if (keys.length === query.limit) return { total, keys, next: at };
        at += 1;
        if (entry !== undefined && isWanted(entry, query)) keys.push(entry);
      }
    }
    return { total, keys, next: at < total ? at : undefined };
  }

  async change(id: string, make: (record: KeyRecord) => KeyChange): Promise<boolean> {
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      const hash = await this.#read(id);
      if (hash === undefined) return false;
      const record = toRecord(id, hash);
      if (record === undefined) throw new Unreadable();
      const { record: changes = {}, ban } = make(record);
      const fields = { ...toFields(changes), ...banFields(ban) };
      const changed = await settle(changeHash(this.#redis, keyOf(id), recordFields(hash), fields), async () =>
        holds(await this.#read(id), fields),
      );
      if (changed !== undefined) return true;
    }
    throw new AccessUnavailable('The key was changed by others, again and again.');
  }

  /** @throws {AccessUnavailable} also while the key's slot moves from one node of a cluster to another */
  remove(id: string): Promise<boolean> {
    return revoke(this.#redis, id);
  }

  async walk({ after, limit }: WalkQuery): Promise<Walked> {
    const places = await placesAfter(this.#redis, after, limit);
    const keys = await Promise.all(places.map(async ({ id }) => (await this.get(id)) ?? (await this.#revoked(id))));
    return {
      keys: keys.filter((key) => key !== undefined),
      next: places.length === limit ? places.at(-1) : undefined,
    };
  }

  async #page(offset: number): Promise<(KeyEntry | undefined)[]> {
    const ids = await orUnavailable(this.#redis.zrevrange(INDEX, offset, offset + PAGE - 1));
    return await Promise.all(ids.map((id) => this.get(id)));
  }

  async #revoked(id: string): Promise<KeyEntry | undefined> {
    const hash = await orUnavailable(this.#redis.hgetall(usageOf(id)));
    return Object.keys(hash).length === 0 ? undefined : { ...toEntry(id, hash), isRevoked: true };
  }

  /** An id that holds something else than a key's hash is a key too: one that can be seen and removed. */
  async #read(id: string): Promise<Record<string, string> | undefined> {
    const type = await orUnavailable(this.#redis.type(keyOf(id)));
    if (type === 'none') return undefined;
    return type === 'hash' ? await orUnavailable(this.#redis.hgetall(keyOf(id))) : {};
  }
}
