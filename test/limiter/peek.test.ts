import fc from 'fast-check';
import { expect, test } from 'vitest';
import { credentialOf } from '../../gateway/limiter/credential.ts';
import type { Decision } from '../../gateway/limiter/limiter.ts';
import { BEGIN, memoryUnderTest, redisUnderTest, SECOND } from '../support/limiters.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { secretWith } from '../support/secrets.ts';

const { url } = await emptyDatabase();
const embedded = await memoryUnderTest();
const shared = await redisUnderTest(url);

const step = fc.oneof(
  fc.record({ requests: fc.integer({ min: 1, max: 5 }) }),
  fc.record({ seconds: fc.integer({ min: 0, max: 90 }) }),
);

test('a peek gives the same verdict in both limiters, and changes nothing', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 1, max: 5 }),
      fc.integer({ min: 1, max: 8 }),
      fc.array(step, { maxLength: 12 }),
      async (minute, day, steps) => {
        for (const one of [embedded, shared]) {
          one.now = BEGIN;
          one.setPlan('free', { minute, day, ban_after: 3, ban_grace_seconds: 0, ban_seconds: 20 });
        }
        const credential = await embedded.createKey();
        await shared.keys.create(credential.id, {
          plan: 'free',
          name: 'test',
          createdAt: BEGIN,
          secrets: [secretWith(credential.digest)],
        });
        for (const { requests = 0, seconds = 0 } of steps as { requests?: number; seconds?: number }[]) {
          for (const one of [embedded, shared]) {
            one.now += seconds * SECOND;
            for (let sent = 0; sent < requests; sent++) await one.limiter.decide(credential);
          }
          const before = [await embedded.keys.get(credential.id), await shared.keys.get(credential.id)];
          const [here, there] = [await embedded.limiter.peek(credential), await shared.limiter.peek(credential)];
          expect({ isShadowed: false, ...here }).toEqual(there);
          expect([await embedded.keys.get(credential.id), await shared.keys.get(credential.id)]).toEqual(before);
        }
      },
    ),
    { numRuns: 60 },
  );
});

test('the next decision agrees with the peek', async () => {
  for (const { limiter, createKey } of [embedded, shared].map((one) => ({
    limiter: one.limiter,
    createKey: () => one.createKey({ minute: 4, day: 9 }),
  }))) {
    const credential = await createKey();
    await limiter.decide(credential);
    const told = (await limiter.peek(credential)) as Decision;
    const decided = (await limiter.decide(credential)) as Decision;
    expect(told).toMatchObject({ outcome: 'admitted', plan: 'free' });
    expect(decided.buckets.map(({ tokens }) => tokens + 1)).toEqual(told.buckets.map(({ tokens }) => tokens));
  }
});

test('an invalid credential learns nothing', async () => {
  for (const one of [embedded, shared]) {
    const { id, digest } = await one.createKey();
    const unknown = { outcome: 'unauthorized', reason: 'unknown' };
    expect(await one.limiter.peek(credentialOf(id, 'x'.repeat(64)))).toEqual(unknown);
    expect(await one.limiter.peek(credentialOf('0'.repeat(12), digest))).toMatchObject(unknown);
    await one.keys.change(id, () => ({ record: { disabled: true } }));
    expect(await one.limiter.peek(credentialOf(id, digest))).toMatchObject({
      outcome: 'unauthorized',
      reason: 'disabled',
    });
  }
});
