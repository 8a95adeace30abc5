import type { Redis } from 'ioredis';
import { parseApiKey } from '../../../gateway/limiter/credential.ts';
import { keyOf } from '../../../gateway/stores/redis/step.ts';

/**
 * What the usual Node stacks know of an API key. Their limiters only count; who a key belongs to and what it may, they
 * leave to their users. So this reads a key's record from Redis, and remembers it for a second: the cheap way to do it.
 */

const MEMORY_MS = 1_000;
const MAX_REMEMBERED = 10_000;

export interface KnownKey {
  readonly id: string;
  readonly minute: number;
  readonly day: number;
}

export class KnownKeys {
  readonly #redis: Redis;
  readonly #remembered = new Map<string, { readonly key: KnownKey; readonly until: number }>();

  constructor(redis: Redis) {
    this.#redis = redis;
  }

  /** Whose key an Authorization header carries; undefined where it opens nothing. */
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
