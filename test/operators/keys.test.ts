import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test, vi } from 'vitest';
import type { KeyView } from '../../gateway/operators/api/answers.ts';
import { activityOf } from '../support/activity.ts';
import { idOf } from '../support/api-key.ts';
import { cleanUp } from '../support/clean-up.ts';
import { ctl } from '../support/ctl.ts';
import { ask, get, hashOf, issueId, operatorsRedis, statusOf, viewOf } from '../support/operators.ts';
import { bothStacks, type Stack, startStack } from '../support/stack.ts';

/** How operators see and change keys. */

const { url, redis, fresh } = await operatorsRedis();

const show = (stack: Stack, key: string) => viewOf(stack, idOf(key));

const bucketsOf = async (stack: Stack, key: string) =>
  (await show(stack, key)).buckets as NonNullable<KeyView['buckets']>;

const change = (stack: Stack, key: string, changes: unknown) => stack.admin('PATCH', `/keys/${idOf(key)}`, changes);

/** Filtered and sorted lists of keys, the busiest keys, and searches for a key. */

describe.for(bothStacks(url))('lists with %s', async ([, environment]) => {
  const stack = await startStack(environment);
  const quiet = await keyWith(stack, 'quiet', 1);
  await keyWith(stack, 'Loud', 15, { plan: 'pro' });
  await keyWith(stack, 'refused', 5, { day: 2 });
  const banned = await keyWith(stack, 'banned', 3);
  await stack.admin('PUT', `/keys/${idOf(banned)}/ban`, { seconds: 600, reason: 'a test' });
  const disabled = await keyWith(stack, 'acme one', 0);
  await stack.admin('PATCH', `/keys/${idOf(disabled)}`, { disabled: true });
  await keyWith(stack, 'acme two', 0, { plan: 'business' });

  test.for([
    ['plan=pro', ['Loud']],
    ['plan=free&state=active', ['refused', 'quiet']],
    ['state=banned', ['banned']],
    ['state=disabled', ['acme one']],
    ['state=expired', []],
    ['unusedSeconds=100000', []],
    ['sort=newest&limit=2', ['acme two', 'acme one']],
    ['sort=oldest', ['quiet', 'Loud', 'refused', 'banned', 'acme one', 'acme two']],
    ['sort=name', ['acme one', 'acme two', 'banned', 'Loud', 'quiet', 'refused']],
    ['sort=used&limit=3', ['refused', 'Loud', 'banned']],
    ['sort=idle', ['acme two', 'acme one', 'quiet', 'Loud', 'refused', 'banned']],
    ['sort=name&name=acme&plan=free', ['acme one']],
    ['near=100', ['refused']],
    ['near=76', ['refused']],
    // Loud has sent 15 of its 20 daily requests.
    ['near=75', ['refused', 'Loud']],
    ['near=75&name=OU', ['Loud']],
    ['near=75&limit=1&offset=4', ['Loud']],
  ] as const)('GET /keys?%s', async ([query, names]) => {
    expect(await namesOf(stack, `/keys?${query}`)).toEqual(names);
  });

  // A search returns up to a hundred keys at once.
  test.for([
    ['/keys?limit=2&tag=walk:here', 'stroller', 12],
    ['/keys/find?text=walker', 'walker', 120],
  ] as const)('pages of %s neither skip nor repeat a key if others come and go', async ([path, who, count]) => {
    const tags = { walk: 'here' };
    const issue = async (name: string) => await issueId(stack, { name, tags });
    const names = Array.from({ length: count }, (_, at) => `${who} ${at}`);
    const ids: string[] = [];
    for (const name of names) ids.push(await issue(name));
    const seen: string[] = [];
    let [next, page]: [string | number | undefined, number] = [0, 0];
    while (next !== undefined) {
      const part = (await stack.admin('GET', `${path}&offset=${next}`)).json as {
        keys: { name: string }[];
        next?: string;
      };
      seen.push(...part.keys.map(({ name }) => name));
      ({ next } = part);
      // Seen keys go, and new ones come before the next page.
      if (page % 2 === 0) for (const id of ids.splice(-1)) await stack.admin('DELETE', `/keys/${id}`);
      else ids.unshift(await issue(`${who}, new`));
      page += 1;
    }
    expect(page).toBeGreaterThan(1);
    expect(seen).toEqual(names.toReversed());
  });

  test('the busiest keys are listed first with exact counts, and keys without requests are left out', async () => {
    const loudest = await keysOf(stack, '/keys/top?minutes=60');
    expect(loudest.map(({ name, recent }) => [name, recent])).toEqual([
      ['Loud', { admitted: 15, refused: 0 }],
      ['refused', { admitted: 2, refused: 3 }],
      ['banned', { admitted: 3, refused: 0 }],
      ['quiet', { admitted: 1, refused: 0 }],
    ]);
    expect(await namesOf(stack, '/keys/top?minutes=60&by=refused')).toEqual(['refused']);
    expect(await namesOf(stack, '/keys/top?minutes=60&limit=1&plan=free')).toEqual(['refused']);
  });

  test('ctl lists the keys near their limit, by default from 80 %', async () => {
    const near = await ctl(stack, 'keys', 'list', '--near');
    expect(near).toMatchObject({ code: 0, err: '' });
    expect(near.out).toMatch(/ refused +free +active +2 +2 +100 % /);
    expect(near.out).not.toContain('Loud');
    const nearer = await ctl(stack, '--json', 'keys', 'list', '--near', '75');
    expect(JSON.parse(nearer.out)).toMatchObject({ keys: [{ name: 'refused' }, { name: 'Loud' }] });
  });

  test('a key is found by its id, by a part of its name, and by a request', async () => {
    const requestId = randomUUID();
    await ask(stack, quiet, requestId);
    const found = async (text: string) =>
      (await keysOf(stack, `/keys/find?text=${encodeURIComponent(text)}`)).map((key) => [key.name, key.foundBy]);
    expect(await found(idOf(quiet))).toEqual([['quiet', 'id']]);
    expect(await found(` ${idOf(quiet)} `)).toEqual([['quiet', 'id']]);
    expect(await found(requestId)).toEqual([['quiet', 'request']]);
    expect(await found('ACME')).toEqual([
      ['acme two', 'name'],
      ['acme one', 'name'],
    ]);
    expect(await found(idOf(quiet).slice(0, 8))).toEqual([['quiet', 'name']]);
    expect(await found('nobody')).toEqual([]);
  });

  test('a search for a whole key is refused, because keys do not belong in a URL', async () => {
    const { status, text } = await stack.admin('GET', `/keys/find?text=${quiet}`);
    expect([status, text]).toEqual([400, expect.stringContaining('text must not contain a whole key')]);
    expect(text).not.toContain(quiet);
  });

  test('the view of a key shows when it was last used', async () => {
    const [used] = await keysOf(stack, '/keys?name=quiet');
    const [unused] = await keysOf(stack, '/keys?name=acme%20two');
    expect(used).toMatchObject({ lastUsedAt: expect.stringMatching(/^\d{4}-.*Z$/) });
    expect(unused).not.toHaveProperty('lastUsedAt');
  });
});

test('keys without a request for a given time are listed, including those never used', async () => {
  const stack = await fresh();
  const [idle, recent, never] = [
    await keyWith(stack, 'idle', 1),
    await keyWith(stack, 'recent', 1),
    await keyWith(stack, 'never', 0),
  ];
  const daysAgo = (days: number) => (Date.now() / 1_000 - days * 86_400).toFixed(6);
  await redis.hset(hashOf(idOf(idle)), 'left', `${daysAgo(31)} 1/60 1/1000`);
  await redis.hset(hashOf(idOf(recent)), 'left', `${daysAgo(29)} 1/60 1/1000`);
  await redis.hset(hashOf(idOf(never)), 'created_at', daysAgo(40));
  expect(await namesOf(stack, `/keys?unusedSeconds=${30 * 86_400}&sort=idle`)).toEqual(['never', 'idle']);
});

test('one call checks a limited number of keys and returns where to continue; ctl reads to the end', async () => {
  const stack = await fresh();
  const old = await keyWith(stack, 'old and loud', 2);
  const places = Array.from({ length: 5_200 }, (_, at) => [
    String(Date.now() / 1_000 + 10 + at),
    `0${String(at).padStart(11, 'x')}`,
  ]);
  await redis.zadd('gateway:keys', ...places.flat());
  for (const path of ['/keys?sort=used', '/keys/top?minutes=60', '/keys/find?text=loud']) {
    const { json } = await stack.admin('GET', path);
    expect(json).toMatchObject({ keys: [], next: expect.any(String) });
    expect(await namesOf(stack, `${path}&offset=${(json as { next: string }).next}`)).toEqual(['old and loud']);
  }
  expect(await namesOf(stack, '/keys/find?text=loud&offset=5000')).toEqual(['old and loud']);
  // Keys are read newest first, so a number of keys to skip would skip arbitrary ones in another order.
  for (const path of ['/keys?sort=used', '/keys?sort=name', '/keys/top?minutes=60']) {
    const { status, json } = await stack.admin('GET', `${path}&offset=1`);
    expect([status, json]).toEqual([
      400,
      expect.objectContaining({ message: expect.stringContaining('offset must be 0 or') }),
    ]);
  }
  await stack.admin('PUT', `/keys/${idOf(old)}/ban`, { seconds: 600 });
  const bans = await get(stack, '/bans');
  expect(bans).toEqual({ bans: [], next: expect.any(String) });
  for (const place of [5_000, (bans as { next: string }).next])
    expect(await get(stack, `/bans?offset=${place}`)).toEqual({ bans: [expect.objectContaining({ id: idOf(old) })] });
  await stack.admin('DELETE', `/keys/${idOf(old)}/ban`);
  const young = await stack.issueKey({ name: 'young', plan: 'pro' });
  await redis.zadd('gateway:keys', Date.now() / 1_000 + 6_000, idOf(young));
  await ask(stack, young);
  const [top, used, idle] = await Promise.all([
    ctl(stack, 'keys', 'top', '--minutes', '60'),
    ctl(stack, 'keys', 'list', '--sort', 'used', '--near', '20', '--json'),
    ctl(stack, 'keys', 'list', '--unused', '1h'),
  ]);
  expect(top.out).toMatch(/^id .*\n\w{12} {2}old and loud {2}free +active +2 +0 .*\n\w{12} {2}young .* 1 +0 .*\n$/);
  expect(JSON.parse(used.out)).toMatchObject({ total: 5_202, keys: [] });
  expect(idle.out).toContain('0 of 5202');
});

test('a key without usable limits never counts as near its limit', async () => {
  const stack = await fresh();
  const id = idOf(await stack.issueKey({ plan: 'enterprise', minute: 1, day: 1 }));
  await redis.hdel(hashOf(id), 'day');
  expect(await get(stack, '/keys?near=1')).toMatchObject({ total: 1, keys: [] });
});

/** Changes to a key. */

describe.for(bothStacks(url))('with %s', async ([, environment]) => {
  const stack = await startStack(environment);

  test('a key is shown with the current state of both buckets without taking a token', async () => {
    const key = await stack.issueKey({ plan: 'enterprise', minute: 10, day: 100 });
    expect(await bucketsOf(stack, key)).toEqual({
      minute: { limit: 10, remaining: 10, used: 0 },
      day: { limit: 100, remaining: 100, used: 0 },
    });
    for (let sent = 0; sent < 4; sent++) await statusOf(stack, key);
    for (let looked = 0; looked < 5; looked++) await show(stack, key);
    const buckets = await bucketsOf(stack, key);
    expect(buckets.day).toMatchObject({ limit: 100, remaining: 96, used: 4 });
    expect(buckets.minute.used).toBeGreaterThanOrEqual(1);
    const waitMs = Date.parse(buckets.day.fullAt ?? '') - Date.now();
    expect(waitMs).toBeGreaterThan(((4 * 86_400) / 100) * 1_000 - 60_000);
    expect(waitMs).toBeLessThanOrEqual(((4 * 86_400) / 100) * 1_000);
  });

  test('a change of plan, limits, name or secret refunds no tokens', async () => {
    const key = await stack.issueKey({ plan: 'enterprise', minute: 10, day: 100 });
    for (let sent = 0; sent < 4; sent++) await statusOf(stack, key);
    for (const changes of [
      { minute: 20 },
      { day: 200 },
      { name: 'new' },
      { disabled: true },
      { disabled: false },
      { expiresAt: '2100-01-01T00:00:00Z' },
    ]) {
      expect((await change(stack, key, changes)).status).toBe(200);
      expect((await bucketsOf(stack, key)).day.remaining).toBe(96);
    }
    await stack.admin('POST', `/keys/${idOf(key)}/rotate`, { graceSeconds: 60 });
    expect((await bucketsOf(stack, key)).day.remaining).toBe(96);
    await change(stack, key, { plan: 'pro', minute: null, day: null });
    expect(await bucketsOf(stack, key)).toMatchObject({ minute: { limit: 300 }, day: { limit: 10_000 } });
    expect((await bucketsOf(stack, key)).day.remaining).toBeLessThan(120);
    expect(await show(stack, key)).toMatchObject({ name: 'new', plan: 'pro' });
  });

  test('a disabled or expired key is refused at once, and admitted again once enabled or extended', async () => {
    const key = await stack.issueKey();
    expect((await change(stack, key, { disabled: true })).json).toMatchObject({ state: 'disabled' });
    expect(await statusOf(stack, key)).toBe(401);
    expect((await change(stack, key, { disabled: false })).json).toMatchObject({ state: 'active' });
    expect(await statusOf(stack, key)).toBe(200);
    expect((await change(stack, key, { expiresAt: '2020-01-01T00:00:00Z' })).json).toMatchObject({ state: 'expired' });
    expect(await statusOf(stack, key)).toBe(401);
    expect((await change(stack, key, { expiresAt: null })).json).toMatchObject({ state: 'active' });
    expect(await statusOf(stack, key)).toBe(200);
  });

  test('secrets of a rotated key share its buckets for the grace period, then only the new one works', async () => {
    const old = await stack.issueKey({ plan: 'enterprise', minute: 10, day: 100 });
    const askedAt = performance.now();
    const rotated = await stack.admin('POST', `/keys/${idOf(old)}/rotate`, { graceSeconds: 2 });
    const key = (rotated.json as { key: string }).key;
    expect([rotated.status, rotated.headers['cache-control']]).toEqual([201, 'no-store']);
    expect(rotated.json).toMatchObject({
      id: idOf(old),
      secrets: [{ expiresAt: expect.any(String) }, { name: 'first' }],
    });
    expect(idOf(key)).toBe(idOf(old));
    expect(await statusOf(stack, key)).toBe(200);
    const inGrace = await statusOf(stack, old);
    if (performance.now() - askedAt < 1_900) {
      expect(inGrace).toBe(200);
      expect((await bucketsOf(stack, key)).day.remaining).toBe(98);
    }
    await sleep(2_050);
    expect([await statusOf(stack, old), await statusOf(stack, key)]).toEqual([401, 200]);
    expect(await show(stack, key)).toMatchObject({ secrets: [{ name: 'first' }] });
    const { text } = await stack.admin('GET', `/keys/${idOf(key)}`);
    expect(text + JSON.stringify(stack.log)).not.toContain(key.slice(16, 48));
  });

  test('an enterprise key cannot lose its own limits', async () => {
    const key = await stack.issueKey({ plan: 'enterprise', minute: 10, day: 100 });
    const free = await stack.issueKey({ plan: 'free', minute: 5 });
    for (const [of, changes] of [
      [key, { day: null }],
      [free, { plan: 'enterprise' }],
      [free, { plan: 'enterprise', minute: 5 }],
    ] as const)
      expect([(await change(stack, of, changes)).status, changes]).toEqual([400, changes]);
    expect((await change(stack, free, { plan: 'enterprise', day: 50 })).json).toMatchObject({ minute: 5, day: 50 });
  });

  test('an unknown or revoked key cannot be changed', async () => {
    const revoked = await issueId(stack);
    await stack.admin('DELETE', `/keys/${revoked}`);
    const before = await activityOf(stack);
    for (const id of ['000000000000', revoked, 'no-id'])
      for (const [method, path, body] of [
        ['PATCH', '', { name: 'a' }],
        ['POST', '/rotate', { graceSeconds: 0 }],
        ['POST', '/reset', {}],
        ['PUT', '/ban', { seconds: 1 }],
        ['DELETE', '/ban', undefined],
        ['GET', '', undefined],
      ] as const) {
        const { status, json } = await stack.admin(method, `/keys/${id}${path}`, body);
        const answer = { code: 'not_found', message: 'There is no such key.', status: 404 };
        expect([id, method, path, status, json]).toEqual([id, method, path, 404, answer]);
      }
    expect(await activityOf(stack)).toEqual(before);
  });

  test('all concurrent changes to one key take effect', async () => {
    const key = await stack.issueKey();
    const answers = await Promise.all([
      change(stack, key, { minute: 11 }),
      change(stack, key, { day: 22 }),
      change(stack, key, { name: 'both' }),
    ]);
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
    expect(await show(stack, key)).toMatchObject({ minute: 11, day: 22, name: 'both' });
  });
});

test('a change concurrent with a revocation leaves nothing behind', async () => {
  const stack = await fresh();
  const keys = await Promise.all(Array.from({ length: 30 }, () => stack.issueKey()));
  await Promise.all(
    keys.flatMap((key) => [change(stack, key, { name: 'late' }), stack.admin('DELETE', `/keys/${idOf(key)}`)]),
  );
  expect(await redis.keys('gateway:key:*')).toEqual([]);
});

async function keyWith(stack: Stack, name: string, used: number, about = {}): Promise<string> {
  const key = await stack.issueKey({ name, day: 20, ...about });
  for (let sent = 0; sent < used; sent++) await ask(stack, key);
  return key;
}

interface Shown {
  readonly id: string;
  readonly name: string;
  readonly recent: unknown;
  readonly foundBy: string;
}

const keysOf = async (stack: Stack, path: string) => (await get<{ keys: Shown[] }>(stack, path)).keys;

const namesOf = async (stack: Stack, path: string) => (await keysOf(stack, path)).map(({ name }) => name);

const HOUR_MS = 3_600_000;

test("an expiry must be in the future by the clock of Redis, whatever the gateway's clock shows", async () => {
  const stack = await fresh();
  const id = await issueId(stack);
  const [secret] = (await viewOf(stack, id)).secrets;
  const now = Date.now();
  const clock = vi.spyOn(Date, 'now');
  cleanUp(() => clock.mockRestore());
  for (const [method, path, body, status] of [
    ['POST', '/keys', { name: 'other', plan: 'free' }, 201],
    ['POST', `/keys/${id}/secrets`, { name: 'second' }, 201],
    ['PATCH', `/keys/${id}/secrets/${secret?.id}`, {}, 200],
    ['POST', `/keys/${id}/rotate`, { graceSeconds: 0, secretId: secret?.id }, 201],
  ] as const) {
    const send = (inMs: number) =>
      stack.admin(method, path, { ...body, expiresAt: new Date(now + inMs).toISOString() });
    clock.mockReturnValue(now - HOUR_MS);
    const { status: refused, json } = await send(-HOUR_MS / 2);
    const message = 'The body is not valid: expiresAt must be in the future, before 2255-01-01T00:00:00Z.';
    expect([path, refused, json]).toEqual([path, 400, expect.objectContaining({ message })]);
    clock.mockReturnValue(now + HOUR_MS);
    expect([path, (await send(HOUR_MS / 2)).status]).toEqual([path, status]);
  }
});
