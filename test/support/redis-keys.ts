import type { Redis } from 'ioredis';
import { createApiKey } from '../../gateway/access/credential.ts';
import type { KeyRecord } from '../../gateway/access/keys.ts';
import { keyOf, toHash } from '../../gateway/access/redis/key-hash.ts';

/** An API key that is put into Redis past the gateway: the whole of it, and the name of its hash. */
export async function createKey(
  redis: Redis,
  record: Partial<KeyRecord> = {},
): Promise<{ apiKey: string; hash: string }> {
  const { apiKey, credential } = createApiKey();
  const given = { plan: 'free', name: 'test', createdAt: 0, ...record } as const;
  await redis.hset(keyOf(credential.id), toHash({ ...given, secret: credential.digest }));
  return { apiKey, hash: keyOf(credential.id) };
}
