import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { ctl } from '../support/ctl.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { startStack } from '../support/stack.ts';

const { url, redis } = await emptyDatabase();

test('a plan change whose audit entry cannot be written is answered as done with a warning', async () => {
  const stack = await startStack({ REDIS_URL: url, REDIS_TIMEOUT_MS: '5000' });
  await redis.del('gateway:plans:history');
  await redis.set('gateway:plans:history', 'spoilt');
  const answer = await stack.admin('PATCH', '/plans/free', { minute: 61, author: 'ann', reason: 'test' });
  expect([answer.status, answer.json]).toEqual([200, expect.objectContaining({ minute: 61 })]);
  expect(answer.headers.warning).toBe(
    '199 - "The change is in force, but the history of changes could not be written."',
  );
  expect(await redis.hget('gateway:plans', 'free.minute')).toBe('61');
  const lost = stack.log.filter(({ msg }) => msg === 'a change of plans is in force, but its record is lost');
  expect(lost).toMatchObject([
    {
      level: 50,
      reason: expect.stringContaining('WRONGTYPE'),
      change: { author: 'ann', changes: [{ field: 'free.minute', from: '60', to: '61' }] },
    },
  ]);
  expect((await ctl(stack, 'plans', 'set', 'free', '--minute', '62')).err).toContain(
    'Note: The change is in force, but the history of changes could not be written.',
  );
  // Long enough for several reads of the table. Each would record an unknown change.
  await sleep(600);
  const told = stack.log.filter(({ msg }) => msg === 'a change of plans by hand could not be recorded');
  expect(told.length).toBeLessThanOrEqual(2);
});
