import { setTimeout as sleep } from 'node:timers/promises';
import slotOf from 'cluster-key-slot';
import { describe, expect, test, vi } from 'vitest';
import type { ActivityAnswer, ActivityView, HistoryAnswer } from '../../gateway/operators/api/answers.ts';
import { ROUTES } from '../../gateway/operators/api/routes.ts';
import { activityOf } from '../support/activity.ts';
import { idOf } from '../support/api-key.ts';
import { logsIn } from '../support/embedded-database.ts';
import { inTurn } from '../support/in-turn.ts';
import { issueId, operatorsRedis, pagesOf, tokenFor } from '../support/operators.ts';
import { startRedisCluster } from '../support/redis-cluster.ts';
import { bothStacks, startStack } from '../support/stack.ts';

const { url, redis, fresh } = await operatorsRedis();
const HOUR_MS = 3_600_000;

type Write = readonly [route: string, method: string, path: string, body: unknown, expected: object | undefined];

/** Every write route with the audit entry that it leaves, in an order in which each write succeeds. */
function writesTo(id: string): Write[] {
  const key = `/keys/${id}`;
  return [
    ['createKey', 'POST', '/keys', { name: 'other', plan: 'pro', author: 'ada' }, { action: 'key.create' }],
    ['changeKey', 'PATCH', key, { name: 'acme', minute: 5, reason: 'asked' }, { action: 'key.change', target: id }],
    ['rotateKey', 'POST', `${key}/rotate`, { graceSeconds: 60 }, { action: 'key.rotate', target: id }],
    ['addSecret', 'POST', `${key}/secrets`, { name: 'second' }, { action: 'secret.create', target: id }],
    ['changeSecret', 'PATCH', `${key}/secrets/<secret>`, { name: 'two' }, { action: 'secret.change', target: id }],
    ['revokeSecret', 'DELETE', `${key}/secrets/<secret>`, undefined, { action: 'secret.revoke', target: id }],
    ['setBan', 'PUT', `${key}/ban`, { seconds: 60, reason: 'scrapes' }, { action: 'ban.set', target: id }],
    ['liftBan', 'DELETE', `${key}/ban?reason=sorry`, undefined, { action: 'ban.lift', target: id, reason: 'sorry' }],
    ['resetKey', 'POST', `${key}/reset?reason=fixed`, undefined, { action: 'key.reset', target: id, reason: 'fixed' }],
    ['changePlan', 'PATCH', '/plans/free', { minute: 61, author: 'ada' }, { action: 'plan.change', target: 'free' }],
    ['changePlans', 'PATCH', '/plans', { plans: { free: { minute: 62 } } }, { action: 'plan.change', target: 'free' }],
    ['rollBackPlans', 'POST', '/plans/rollback', {}, { action: 'plan.change', target: 'free' }],
    ['tryPlan', 'POST', '/plans/free/try', { minute: 5 }, undefined],
    ['createToken', 'POST', '/tokens', { name: 'ann', role: 'viewer' }, { action: 'token.create' }],
    ['revokeToken', 'DELETE', '/tokens/<token>', undefined, { action: 'token.revoke' }],
    ['revokeKey', 'DELETE', `${key}?reason=leaked&author=ada`, undefined, { action: 'key.revoke', target: id }],
    ['noteBackup', 'POST', '/backups', { keys: 3 }, { action: 'backup.make', target: '*' }],
    ['restore', 'POST', '/restore', '<backup>', { action: 'key.restore', target: 'RestoredKey1' }],
    ['reindexKeys', 'POST', '/keys/reindex', undefined, undefined],
  ];
}

describe.for(bothStacks(url))('with %s', ([, environment]) => {
  test('every write route leaves one audit entry and a matching log line', async () => {
    const stack = await fresh(environment);
    const id = await issueId(stack);
    const { keys } = (await stack.admin('GET', '/backup')).json as { keys: [object] };
    const found: Record<string, string> = {};
    const writes = writesTo(id);
    for (const [route, method, path, body, expected] of writes) {
      const before = await activityOf(stack);
      const logged = stack.log.filter(({ msg }) => msg === 'activity').length;
      const filled = path.replaceAll(/<(\w+)>/g, (_, name: string) => found[name] ?? '');
      const backup = { at: new Date().toISOString(), keys: [{ ...keys[0], id: 'RestoredKey1' }] };
      const answer = await stack.admin(method, filled, body === '<backup>' ? backup : body);
      expect([route, answer.status]).toEqual([route, expect.toSatisfy((status: number) => status < 300)]);
      const { id: made = '' } = (answer.json ?? {}) as { id?: string };
      if (route === 'addSecret') found.secret = made;
      if (route === 'createToken') found.token = made;

      const after = await activityOf(stack);
      const added = after.slice(0, after.length - before.length);
      const lines = stack.log.filter(({ msg }) => msg === 'activity').slice(logged);
      expect([route, added]).toEqual([route, expected === undefined ? [] : [expect.objectContaining(expected)]]);
      const { id: _id, at: _at, targetName: _name, ...entry } = added[0] ?? ({} as ActivityView);
      expect([route, lines.map(({ activity }) => activity)]).toEqual([route, expected === undefined ? [] : [entry]]);
      if (expected !== undefined) expect(added[0]?.requestId).toBe(answer.headers['x-request-id']);
    }
    const changing = ROUTES.filter(({ method }) => method !== 'GET').map(({ name }) => name);
    expect(writes.map(([route]) => route).sort()).toEqual(changing.sort());
  });

  test('an audit entry has the actor, action, time, reason, source and previous values', async () => {
    const stack = await fresh(environment);
    const id = await issueId(stack, { name: 'acme' });
    await stack.admin('PATCH', `/keys/${id}`, { plan: 'pro', minute: 7, author: 'ada', reason: 'paid' });
    const [entry] = await activityOf(stack);
    expect(entry).toEqual({
      targetName: 'acme',
      id: expect.stringMatching(/^\d+-\d+$/),
      at: expect.any(String),
      actor: 'ada',
      action: 'key.change',
      target: id,
      reason: 'paid',
      via: 'api',
      changes: [
        { field: 'plan', from: 'free', to: 'pro' },
        { field: 'minute', to: '7' },
      ],
      requestId: expect.any(String),
    });
    expect(Math.abs(Date.parse(entry?.at ?? '') - Date.now())).toBeLessThan(60_000);
  });

  test('a change that is refused or has no effect leaves no audit entry', async () => {
    const stack = await fresh(environment);
    const id = await issueId(stack, { name: 'acme' });
    await stack.admin('PATCH', `/keys/${id}`, { name: 'acme' });
    await stack.admin('PATCH', '/plans/free', { minute: 60 });
    await stack.admin('PATCH', `/keys/${id}`, { minute: 0 });
    await stack.admin('DELETE', '/keys/000000000000');
    await stack.admin('DELETE', '/tokens/00000000');
    expect((await stack.admin('DELETE', `/keys/${id}/ban`)).status).toBe(200);
    const at = new Date().toISOString();
    await stack.admin('POST', '/restore', { at, keys: [{ id: 'RestoredKey1', fields: {} }] });
    expect((await activityOf(stack)).map(({ action }) => action)).toEqual(['key.create']);
  });

  test('the entry of a revocation continues from the changes before it, also if one comes in between', async () => {
    const stack = await fresh(environment);
    for (let round = 0; round < 8; round++) {
      const id = await issueId(stack, { name: 'before' });
      const [changed, revoked] = await Promise.all([
        stack.admin('PATCH', `/keys/${id}`, { name: 'after' }),
        stack.admin('DELETE', `/keys/${id}`),
      ]);
      expect(revoked.status).toBe(204);
      const { activity } = (await stack.admin('GET', `/activity?target=${id}`)).json as {
        activity: { action: string; changes: { field: string; from: string }[] }[];
      };
      const last = activity.find(({ action }) => action === 'key.revoke');
      const name = last?.changes.find(({ field }) => field === 'name')?.from;
      expect(name).toBe(changed.status === 200 ? 'after' : 'before');
    }
  });

  test('a write repeated with the same request id is recorded once, unless another change was made in between', async () => {
    const stack = await fresh(environment);
    const id = await issueId(stack);
    const call = (method: string, path: string, requestId: string, body: object = {}) =>
      stack.admin(method, `/keys/${id}/${path}`, body, { headers: { 'x-request-id': requestId } });
    const ban = (seconds: number, requestId: string) => call('PUT', 'ban', requestId, { seconds });
    const lift = (requestId: string) => call('DELETE', 'ban', requestId);
    const reset = (requestId: string) => call('POST', 'reset', requestId);
    const expected = async () => (await activityOf(stack)).map(({ action }) => action);
    await ban(60, 'one');
    await ban(60, 'one');
    expect(await expected()).toEqual(['ban.set', 'key.create']);
    await ban(90, 'one');
    await ban(90, 'two');
    expect(await expected()).toEqual(['ban.set', 'ban.set', 'ban.set', 'key.create']);
    await lift('one');
    await lift('one');
    await ban(90, 'two');
    expect((await expected()).slice(0, 2)).toEqual(['ban.set', 'ban.lift']);
    await reset('one');
    await reset('one');
    await reset('two');
    expect((await activityOf(stack)).slice(0, 3)).toMatchObject([
      { action: 'key.reset', changes: [] },
      { action: 'key.reset', changes: [{ field: 'bannedUntil' }] },
      { action: 'ban.set' },
    ]);
  });

  test('the audit log is paged from newest to oldest without a gap and can be searched', async () => {
    const stack = await fresh(environment);
    const ids = await Promise.all(Array.from({ length: 7 }, () => issueId(stack)));
    const pages = await pagesOf<ActivityAnswer>(stack, '/activity?limit=3');
    expect(pages.map(({ activity }) => activity.length)).toEqual([3, 3, 1]);
    const found = pages.flatMap(({ activity }) => activity.map(({ target }) => target));
    expect(found.toSorted()).toEqual(ids.toSorted());
    expect(found).toEqual((await activityOf(stack)).map(({ target }) => target));
    expect(await activityOf(stack, `?target=${ids[2]}`)).toMatchObject([{ target: ids[2] }]);
    expect(await activityOf(stack, '?action=ban.set')).toEqual([]);
    expect(await activityOf(stack, '?actor=unknown&limit=2')).toHaveLength(2);
  });

  test('audit entries can be searched by time, and name their key even after it is revoked', async () => {
    const stack = await fresh(environment);
    const ids: string[] = [];
    for (const name of ['first', 'second', 'third']) ids.push(await issueId(stack, { name }));
    await stack.admin('DELETE', `/keys/${ids[1]}`);
    const names = async (query = '') => (await activityOf(stack, query)).map(({ targetName }) => targetName);
    expect(await names()).toEqual(['second', 'third', 'second', 'first']);
    const [, third, second] = (await activityOf(stack)).map(({ at }) => encodeURIComponent(at));
    expect(await names(`?from=${third}`)).toEqual(['second', 'third']);
    expect(await names(`?to=${third}`)).toEqual(['second', 'first']);
    expect(await names(`?from=${second}&to=${third}`)).toEqual(['second']);
    expect(await names('?to=1970-01-01T00:00:00Z')).toEqual([]);
    expect(await names('?to=0001-01-01T00:00:00Z')).toEqual([]);
    expect(await names('?after=0-0')).toEqual([]);
    expect(await names('?after=0000-00&from=1970-01-01T00:00:00Z')).toEqual([]);
    expect(await names(`?from=${third}&target=${ids[0]}`)).toEqual([]);
  });

  test('after the clock was set back, changes have the times at which they were made, and are found by them', async () => {
    const stack = await fresh(environment);
    const ahead = Date.now() + HOUR_MS;
    // Only Redis has a clock of its own. All that is left of its wrong time is an entry with an id in the future.
    const clock = vi.spyOn(Date, 'now').mockReturnValue(ahead);
    await stack.admin('PATCH', '/plans/free', { minute: 61 });
    clock.mockRestore();
    for (const stream of ['gateway:activity', 'gateway:plans:history'])
      if ('REDIS_URL' in environment) await redis.xadd(stream, `${ahead}-0`, 'actor', 'me');
    const begun = Date.now();
    const ids: string[] = [];
    while (ids.length < 3) ids.push(await issueId(stack));
    await stack.admin('PATCH', '/plans/free', { minute: 62 });
    const at = (ms: number) => encodeURIComponent(new Date(ms).toISOString());
    const [from, to] = [at(begun - 1_000), at(Date.now() + 1_000)];

    const made = await activityOf(stack, `?from=${from}&to=${to}`);
    const targets = ['free', ...ids.toReversed()];
    expect(made.map(({ target }) => target).slice(0, targets.length)).toEqual(targets);
    const { history } = (await stack.admin('GET', '/plans/history')).json as HistoryAnswer;
    for (const one of [...made.slice(0, targets.length), history[0]])
      expect(Math.abs(Date.parse(one?.at ?? '') - begun)).toBeLessThan(60_000);
    const pages = await pagesOf<ActivityAnswer>(stack, `/activity?limit=2&to=${to}`);
    expect(pages.flatMap(({ activity }) => activity)).toEqual(await activityOf(stack, `?to=${to}`));
    expect(await activityOf(stack, `?from=${to}`)).toHaveLength('REDIS_URL' in environment ? 0 : 1);
  });

  test('audit entries are found by plan, key id or key name, regardless of case and after a revocation', async () => {
    const stack = await fresh(environment);
    const id = await issueId(stack, { name: 'Demo Pro' });
    await stack.admin('POST', `/keys/${id}/secrets`, { name: 'second' });
    await stack.admin('PUT', `/keys/${id}/ban`, { seconds: 60 });
    await stack.issueKey({ name: 'demo' });
    await stack.admin('PATCH', '/plans/free', { minute: 61 });
    await stack.admin('POST', '/tokens', { name: 'Ann', role: 'viewer' });
    const found = async (target: string) => {
      const entries = await activityOf(stack, `?target=${encodeURIComponent(target)}`);
      return entries.map(({ action, targetName }) => [action, targetName]);
    };
    const ofKey = ['ban.set', 'secret.create', 'key.create'].map((action) => [action, 'Demo Pro']);
    expect(await found('demo pro')).toEqual(ofKey);
    expect(await found(id.toLowerCase())).toEqual(ofKey);
    expect(await found('Free')).toEqual([['plan.change', undefined]]);
    expect(await found('ann')).toEqual([['token.create', 'Ann']]);
    expect(await found('pro')).toEqual([]);
    await stack.admin('DELETE', `/keys/${id}`);
    expect(await found('demo pro')).toEqual([['key.revoke', 'Demo Pro'], ...ofKey]);
    expect(await activityOf(stack, '?action=ban.set')).toMatchObject([{ target: id, targetName: 'Demo Pro' }]);
  });

  test("keys and tokens in a name or a reason appear neither in the audit log nor in the gateway's log", async () => {
    const stack = await fresh(environment);
    const key = await stack.issueKey();
    const { token } = await tokenFor(stack, 'viewer');
    await stack.admin('PATCH', `/keys/${idOf(key)}`, { name: key, reason: `was ${token}`, author: key });
    await stack.admin('PUT', `/keys/${idOf(key)}/ban`, { seconds: 5, reason: `it is ${key}` });
    const rotated = await stack.admin('POST', `/keys/${idOf(key)}/rotate`, { graceSeconds: 0 });
    const secrets = [key, token, (rotated.json as { key: string }).key];
    const read = await activityOf(stack);
    await stack.stop();
    const stored =
      'REDIS_URL' in environment ? await redis.xrange('gateway:activity', '-', '+') : logsIn(stack.directory);
    const seen = JSON.stringify([read, stack.log, stored]);
    expect(seen).toContain(`as_${idOf(key)}_…`);
    for (const secret of secrets) expect(seen).not.toContain(secret);
  });

  test('the audit log keeps as many entries as ACTIVITY_LENGTH', async () => {
    const stack = await fresh({ ...environment, ACTIVITY_LENGTH: '100' });
    const ids = await Promise.all(Array.from({ length: 110 }, () => issueId(stack)));
    const before = await activityOf(stack, '?limit=1000');
    const id = await issueId(stack);
    const kept = await activityOf(stack, '?limit=1000');
    expect([ids.length, before.length, kept.length, kept[0]?.target]).toEqual([110, 100, 100, id]);
    expect(kept.slice(1)).toEqual(before.slice(0, -1));
  });
});

test('a key and its audit entry are stored in the same step', async () => {
  const stack = await fresh();
  await stack.issueKey();
  // Only a few keys are issued at a time, because simultaneous changes are all stored in one step.
  const issuing = inTurn(Array.from({ length: 100 }), 4, () => stack.issueKey());
  const seen = new Set<number>();
  const differences = new Set<number>();
  while (!seen.has(101)) {
    const [[, keys], [, entries]] = (await redis.multi().keys('gateway:key:*').xlen('gateway:activity').exec()) as [
      [null, string[]],
      [null, number],
    ];
    seen.add(entries);
    differences.add(keys.length - entries);
  }
  await issuing;
  expect([seen.size > 2, [...differences]]).toEqual([true, [0]]);
});

test('if the audit log has the wrong type in Redis, a change is still made, and the gateway logs its entry', async () => {
  const stack = await fresh();
  const id = await issueId(stack);
  await redis.del('gateway:activity');
  await redis.set('gateway:activity', 'spoilt');
  expect((await stack.admin('PATCH', `/keys/${id}`, { disabled: true, author: 'ada' })).status).toBe(200);
  expect((await stack.admin('GET', `/keys/${id}`)).json).toMatchObject({ state: 'disabled' });
  expect(stack.log.filter(({ msg }) => msg === 'a change is in force, but the audit log lacks it')).toMatchObject([
    { level: 50, reason: expect.stringContaining('WRONGTYPE'), activity: { actor: 'ada', target: id } },
  ]);
  expect((await stack.admin('GET', '/activity')).status).toBe(503);
});

test('audit entries shorten plan values and contain no secrets', async () => {
  const stack = await fresh();
  const key = await stack.issueKey();
  await sleep(600);
  await redis.hset('gateway:plans', 'free.minute', `${key} ${'9'.repeat(100_000)}`);
  const newest = async () => (await activityOf(stack))[0]?.changes[0]?.to ?? '';
  await expect.poll(newest).toMatch(/^as_\w{12}_… 9+$/);
  expect((await newest()).length).toBeLessThan(100);
});

test('plan fields written by a restore are recorded with its actor, not as a manual edit', async () => {
  const stack = await fresh();
  await redis.hdel('gateway:plans', 'pro.day');
  const page = { plans: { 'pro.day': '12345' } };
  expect((await stack.admin('POST', '/restore?author=ada&reason=lost', page)).status).toBe(200);
  // During this time, the gateway reads the table several times.
  await sleep(600);
  const restored = (await activityOf(stack)).filter(({ changes }) => changes.some(({ to }) => to === '12345'));
  expect(restored).toMatchObject([{ actor: 'ada', reason: 'lost', action: 'plan.change', target: 'pro', via: 'api' }]);
});

test('audit entries that were damaged by hand are left out', async () => {
  const stack = await fresh();
  await redis.xadd('gateway:activity', '*', 'actor', 'me');
  await redis.xadd('gateway:activity', '*', 'actor', 'me', 'target', 'x', 'changes', '{');
  await stack.issueKey();
  expect(await activityOf(stack)).toMatchObject([{ action: 'key.create' }]);
});

test('on a cluster, every change is in the audit log exactly once, and tokens work', async () => {
  const { urls, ownerOf } = await startRedisCluster();
  const stack = await startStack({ REDIS_MODE: 'cluster', REDIS_URL: urls, REDIS_TIMEOUT_MS: '2000' });
  const ids = await Promise.all(Array.from({ length: 8 }, () => issueId(stack)));
  for (const id of ids) {
    await stack.admin('PATCH', `/keys/${id}`, { name: 'renamed' });
    const again = { headers: { 'x-request-id': 'one' } };
    for (let sent = 0; sent < 2; sent++) await stack.admin('PUT', `/keys/${id}/ban`, { seconds: 60 }, again);
    await stack.admin('DELETE', `/keys/${id}`);
  }
  await stack.admin('PATCH', '/plans/free', { minute: 61, author: 'ada' });
  const { token } = await tokenFor(stack, 'viewer');
  const { activity } = (await stack.admin('GET', '/activity', undefined, { key: token })).json as ActivityAnswer;
  const actionsOn = (target: string) => activity.filter((one) => one.target === target).map(({ action }) => action);
  for (const id of ids) expect(actionsOn(id)).toEqual(['key.revoke', 'ban.set', 'key.change', 'key.create']);
  expect([actionsOn('free'), activity[0]?.action, activity.length]).toEqual([['plan.change'], 'token.create', 34]);
  const { history } = (await stack.admin('GET', '/plans/history')).json as { history: object[] };
  expect(history).toMatchObject([{ author: 'ada' }]);

  const { redis } = await ownerOf(slotOf('gateway:activity'));
  await redis.del('gateway:activity');
  await redis.set('gateway:activity', 'spoilt');
  const before = stack.log.length;
  await stack.issueKey();
  expect(stack.log.slice(before).filter(({ level }) => level === 50)).toMatchObject([
    { msg: 'a change is in force, but the audit log lacks it', activity: { action: 'key.create' } },
  ]);
});
