import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import type { KeysAnswer, KeyView } from '../../gateway/operators/api/answers.ts';
import { activityOf } from '../support/activity.ts';
import { idOf } from '../support/api-key.ts';
import { get, issueId, onRedis, pagesOf, statusOf, viewOf } from '../support/operators.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { bothStacks, type Stack, startStack } from '../support/stack.ts';

const { url: redisUrl, redis } = await emptyDatabase();
const withRedis = onRedis(redisUrl);

const show = (stack: Stack, key: string) => viewOf(stack, idOf(key));

const bucketsOf = async (stack: Stack, key: string) =>
  (await show(stack, key)).buckets as NonNullable<KeyView['buckets']>;

const change = (stack: Stack, key: string, changes: unknown) => stack.admin('PATCH', `/keys/${idOf(key)}`, changes);

describe.for(bothStacks(redisUrl))('with %s', async ([, environment]) => {
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

  test('a change of plan, limits, name or secret gives no tokens back', async () => {
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

  test('a key that is disabled or expired is refused at once, and admitted once it is enabled or its expiry is moved', async () => {
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

  test('a rotated key has both secrets on the same buckets during the grace period, then only the new one, which no other answer shows', async () => {
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

  test('no change of an unknown or a revoked key is made', async () => {
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

  test('concurrent changes of one key are all made', async () => {
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

describe.for(bothStacks(redisUrl))('many keys with %s', async ([, environment]) => {
  test('are listed in pages without omission or repetition and found by a part of their name', async () => {
    await redis.flushdb();
    const stack = await startStack(environment);
    const names = Array.from({ length: 25 }, (_, at) => (at % 10 === 0 ? `Acme ${at}` : `other ${at}`));
    for (const name of names) await stack.issueKey({ name });
    const pages = await pagesOf<KeysAnswer>(stack, '/keys?limit=10', 'offset');
    expect(pages.map(({ total }) => total)).toEqual([25, 25, 25]);
    expect(pages.flatMap(({ keys }) => keys.map(({ name }) => name)).sort()).toEqual(names.sort());
    const found = await get<KeysAnswer>(stack, '/keys?name=aCME');
    expect(found.keys.map(({ name }) => name)).toEqual(['Acme 20', 'Acme 10', 'Acme 0']);
    const part = await get<KeysAnswer>(stack, '/keys?name=acme&limit=2');
    expect(part.keys).toHaveLength(2);
    const rest = await get<KeysAnswer>(stack, `/keys?name=acme&limit=2&offset=${part.next}`);
    expect([rest.keys.map(({ name }) => name), rest.next]).toEqual([['Acme 0'], undefined]);
    for (const query of ['limit=0', 'limit=101', 'offset=-1', 'offset=1&offset=2'])
      expect((await stack.admin('GET', `/keys?${query}`)).json).toMatchObject({ code: 'invalid_parameter' });
  });
});

test('a change concurrent with a revocation leaves nothing behind', async () => {
  await redis.flushdb();
  const stack = await startStack(withRedis);
  const keys = await Promise.all(Array.from({ length: 30 }, () => stack.issueKey()));
  await Promise.all(
    keys.flatMap((key) => [change(stack, key, { name: 'late' }), stack.admin('DELETE', `/keys/${idOf(key)}`)]),
  );
  expect(await redis.keys('gateway:key:*')).toEqual([]);
});
