import { expect, test } from 'vitest';
import { credentialOf } from '../../gateway/limiter/credential.ts';
import { type LimiterUnderTest, redisUnderTest } from '../support/limiters.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { secretWith } from '../support/secrets.ts';

/** The first request with a bound secret is asked again with its scope and address. */

const { url } = await emptyDatabase();
const DIGEST = '1'.repeat(64);

async function boundCredential(under: LimiterUnderTest) {
  const { id } = await under.createKey({ secrets: [secretWith(DIGEST, { scope: ['read'] })] });
  return credentialOf(id, DIGEST, { scope: 'read', address: '127.0.0.1' });
}

test('a request with a bound secret is decided once', async () => {
  const under = await redisUnderTest(url);
  const credential = await boundCredential(under);
  expect(await under.limiter.decide(credential)).toMatchObject({ outcome: 'admitted', bounds: { scope: ['read'] } });
  expect(await under.redis.hget(`gateway:key:{${credential.id}}`, 'admitted')).toBe('1');
});
