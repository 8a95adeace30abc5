import type { Redis } from 'ioredis';
import { createApiKey } from '../../gateway/limiter/credential.ts';
import type { KeyRecord } from '../../gateway/limiter/key-record.ts';
import { writeKey } from '../../gateway/stores/key-hash.ts';
import { keyOf } from '../../gateway/stores/redis/calls.ts';
import { secretWith } from './secrets.ts';

/** Writes an API key directly into Redis. Returns the full key and the name of its hash. */
export async function createKey(
  redis: Redis,
  record: Partial<KeyRecord> = {},
): Promise<{ apiKey: string; hash: string }> {
  const { apiKey, credential } = createApiKey();
  const given = { plan: 'free', name: 'test', createdAt: 0, ...record } as const;
  await redis.hset(keyOf(credential.id), writeKey({ secrets: [secretWith(credential.digest)], ...given }));
  return { apiKey, hash: keyOf(credential.id) };
}
