import { expect, test } from 'vitest';
import type { UsedOnDay } from '../../gateway/operators/api/answers.ts';
import { idOf } from '../support/api-key.ts';
import { ctl } from '../support/ctl.ts';
import { inTurn } from '../support/in-turn.ts';
import { onRedis, operatorsRedis, pagesOf, statusOf } from '../support/operators.ts';
import { connectionTo, ownRedis } from '../support/redis-database.ts';
import { createKey } from '../support/redis-keys.ts';
import { type Stack, startStack } from '../support/stack.ts';

const { redis, withRedis, fresh } = await operatorsRedis();

/** Reads all pages of `limit` keys each. */
async function usageOf(stack: Stack, query = '', limit = 3): Promise<UsedOnDay[]> {
  const pages = await pagesOf<{ usage: UsedOnDay[]; next?: string }>(stack, `/usage?limit=${limit}${query}`);
  return pages.flatMap(({ usage }) => usage);
}

/** Sends requests with each key. @returns what the clients saw, per key */
async function load(stacks: readonly Stack[], keys: readonly string[], times: number) {
  const asked = keys.flatMap((key, number) =>
    Array.from({ length: times + number }, (_, at) => ({ key, stack: stacks[at % stacks.length] as Stack })),
  );
  const answers = await inTurn(asked, 8, async ({ key, stack }) => [idOf(key), await statusOf(stack, key)] as const);
  expect(answers.filter(([, status]) => ![200, 429].includes(status))).toEqual([]);
  return summed(
    answers.map(([id, status]) => ({ id, admitted: Number(status === 200), refused: Number(status !== 200) })),
  );
}

/** Sums per key over all days, because a test can run past midnight. */
function summed(rows: readonly Pick<UsedOnDay, 'id' | 'admitted' | 'refused'>[]) {
  const sums = new Map<string, { admitted: number; refused: number }>();
  for (const { id, admitted, refused } of rows) {
    const sum = sums.get(id) ?? { admitted: 0, refused: 0 };
    sums.set(id, { admitted: sum.admitted + admitted, refused: sum.refused + refused });
  }
  return sums;
}

test('usage over three gateways equals what clients saw, including revoked keys, in pages of any size', async () => {
  const first = await fresh();
  const stacks = [first, await startStack(withRedis), await startStack(withRedis)];
  await first.admin('PATCH', '/plans/free', { minute: 5, ban_after: 1_000_000 });
  const keys: string[] = [];
  for (let number = 0; number < 7; number++) keys.push(await first.issueKey({ name: `customer ${number}` }));
  await Promise.all(stacks.map((stack) => stack.admin('GET', '/plans')));
  const seen = await load(stacks, keys, 12);
  expect([...seen.values()].every(({ admitted, refused }) => admitted >= 5 && refused > 0)).toBe(true);
  await first.admin('DELETE', `/keys/${idOf(keys[2] as string)}`);
  for (const limit of [1, 3, 100]) expect(summed(await usageOf(first, '', limit))).toEqual(seen);
  const rows = await usageOf(first);
  const today = new Date().toISOString().slice(0, 10);
  expect(rows.find(({ id }) => id === idOf(keys[2] as string))).toMatchObject({ name: 'customer 2', plan: 'free' });
  expect(rows.every(({ day }) => day <= today)).toBe(true);
  expect(await usageOf(first, '&from=2026-01-01&to=2026-01-31')).toEqual([]);
});

test('when Redis is out of memory, a key can be revoked, and its usage is kept', async () => {
  const server = await ownRedis();
  const root = connectionTo(server.url);
  const stack = await startStack(onRedis(server.url));
  const key = await stack.issueKey();
  await load([stack], [key], 3);
  await root.config('SET', 'maxmemory', '1');
  expect((await stack.admin('DELETE', `/keys/${idOf(key)}`)).status).toBe(204);
  expect(await root.exists(`gateway:key:{${idOf(key)}}`)).toBe(0);
  expect(await root.hgetall(`gateway:usage:{${idOf(key)}}`)).toMatchObject({ admitted: '3', plan: 'free' });
});

test('ctl usage exports all pages as a table, as CSV and as JSON', async () => {
  const stack = await fresh();
  const odd = await stack.issueKey({ name: '=cmd("a"), b' });
  const seen = await load([stack], [odd], 3);
  // More keys than fit on one page, used once today.
  const today = Math.floor(Date.now() / 86_400_000);
  for (let number = 0; number < 120; number++) {
    const { hash } = await createKey(redis, { plan: 'pro' });
    const id = hash.slice(-13, -1);
    await redis.hset(hash, 'admitted', 1);
    await redis.hset(`gateway:marks:{${id}}`, 'usage_days', `${today}:0:0`);
    await redis.zadd('gateway:keys', number, id);
    seen.set(id, { admitted: 1, refused: 0 });
  }
  const { json: sums } = await stack.admin('GET', '/usage?by=tag:customer');
  expect(sums).toMatchObject({ usage: [{ keys: 121, admitted: 123, refused: 0 }] });
  const [words, csv, json] = await Promise.all([
    ctl(stack, 'usage', '--from', '2020-01-01'),
    ctl(stack, 'usage', '--csv'),
    ctl(stack, 'usage', '--json'),
  ]);
  expect([words.code, csv.code, json.code]).toEqual([0, 0, 0]);
  expect(words.err).toMatch(/^Note: usage before \d{4}-\d\d-\d\d is not kept\.$/m);
  expect(words.out).toMatch(
    new RegExp(`^\\d{4}-\\d\\d-\\d\\d {2}${idOf(odd)} {2}free +3 +0 {2}=cmd\\("a"\\), b$`, 'm'),
  );
  expect(csv.out).toContain(`,${idOf(odd)},free,3,0,"'=cmd(""a""), b",\r\n`);
  expect(csv.out.trimEnd().split('\r\n')).toHaveLength(1 + 121);
  expect(summed((JSON.parse(json.out) as { usage: UsedOnDay[] }).usage)).toEqual(seen);
});
