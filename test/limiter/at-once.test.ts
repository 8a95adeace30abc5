import { expect, test } from 'vitest';
import { credentialOf } from '../../gateway/limiter/credential.ts';
import type { Decision } from '../../gateway/limiter/limiter.ts';
import { redisUnderTest } from '../support/limiters.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { secretWith } from '../support/secrets.ts';

/** One call decides all requests in an event-loop turn, grouped by key. */

const { url } = await emptyDatabase();

test('concurrent requests with the same key are decided in order, even if several calls are needed', async () => {
  const under = await redisUnderTest(url);
  const credential = await under.createKey({ plan: 'enterprise', minute: 500, day: 1_000 });
  const decisions = await Promise.all(Array.from({ length: 600 }, () => under.limiter.decide(credential)));
  const left = decisions.map((decision) => (decision as Decision).buckets[0]?.tokens);
  expect(left).toEqual(Array.from({ length: 600 }, (_, at) => Math.max(0, 499 - at)));
  expect(decisions.filter(({ outcome }) => outcome === 'admitted')).toHaveLength(500);
  expect(await under.keys.get(credential.id)).toMatchObject({ admitted: 500, refused: 100 });
});

test('a request with a restricted secret is charged once, although it is sent to Redis again with its scope and address', async () => {
  const under = await redisUnderTest(url);
  const digest = '1'.repeat(64);
  const { id } = await under.createKey({ secrets: [secretWith(digest, { scope: ['read'] })] });
  const credential = credentialOf(id, digest, { scope: 'read', address: '127.0.0.1' });
  expect(await under.limiter.decide(credential)).toMatchObject({ outcome: 'admitted', bounds: { scope: ['read'] } });
  expect(await under.keys.get(id)).toMatchObject({ admitted: 1 });
});
