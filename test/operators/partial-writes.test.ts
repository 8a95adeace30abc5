import { mkdir, readdir, rm, writeFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { ctl } from '../support/ctl.ts';
import { send } from '../support/http.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { startStack } from '../support/stack.ts';

const { url, redis } = await emptyDatabase();

test('a plan change whose record cannot be written is answered as done, with a warning', async () => {
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
  await sleep(1_500);
  const told = stack.log.filter(({ msg }) => msg === 'a change of plans by hand could not be recorded');
  expect(told.length).toBeLessThanOrEqual(2);
});

test('without Redis, a change that cannot be written to disk is 503, not in force, and leaves nothing behind', async () => {
  const stack = await startStack();
  const key = await stack.issueKey({ name: 'before' });
  const backup = (await stack.admin('GET', '/backup')).json;
  const statusOf = async (one: string) => (await send(`${stack.gateway}/v1/pets`, { key: one })).status;
  // A non-empty folder cannot be replaced by a file.
  await rm(`${stack.directory}/keys.json`);
  await mkdir(`${stack.directory}/keys.json`);
  await writeFile(`${stack.directory}/keys.json/in the way`, '');
  const created = await stack.admin('POST', '/keys', { name: 'after', plan: 'free' });
  expect([created.status, created.headers['retry-after']]).toEqual([503, '1']);
  expect((await stack.admin('POST', `/keys/${idOf(key)}/rotate`, { graceSeconds: 0 })).status).toBe(503);
  expect((await stack.admin('DELETE', `/keys/${idOf(key)}`)).status).toBe(503);
  expect((await stack.admin('PATCH', `/keys/${idOf(key)}`, { disabled: true })).status).toBe(503);
  expect((await stack.admin('GET', '/keys')).json).toMatchObject({
    total: 1,
    keys: [{ name: 'before', state: 'active' }],
  });
  expect(await statusOf(key)).toBe(200);
  expect((await readdir(stack.directory)).filter((name) => /^keys\.json./.test(name))).toEqual([]);

  await rm(`${stack.directory}/keys.json`, { recursive: true });
  // Its revocation was noted before it failed.
  expect((await stack.admin('POST', '/restore', backup)).json).toMatchObject({ present: 1, revoked: 0 });
  expect(await statusOf(key)).toBe(200);
  expect((await stack.admin('DELETE', `/keys/${idOf(key)}`)).status).toBe(204);
  expect(await statusOf(key)).toBe(401);
});
