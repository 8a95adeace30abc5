import type { Redis } from 'ioredis';
import { expect } from 'vitest';

/**
 * Waits until so many replicas have all that was written so far, by whomever. WAIT waits for the writes of its own
 * connection only, and for nothing where there are none: so one is made, behind all others.
 * @param id of an API key that this node of a cluster serves
 */
export async function replicated(redis: Redis, replicas: number, id = ''): Promise<void> {
  await redis.set(`test:written:{${id}}`, '');
  await expect.poll(() => redis.wait(replicas, 1_000)).toBe(replicas);
}
