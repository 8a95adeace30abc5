import type { Redis } from 'ioredis';
import { parseApiKey } from '../../../gateway/limiter/credential.ts';
import { keyOf } from '../../../gateway/stores/redis/calls.ts';

/**
 * The key lookup for the usual Node stacks. Their limiters only count; the application must find out whose a key is and
 * what it may do. This is the cheapest such lookup: it reads a key's record from Redis and caches it for a second.
 */

const MEMORY_MS = 1_000;
const MAX_REMEMBERED = 10_000;

export interface KnownKey {
  readonly id: string;
  readonly minute: number;
  readonly day: number;
}

export const UNAUTHORIZED = {
  code: 'unauthorized',
  message: 'A valid API key is required in the header Authorization: Bearer as_...',
  status: 401,
};

export class KnownKeys {
  readonly #redis: Redis;
  readonly #remembered = new Map<string, { readonly key: KnownKey; readonly until: number }>();

  constructor(redis: Redis) {
    this.#redis = redis;
  }

  /** The key in an Authorization header; undefined if it is not valid. */
  async find(authorization: string | undefined): Promise<KnownKey | undefined> {
    if (!authorization?.startsWith('Bearer ')) return undefined;
    const remembered = this.#remembered.get(authorization);
    if (remembered !== undefined && remembered.until > performance.now()) return remembered.key;
    const credential = parseApiKey(authorization.slice('Bearer '.length));
    if (credential === undefined) return undefined;
    const fields = [`secret:${credential.digest}`, 'minute', 'day', 'disabled'];
    const [secret, minute, day, disabled] = await this.#redis.hmget(keyOf(credential.id), ...fields);
    if (!secret || disabled) return undefined;
    const key = { id: credential.id, minute: Number(minute), day: Number(day) };
    if (this.#remembered.size >= MAX_REMEMBERED) this.#remembered.clear();
    this.#remembered.set(authorization, { key, until: performance.now() + MEMORY_MS });
    return key;
  }
}
