import { describe, expect, test } from 'vitest';
import { ctl } from '../support/ctl.ts';
import { send } from '../support/http.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { bothStacks, type Stack, startStack } from '../support/stack.ts';

const { url } = await emptyDatabase();

async function keyWith(stack: Stack, name: string, used: number): Promise<void> {
  const key = await stack.issueKey({ name, day: 20 });
  for (let sent = 0; sent < used; sent++) await send(`${stack.gateway}/v1/pets`, { key });
}

describe.for(bothStacks(url))('with %s', async ([, environment]) => {
  const stack = await startStack(environment);
  await keyWith(stack, 'unused', 0);
  await keyWith(stack, 'below 80', 15);
  await keyWith(stack, 'at 80', 16);
  await keyWith(stack, 'at 95', 19);
  await keyWith(stack, 'used up', 20);

  const namesOf = async (query: string) =>
    ((await stack.admin('GET', `/keys?${query}`)).json as { keys: { name: string }[] }).keys.map(({ name }) => name);

  test.for([
    ['near=80', ['used up', 'at 95', 'at 80']],
    ['near=76', ['used up', 'at 95', 'at 80']],
    ['near=75', ['used up', 'at 95', 'at 80', 'below 80']],
    ['near=95', ['used up', 'at 95']],
    ['near=100', ['used up']],
    ['near=80&name=at', ['at 95', 'at 80']],
    ['name=at', ['at 95', 'at 80']],
    ['near=80&limit=1&offset=1', ['at 95']],
  ] as const)('GET /keys?%s', async ([query, names]) => {
    expect(await namesOf(query)).toEqual(names);
  });

  test('ctl lists the keys near their limit, by default from 80 %', async () => {
    const near = await ctl(stack, 'keys', 'list', '--near');
    expect(near).toMatchObject({ code: 0, err: '' });
    expect(near.out).toMatch(/ used up +free +active +20 +20 +100 % /);
    expect(near.out).toMatch(/ at 80 +free +active +20 +16 +80 % /);
    expect(near.out).not.toContain('below 80');
    const nearer = await ctl(stack, '--json', 'keys', 'list', '--near', '95');
    expect((JSON.parse(nearer.out) as { keys: { name: string }[] }).keys.map(({ name }) => name)).toEqual([
      'used up',
      'at 95',
    ]);
    expect(await ctl(stack, 'keys', 'list', '--near', '500')).toMatchObject({
      code: 2,
      err: expect.stringContaining('near must be a whole number from 1 to 100.'),
    });
  });
});

test('a key without usable limits is never near its limit', async () => {
  const { url: own, redis } = await emptyDatabase();
  const stack = await startStack({ REDIS_URL: own, REDIS_TIMEOUT_MS: '5000' });
  await stack.issueKey({ plan: 'enterprise', minute: 1, day: 1 });
  const [id = ''] = await redis.zrevrange('gateway:keys', 0, 0);
  await redis.hdel(`gateway:key:{${id}}`, 'day');
  expect((await stack.admin('GET', '/keys?near=1')).json).toMatchObject({ total: 1, keys: [] });
});
