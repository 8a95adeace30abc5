import type { Redis } from 'ioredis';
import { expect } from 'vitest';

/**
 * Waits until this many replicas have all writes so far, from any connection. WAIT covers only writes of its own
 * connection, so this function first makes one.
 * @param id the id of an API key that this node of a cluster stores
 */
export async function replicated(redis: Redis, replicas: number, id = ''): Promise<void> {
  await redis.set(`test:written:{${id}}`, '');
  await expect.poll(() => redis.wait(replicas, 1_000)).toBe(replicas);
}
