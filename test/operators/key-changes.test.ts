import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { send } from '../support/http.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { bothStacks, type Stack, startStack } from '../support/stack.ts';

const { url: redisUrl, redis } = await emptyDatabase();
const withRedis = { REDIS_URL: redisUrl, REDIS_TIMEOUT_MS: '5000' };

async function statusOf(stack: Stack, key: string): Promise<number> {
  return (await send(`${stack.gateway}/v1/pets`, { key })).status;
}

interface Shown {
  readonly state: string;
  readonly buckets: Record<'minute' | 'day', { limit: number; remaining: number; used: number; fullAt?: string }>;
}

const show = async (stack: Stack, key: string) => (await stack.admin('GET', `/keys/${idOf(key)}`)).json as Shown;

const change = (stack: Stack, key: string, changes: unknown) => stack.admin('PATCH', `/keys/${idOf(key)}`, changes);

describe.for(bothStacks(redisUrl))('with %s', async ([, environment]) => {
  const stack = await startStack(environment);

  test('a key is shown with the current state of both buckets without taking a token', async () => {
    const key = await stack.issueKey({ plan: 'enterprise', minute: 10, day: 100 });
    expect((await show(stack, key)).buckets).toEqual({
      minute: { limit: 10, remaining: 10, used: 0 },
      day: { limit: 100, remaining: 100, used: 0 },
    });
    for (let sent = 0; sent < 4; sent++) await statusOf(stack, key);
    for (let looked = 0; looked < 5; looked++) await show(stack, key);
    const { buckets } = await show(stack, key);
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
      expect((await show(stack, key)).buckets.day.remaining).toBe(96);
    }
    await stack.admin('POST', `/keys/${idOf(key)}/rotate`, { graceSeconds: 60 });
    expect((await show(stack, key)).buckets.day.remaining).toBe(96);
    await change(stack, key, { plan: 'pro', minute: null, day: null });
    expect((await show(stack, key)).buckets).toMatchObject({ minute: { limit: 300 }, day: { limit: 10_000 } });
    expect((await show(stack, key)).buckets.day.remaining).toBeLessThan(120);
    expect((await stack.admin('GET', `/keys/${idOf(key)}`)).json).toMatchObject({ name: 'new', plan: 'pro' });
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

  test('a rotated key has both secrets on the same buckets during the grace period, then only the new one', async () => {
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
      expect((await show(stack, key)).buckets.day.remaining).toBe(98);
    }
    await sleep(2_050);
    expect([await statusOf(stack, old), await statusOf(stack, key)]).toEqual([401, 200]);
    expect(await show(stack, key)).toMatchObject({ secrets: [{ name: 'first' }] });
  });

  test('without a grace period the old secret expires at once, and only the first answer shows the new one', async () => {
    const old = await stack.issueKey();
    const rotated = await stack.admin('POST', `/keys/${idOf(old)}/rotate`, { graceSeconds: 0 });
    const key = (rotated.json as { key: string }).key;
    expect([await statusOf(stack, old), await statusOf(stack, key)]).toEqual([401, 200]);
    const shown = await stack.admin('GET', `/keys/${idOf(key)}`);
    expect(shown.text).not.toContain(key.slice(16, 48));
    expect(JSON.stringify(stack.log)).not.toContain(key.slice(16, 48));
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

  test.for([
    ['PATCH', '', { name: 'a' }],
    ['POST', '/rotate', { graceSeconds: 0 }],
    ['PUT', '/ban', { seconds: 1 }],
    ['DELETE', '/ban', undefined],
  ] as const)('%s %s of an unknown key is 404 and writes nothing', async ([method, path, body]) => {
    const answer = await stack.admin(method, `/keys/000000000000${path}`, body);
    expect([answer.status, (await stack.admin('GET', '/keys/000000000000')).status]).toEqual([404, 404]);
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
    const listed: string[] = [];
    let next: number | undefined = 0;
    while (next !== undefined) {
      const page: { total: number; next?: number; keys: { name: string }[] } = (
        await stack.admin('GET', `/keys?limit=10&offset=${next}`)
      ).json as never;
      expect(page.total).toBe(25);
      listed.push(...page.keys.map(({ name }) => name));
      next = page.next;
    }
    expect(listed.sort()).toEqual(names.sort());
    const found = (await stack.admin('GET', '/keys?name=aCME')).json as { keys: { name: string }[] };
    expect(found.keys.map(({ name }) => name)).toEqual(['Acme 20', 'Acme 10', 'Acme 0']);
    const part = (await stack.admin('GET', '/keys?name=acme&limit=2')).json as { next: number; keys: unknown[] };
    expect(part.keys).toHaveLength(2);
    const rest = await stack.admin('GET', `/keys?name=acme&limit=2&offset=${part.next}`);
    expect(rest.json).toMatchObject({ keys: [{ name: 'Acme 0' }] });
    expect(rest.json).not.toHaveProperty('next');
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

test('a key made unreadable by hand is not changed further', async () => {
  const stack = await startStack(withRedis);
  const [odd, text] = [await stack.issueKey(), await stack.issueKey()];
  await redis.hdel(`gateway:key:{${idOf(odd)}}`, 'ok_secrets', 'ok_plan', 'plan');
  await redis.set(`gateway:key:{${idOf(text)}}`, 'text');
  for (const key of [odd, text]) {
    expect((await change(stack, key, { minute: 5 })).json).toMatchObject({ code: 'conflict', status: 409 });
  }
});
