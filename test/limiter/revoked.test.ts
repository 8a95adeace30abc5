import { expect, test } from 'vitest';
import { bothLimiters } from '../support/limiters.ts';
import { emptyDatabase } from '../support/redis-database.ts';

const { url } = await emptyDatabase();

test.for(bothLimiters(url))('%s: of a revoked key only name, plan and use are left', async ([, open]) => {
  const under = await open();
  const credential = await under.createKey({ minute: 7, expiresAt: under.now * 2, disabled: false });
  await under.limiter.decide(credential);
  expect(await under.keys.remove(credential.id)).toBe(true);
  const { keys } = await under.keys.walk({ after: undefined, limit: 10 });
  const entry = keys.find(({ id }) => id === credential.id);
  expect(entry).toMatchObject({
    isRevoked: true,
    isReadable: false,
    record: { name: 'test', plan: 'free', secrets: [], expiresAt: undefined, minute: undefined },
    admitted: 1,
    used: {},
    usage: { minutes: [], days: [{ admitted: 0, refused: 0 }] },
  });
  expect(JSON.stringify(entry)).not.toContain(credential.digest);
});

test.for(bothLimiters(url))('%s: of two that revoke a key at once, one did', async ([, open]) => {
  const under = await open();
  const { id } = await under.createKey();
  const both = await Promise.all([under.keys.remove(id), under.keys.remove(id)]);
  expect(both.sort()).toEqual([false, true]);
});
