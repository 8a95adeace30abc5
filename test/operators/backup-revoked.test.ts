import { describe, expect, test } from 'vitest';
import { activityOf } from '../support/activity.ts';
import { digestIn, idOf } from '../support/api-key.ts';
import { ctl, ctlReading } from '../support/ctl.ts';
import { everythingIn, expireRevoked } from '../support/embedded-database.ts';
import { send } from '../support/http.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { type Stack, startStack, temporaryFolder } from '../support/stack.ts';

/** No backup brings a revoked key back, unless the operator says so. */

const { url: REDIS_URL, redis } = await emptyDatabase();
const onRedis = { REDIS_URL, REDIS_TIMEOUT_MS: '5000' };
const DAY_MS = 86_400_000;

const statusOf = async (stack: Stack, key: string) => (await send(`${stack.gateway}/v1/pets`, { key })).status;
const pageOf = async (stack: Stack) => (await stack.admin('GET', '/backup')).json as { at: string; keys: unknown[] };
const restore = async (stack: Stack, page: unknown, query = '') => await stack.admin('POST', `/restore${query}`, page);
const daysAgo = (days: number) => new Date(Date.now() - days * DAY_MS).toISOString();
/** The file as a backup of that time has it. */
const asOf = (file: string, at: string) => file.replace(/"at":"[^"]*"/, `"at":"${at}"`);

/** Redis as it is 37 days after a key was revoked. */
async function forget(key: string): Promise<void> {
  const usage = `gateway:usage:{${idOf(key)}}`;
  expect(await redis.ttl(usage)).toBeLessThanOrEqual(36 * 86_400);
  await redis.del(usage);
}

test('a key that was revoked stays revoked after a restart of an embedded gateway', async () => {
  const environment = { DATA_DIR: await temporaryFolder() };
  const first = await startStack(environment);
  const [kept, revoked] = [await first.issueKey(), await first.issueKey()];
  const page = await pageOf(first);
  expect((await first.admin('DELETE', `/keys/${idOf(revoked)}`)).status).toBe(204);
  await first.stop();
  const second = await startStack(environment);
  expect((await restore(second, page)).json).toMatchObject({ restored: 0, present: 1, revoked: 1 });
  expect([await statusOf(second, kept), await statusOf(second, revoked)]).toEqual([200, 401]);
});

test('a restore of a backup from 40 days ago brings back no revoked key unless the operator asks for it', async () => {
  await redis.flushdb();
  const stack = await startStack(onRedis);
  const key = await stack.issueKey();
  const file = asOf((await ctl(stack, 'backup')).out, daysAgo(40));
  await stack.admin('DELETE', `/keys/${idOf(key)}`);
  await forget(key);
  const { code, out, err } = await ctlReading(stack, file, 'restore');
  expect([code, out]).toEqual([4, '']);
  expect(err).toMatch(/^This backup was made at \S+, more than 35 days ago: .*ctl restore --any-age.*\.\n$/);
  expect(await statusOf(stack, key)).toBe(401);
  expect((await ctlReading(stack, file, 'restore', '--any-age')).out).toContain('Keys restored: 1.');
  expect(await statusOf(stack, key)).toBe(200);
  const [entry] = await activityOf(stack);
  expect(entry).toMatchObject({
    action: 'key.restore',
    changes: expect.arrayContaining([{ field: 'anyAge', to: 'true' }]),
  });
});

describe.for([
  ['the embedded limiter', async () => ({ DATA_DIR: await temporaryFolder() })],
  ['Redis', async () => onRedis],
] as const)('with %s', ([name, settings]) => {
  test('a page of a backup has its time and can be restored for 35 days', async () => {
    await redis.flushdb();
    const stack = await startStack(await settings());
    await stack.issueKey();
    const [begun, page, ended] = [Date.now(), await pageOf(stack), Date.now()];
    expect(Date.parse(page.at)).toBeGreaterThanOrEqual(begun - 1);
    expect(Date.parse(page.at)).toBeLessThanOrEqual(ended + 1);
    const statuses = async (at: string | undefined, query?: string) =>
      (await restore(stack, { ...page, at }, query)).status;
    expect([await statuses(daysAgo(34.99)), await statuses(daysAgo(-0.99))]).toEqual([200, 200]);
    expect([await statuses(daysAgo(35.01)), await statuses(daysAgo(-1.01))]).toEqual([409, 409]);
    expect([await statuses(undefined), await statuses('yesterday')]).toEqual([400, 400]);
    expect([await statuses(undefined, '?anyAge=true'), await statuses(daysAgo(400), '?anyAge=true')]).toEqual([
      200, 200,
    ]);
    expect([await statuses(daysAgo(400), '?anyAge=false'), await statuses(page.at, '?anyAge=yes')]).toEqual([409, 400]);
    // Plans alone revive nothing.
    expect((await restore(stack, { plans: {} })).status).toBe(200);
  });

  test('a recorded revocation holds, whatever the operator asks for', async () => {
    await redis.flushdb();
    const stack = await startStack(await settings());
    const key = await stack.issueKey();
    const page = await pageOf(stack);
    await stack.admin('DELETE', `/keys/${idOf(key)}`);
    expect((await restore(stack, { ...page, at: daysAgo(40) }, '?anyAge=true')).json).toMatchObject({
      restored: 0,
      revoked: 1,
    });
    expect([name, await statusOf(stack, key)]).toEqual([name, 401]);
  });
});

test.for([
  ['a text', (name: string) => redis.set(name, 'text')],
  ['a hash without any field of ours', (name: string) => redis.hset(name, 'note', 'mine')],
] as const)('a key that somebody replaced by %s, and then revoked, stays revoked', async ([, replace]) => {
  await redis.flushdb();
  const stack = await startStack(onRedis);
  const key = await stack.issueKey();
  const page = await pageOf(stack);
  const hash = `gateway:key:{${idOf(key)}}`;
  await redis.del(hash);
  await replace(hash);
  expect((await stack.admin('DELETE', `/keys/${idOf(key)}`)).status).toBe(204);
  expect((await restore(stack, page)).json).toMatchObject({ restored: 0, revoked: 1 });
  expect(await statusOf(stack, key)).toBe(401);
  expect((await stack.admin('GET', '/usage')).status).toBe(200);
});

test('an embedded gateway keeps revoked keys for 36 days, and none of their digests', async () => {
  const environment = { DATA_DIR: await temporaryFolder() };
  const first = await startStack(environment);
  const [old, recent] = [await first.issueKey(), await first.issueKey()];
  const page = await pageOf(first);
  for (const key of [old, recent]) await first.admin('DELETE', `/keys/${idOf(key)}`);
  await first.stop();
  for (const key of [old, recent]) expect(everythingIn(environment.DATA_DIR)).not.toContain(digestIn(key));
  expireRevoked(environment.DATA_DIR, idOf(old), 36 * 86_400);
  const second = await startStack(environment);
  expect((await restore(second, { ...page, at: daysAgo(40) }, '?anyAge=true')).json).toMatchObject({
    restored: 1,
    revoked: 1,
  });
  expect([await statusOf(second, old), await statusOf(second, recent)]).toEqual([200, 401]);
});
