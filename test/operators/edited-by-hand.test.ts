import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import type { DoctorAnswer } from '../../gateway/operators/api/answers.ts';
import { type Activity, logged } from '../../gateway/stores/audit.ts';
import { handEditsOf, watchEdits } from '../../gateway/stores/hand-edits.ts';
import { Keys } from '../../gateway/stores/keys.ts';
import { PlanCache } from '../../gateway/stores/plan-cache.ts';
import { Plans } from '../../gateway/stores/plans.ts';
import { RedisStorage } from '../../gateway/stores/redis/storage.ts';
import type { Storage } from '../../gateway/stores/storage.ts';
import { activityOf, auditOf } from '../support/activity.ts';
import { idOf } from '../support/api-key.ts';
import { cleanUp } from '../support/clean-up.ts';
import { burst, redisUnderTest, SECOND } from '../support/limiters.ts';
import { readableLog } from '../support/log.ts';
import { alarmsOf, ask, codeOf, get, hashOf, issueId, operatorsRedis, viewOf } from '../support/operators.ts';
import { connectedRedis, countCommands } from '../support/redis-database.ts';
import { type Stack, startStack } from '../support/stack.ts';

const { url: REDIS_URL, redis, withRedis, fresh } = await operatorsRedis();

const planCacheOf = (storage: Storage) => new PlanCache(new Plans(storage), readableLog().logger);

/** Detects edits until the end of the test. */
function watch(storage: Storage, times: { everyMs: number; withoutDataMs: number }, planCache = planCacheOf(storage)) {
  const stopped = new AbortController();
  cleanUp(() => stopped.abort());
  watchEdits({ storage, plans: new Plans(storage), planCache }, stopped.signal, times);
}

const inSeconds = (more: number) => String(Math.floor(Date.now() / 1_000) + more);

/** Makes two more edits and waits until each is recorded. By then, all keys have been checked. */
async function untilLookedAt(stack: Stack, { poll }: typeof expect): Promise<void> {
  for (let round = 0; round < 2; round++) {
    const id = await issueId(stack);
    await redis.hset(hashOf(id), 'name', 'edited');
    await poll(() => auditOf(stack, id)).toContain('by hand: key.change');
  }
}

const EDITS: Readonly<Record<string, (id: string) => unknown>> = {
  'a changed limit': (id) => redis.hset(hashOf(id), 'minute', '999'),
  'a removed limit': (id) => redis.hdel(hashOf(id), 'day'),
  'a changed expiry': (id) => redis.hset(hashOf(id), 'expires_at', '7258118400'),
  'an added secret': (id) => redis.hset(hashOf(id), `secret:${'a'.repeat(43)}`, 'x - read - 0 made'),
};

const ENTERPRISE = { plan: 'enterprise', minute: 10, day: 20 };

const LOST_LIMITS = [
  { given: {}, typed: { plan: 'enterprise', minute: '7' }, good: ['free', undefined, undefined], said: 'plan' },
  { given: ENTERPRISE, typed: { minute: undefined }, good: ['enterprise', 10, 20], said: 'minute' },
];

// Each concurrent test needs its own `expect`, which is bound to that test.
describe('with two gateways', async () => {
  const [stack, other] = await Promise.all([startStack(withRedis), startStack(withRedis)]);

  test.concurrent('decisions and changes by a gateway are not mistaken for manual edits', async ({ expect }) => {
    const key = await stack.issueKey({ minute: 2, day: 100 });
    const id = idOf(key);
    for (let sent = 0; sent < 4; sent++) await ask(stack, key);
    await stack.admin('PATCH', `/keys/${id}`, { name: 'other', minute: 50, expiresAt: '2200-01-01T00:00:00Z' });
    const { json } = await stack.admin('POST', `/keys/${id}/secrets`, { name: 'second' });
    await stack.admin('PATCH', `/keys/${id}/secrets/${(json as { id: string }).id}`, { name: 'renamed' });
    await stack.admin('DELETE', `/keys/${id}/secrets/${(json as { id: string }).id}`);
    await stack.admin('POST', `/keys/${id}/rotate`, { graceSeconds: 60 });
    await stack.admin('PUT', `/keys/${id}/ban`, { seconds: 60, reason: 'a test' });
    await stack.admin('DELETE', `/keys/${id}/ban`);
    await stack.admin('PUT', `/keys/${id}/ban`, { seconds: 600, reason: 'a test' });
    await stack.admin('PATCH', `/keys/${id}`, { disabled: true });
    await untilLookedAt(stack, expect);
    expect((await auditOf(stack, id)).filter((entries) => entries.startsWith('by hand'))).toEqual([]);
  });

  test.concurrent(`a manual edit is recorded once, by one of two gateways: ${Object.keys(EDITS).join(', ')}`, async ({
    expect,
  }) => {
    const edited = new Map<string, string>();
    for (const [what, edit] of Object.entries(EDITS)) {
      const id = await issueId(stack, { minute: 10, day: 10 });
      edited.set(what, id);
      await edit(id);
    }
    const entries = ['by hand: key.change', 'api: key.create'];
    for (const [what, id] of edited) await expect.poll(() => auditOf(stack, id), { message: what }).toEqual(entries);
    await untilLookedAt(stack, expect);
    const lines = [...stack.log, ...other.log].filter(({ msg }) => msg === 'activity');
    for (const [what, id] of edited) {
      expect(await auditOf(other, id), what).toEqual(entries);
      expect(
        lines.filter(({ activity }) => (activity as { target: string }).target === id),
        what,
      ).toMatchObject([
        { activity: { action: 'key.create' } },
        { activity: { action: 'key.change', via: 'by hand', actor: 'unknown' } },
      ]);
    }
  });

  test.concurrent('an edit that leaves a key without limits is logged as an error, and its last valid limits stay in force until others are set', async ({
    expect,
  }) => {
    const keys = await Promise.all(LOST_LIMITS.map(({ given }) => stack.issueKey(given)));
    const ids = keys.map(idOf);
    for (const [at, { typed }] of LOST_LIMITS.entries())
      for (const [field, value] of Object.entries(typed))
        await (value === undefined
          ? redis.hdel(hashOf(ids[at] ?? ''), field)
          : redis.hset(hashOf(ids[at] ?? ''), field, value));
    for (const [at, { good, said }] of LOST_LIMITS.entries()) {
      const id = ids[at] ?? '';
      const { status, headers } = await ask(stack, keys[at]);
      expect([status, headers['x-ratelimit-limit']]).toEqual([200, String(good[1] ?? 60)]);
      await expect.poll(() => auditOf(stack, id)).toEqual(['by hand: key.change', 'api: key.create']);
      const alarms = [stack, other].flatMap((one) => alarmsOf(one, id));
      expect(alarms).toEqual([expect.stringContaining(`${said} is not valid: `)]);
      const { state, plan, minute, day } = await viewOf(stack, id);
      expect([state, plan, minute, day]).toEqual(['active', ...good]);
      const { findings } = await get<DoctorAnswer>(stack, '/doctor');
      expect(findings.map(({ found }) => found).join()).toContain(`${id}: ${said} is `);
      expect((await stack.admin('PATCH', `/keys/${id}`, { disabled: true })).json).toMatchObject({ state: 'disabled' });
      expect((await stack.admin('PATCH', `/keys/${id}`, { disabled: false, ...ENTERPRISE })).status).toBe(200);
    }
    await untilLookedAt(stack, expect);
    for (const id of ids) {
      const made = ['api: key.change', 'api: key.change', 'by hand: key.change', 'api: key.create'];
      expect(await auditOf(stack, id)).toEqual(made);
      expect(await redis.hmget(hashOf(id), 'plan', 'minute', 'day', 'rejected')).toEqual([
        'enterprise',
        '10',
        '20',
        null,
      ]);
    }
  });

  test.concurrent('a ban set or lifted by hand is recorded, and shown as set by hand', async ({ expect }) => {
    const id = await issueId(stack);
    const end = inSeconds(600);
    await redis.hset(hashOf(id), 'banned_until', end);
    await expect.poll(() => auditOf(stack, id)).toEqual(['by hand: ban.set', 'api: key.create']);
    const [entry] = await activityOf(stack, `?target=${id}`);
    expect(entry?.changes).toEqual([{ field: 'bannedUntil', to: new Date(Number(end) * 1_000).toISOString() }]);
    expect(await viewOf(stack, id)).toMatchObject({ state: 'banned', banReason: 'Set in Redis, by hand' });
    await redis.hdel(hashOf(id), 'banned_until');
    await expect.poll(() => auditOf(stack, id)).toEqual(['by hand: ban.lift', 'by hand: ban.set', 'api: key.create']);
    await untilLookedAt(stack, expect);
    expect(await auditOf(stack, id)).toHaveLength(3);
  });

  test.concurrent.for([
    ['an operator', 'x'],
    ['an operator', '-5'],
    ['a decision', '1e99'],
  ] as const)(
    'a ban by %s stays when its end is set to %s by hand, and the value is reported',
    async ([by, typed], { expect }) => {
      const key = await stack.issueKey();
      const id = idOf(key);
      const until = `${inSeconds(600)}.000000`;
      if (by === 'an operator') await stack.admin('PUT', `/keys/${id}/ban`, { seconds: 600 });
      else await redis.hset(hashOf(id), { banned_until: until, ban_decided: until });
      const kept = (await redis.hget(hashOf(id), 'banned_until')) as string;
      await redis.hset(hashOf(id), 'banned_until', typed);
      for (const one of [stack, other]) expect(await codeOf(one, key)).toBe('key_banned');
      await expect.poll(() => auditOf(stack, id)).toContain('by hand: key.change');
      const [entry] = await activityOf(stack, `?target=${id}`);
      expect(entry?.changes).toEqual([{ field: 'banned_until', from: kept, to: typed }]);
      expect(await viewOf(stack, id)).toMatchObject({ state: 'banned' });
      const { findings } = await get<DoctorAnswer>(stack, '/doctor');
      const finding = findings.find(({ found }) => found.startsWith(`${id}: banned_until is "${typed}"`));
      expect(finding?.advice).toContain(`ctl bans lift ${id}`);
      await redis.hset(hashOf(id), 'banned_until', '0');
      await expect.poll(() => auditOf(stack, id)).toContain('by hand: ban.lift');
      await expect.poll(() => codeOf(other, key)).toBe(200);
    },
  );

  test.concurrent('a key without copies of its valid values is not mistaken for an edited one', async ({ expect }) => {
    const id = await issueId(stack);
    expect(await redis.hdel(hashOf(id), 'ok_secrets')).toBe(1);
    await untilLookedAt(stack, expect);
    await stack.admin('PATCH', `/keys/${id}`, { name: 'other' });
    expect(await auditOf(stack, id)).toEqual(['api: key.change', 'api: key.create']);
    await redis.hset(hashOf(id), 'name', 'by hand');
    await expect.poll(() => auditOf(stack, id)).toContain('by hand: key.change');
  });
});

test('a manual edit is recorded before a change that overwrites it', async () => {
  const under = await redisUnderTest(REDIS_URL);
  const { id } = await under.createKey();
  await redis.hset(hashOf(id), { minute: '7', banned_until: inSeconds(600) });
  const activity: Activity = { actor: 'ada', action: 'ban.lift', target: id, reason: '', via: 'api', changes: [] };
  await redis.del('gateway:activity');
  await new Keys(new RedisStorage(redis)).change(id, () => ({ ban: 'lift', activity }));
  const entries = (await redis.xrange('gateway:activity', '-', '+')).map(([, fields]) => fields.slice(0, 4));
  expect(entries).toEqual([
    ['actor', 'unknown', 'action', 'key.change'],
    ['actor', 'unknown', 'action', 'ban.set'],
    ['actor', 'ada', 'action', 'ban.lift'],
  ]);
});

test('a ban by a decision is not mistaken for an edit when the clock is set back, and lifting it by hand is detected', async () => {
  const under = await redisUnderTest(REDIS_URL);
  under.setPlan('free', { minute: 5, ban_after: 3, ban_grace_seconds: 0, ban_seconds: 600 });
  const credential = await under.createKey();
  const edits = async () => {
    const hash = (await new RedisStorage(redis).read(`key:${credential.id}`)) ?? {};
    return handEditsOf(credential.id, hash, under.now).entries.map(({ action }) => action);
  };
  expect(await burst(under, credential, 12)).toContain('banned');
  expect(await edits()).toEqual([]);
  // If the clock is set back, the next decision moves the ban back too.
  under.now -= 100 * SECOND;
  expect(await burst(under, credential, 1)).toBe('banned×1');
  expect(await edits()).toEqual([]);
  await redis.hset(hashOf(credential.id), 'banned_until', '0');
  expect(await edits()).toEqual(['ban.lift']);
});

test('a key deleted by hand is recorded once, and a backup restores it', async () => {
  const stack = await fresh();
  const [id, other] = [await issueId(stack), await issueId(stack)];
  const backup = (await stack.admin('GET', '/backup')).json;
  await redis.del(hashOf(id));
  await stack.admin('DELETE', `/keys/${other}`);
  const { logger, lines } = readableLog();
  const storage = logged(new RedisStorage(redis), logger);
  const keys = new Keys(storage);
  for (let gateway = 0; gateway < 2; gateway++) watch(storage, { everyMs: 20, withoutDataMs: 200 });
  await sleep(100);
  expect(await auditOf(stack, id)).toEqual(['api: key.create']);
  await expect.poll(() => auditOf(stack, id)).toEqual(['by hand: key.revoke', 'api: key.create']);
  await sleep(300);
  expect(await auditOf(stack, id)).toHaveLength(2);
  expect(await auditOf(stack, other)).toEqual(['api: key.revoke', 'api: key.create']);
  expect(lines).toMatchObject([{ msg: 'activity', activity: { action: 'key.revoke', target: id, via: 'by hand' } }]);
  expect(await keys.count()).toBe(0);
  const walked = await keys.walk({ after: undefined, limit: 10 });
  expect(walked.keys.map((key) => key.id)).toEqual([other]);
  expect((await stack.admin('POST', '/restore', backup)).json).toMatchObject({ restored: 1 });
  expect(await viewOf(stack, id)).toMatchObject({ state: 'active' });
});

test('an entry that was typed into the list of keys but is not a key is removed, not revoked', async () => {
  const stack = await fresh();
  await redis.zadd('gateway:keys', 1_795_132_800, 'ForeignKey01');
  watch(new RedisStorage(redis), { everyMs: 20, withoutDataMs: 100 });
  await expect.poll(() => auditOf(stack, 'ForeignKey01')).toEqual(['by hand: key.reindex']);
  expect(await redis.zscore('gateway:keys', 'ForeignKey01')).toBeNull();
});

test('edits are detected in the plans that the plan cache has read, and the plans are read again only after an edit', async () => {
  await redis.flushdb();
  const connection = await connectedRedis(REDIS_URL);
  const storage = new RedisStorage(connection);
  const planCache = planCacheOf(storage);
  await planCache.start();
  await planCache.stop();
  const sent = countCommands(connection);
  watch(storage, { everyMs: 5, withoutDataMs: 60_000 }, planCache);
  await sleep(500);
  expect(sent('zrange')).toBeGreaterThan(5);
  // The table and its stored copy were each read once.
  expect(sent('hgetall')).toBe(2);
  await redis.hset('gateway:plans', 'free.minute', '61');
  await planCache.refresh();
  await expect.poll(() => new Plans(storage).readKept()).toMatchObject({ 'free.minute': '61' });
});
