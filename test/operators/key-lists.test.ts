import { randomUUID } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { ctl } from '../support/ctl.ts';
import { ask, get, hashOf, onRedis } from '../support/operators.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { bothStacks, type Stack, startStack } from '../support/stack.ts';

/** Filtered and sorted lists of keys, the loudest keys, and finding a key. */

const { url, redis } = await emptyDatabase();

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

async function keysOf(stack: Stack, path: string): Promise<Shown[]> {
  const { status, json } = await stack.admin('GET', path);
  expect([path, status]).toEqual([path, 200]);
  return (json as { keys: Shown[] }).keys;
}

const namesOf = async (stack: Stack, path: string) => (await keysOf(stack, path)).map(({ name }) => name);

describe.for(bothStacks(url))('with %s', async ([, environment]) => {
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
    // Of its 20 requests a day, Loud has sent 15.
    ['near=75', ['refused', 'Loud']],
    ['near=75&name=OU', ['Loud']],
    ['near=75&limit=1&offset=4', ['Loud']],
  ] as const)('GET /keys?%s', async ([query, names]) => {
    expect(await namesOf(stack, `/keys?${query}`)).toEqual(names);
  });

  test('the busiest keys come first, counted exactly, without those that sent nothing', async () => {
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

  test('a whole key is refused, since a URL is no place for it', async () => {
    const { status, text } = await stack.admin('GET', `/keys/find?text=${quiet}`);
    expect([status, text]).toEqual([400, expect.stringContaining('text must not contain a whole key')]);
    expect(text).not.toContain(quiet);
  });

  test('a key shows when it was last used', async () => {
    const [used] = await keysOf(stack, '/keys?name=quiet');
    const [unused] = await keysOf(stack, '/keys?name=acme%20two');
    expect(used).toMatchObject({ lastUsedAt: expect.stringMatching(/^\d{4}-.*Z$/) });
    expect(unused).not.toHaveProperty('lastUsedAt');
  });
});

test('keys without a request for a given time are listed, including those never used', async () => {
  await redis.flushdb();
  const stack = await startStack(onRedis(url));
  const [idle, fresh, never] = [
    await keyWith(stack, 'idle', 1),
    await keyWith(stack, 'fresh', 1),
    await keyWith(stack, 'never', 0),
  ];
  const daysAgo = (days: number) => (Date.now() / 1_000 - days * 86_400).toFixed(6);
  await redis.hset(hashOf(idOf(idle)), 'left', `${daysAgo(31)} 1/60 1/1000`);
  await redis.hset(hashOf(idOf(fresh)), 'left', `${daysAgo(29)} 1/60 1/1000`);
  await redis.hset(hashOf(idOf(never)), 'created_at', daysAgo(40));
  expect(await namesOf(stack, `/keys?unusedSeconds=${30 * 86_400}&sort=idle`)).toEqual(['never', 'idle']);
});

test('a call checks a limited number of keys and returns where the next one continues, and ctl goes on to the end', async () => {
  await redis.flushdb();
  const stack = await startStack(onRedis(url));
  await keyWith(stack, 'old and loud', 2);
  const places = Array.from({ length: 5_200 }, (_, at) => [
    String(Date.now() / 1_000 + 10 + at),
    `0${String(at).padStart(11, 'x')}`,
  ]);
  await redis.zadd('gateway:keys', ...places.flat());
  for (const path of ['/keys?sort=used', '/keys/top?minutes=60', '/keys/find?text=loud']) {
    const { json } = await stack.admin('GET', path);
    expect(json).toMatchObject({ keys: [], next: 5_000 });
    expect(await namesOf(stack, `${path}&offset=5000`)).toEqual(['old and loud']);
  }
  const young = await stack.issueKey({ name: 'young', plan: 'pro' });
  await redis.zadd('gateway:keys', Date.now() / 1_000 + 6_000, idOf(young));
  await ask(stack, young);
  const [top, topPro, used, idle] = await Promise.all([
    ctl(stack, 'keys', 'top', '--minutes', '60'),
    ctl(stack, 'keys', 'top', '--minutes', '60', '--plan', 'pro', '--json'),
    ctl(stack, 'keys', 'list', '--sort', 'used', '--near', '20', '--json'),
    ctl(stack, 'keys', 'list', '--unused', '1h'),
  ]);
  expect(top.out).toMatch(/^id .*\n\w{12} {2}old and loud {2}free +active +2 +0 .*\n\w{12} {2}young .* 1 +0 .*\n$/);
  expect(JSON.parse(topPro.out)).toMatchObject({ keys: [{ name: 'young' }] });
  expect(JSON.parse(used.out)).toMatchObject({ total: 5_202, keys: [] });
  expect(idle.out).toContain('0 of 5202');
});

test('a key without usable limits is never near its limit', async () => {
  await redis.flushdb();
  const stack = await startStack(onRedis(url));
  const id = idOf(await stack.issueKey({ plan: 'enterprise', minute: 1, day: 1 }));
  await redis.hdel(hashOf(id), 'day');
  expect(await get(stack, '/keys?near=1')).toMatchObject({ total: 1, keys: [] });
});
