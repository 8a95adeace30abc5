import http from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { ctl, ctlReading } from '../support/ctl.ts';
import { send } from '../support/http.ts';
import { inTurn } from '../support/in-turn.ts';
import { ask as askOnce, onRedis } from '../support/operators.ts';
import { connectionTo, ownRedis } from '../support/redis-database.ts';
import { type Stack, startStack } from '../support/stack.ts';

const KEYS = 400;

/** Starts clients that send requests with each key in turn, before, during and after the loss. */
function ask(stacks: readonly Stack[], keys: readonly string[]) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 8 });
  const seen: { at: number; key: string; status: number }[] = [];
  let running = true;
  const client = async (number: number) => {
    for (let at = number * 50; running; at++) {
      const key = keys[at % keys.length] as string;
      const { gateway } = stacks[at % stacks.length] as Stack;
      seen.push({ key, status: (await send(`${gateway}/v1/pets`, { key, agent })).status, at: performance.now() });
      await sleep(5);
    }
  };
  const clients = Array.from({ length: 8 }, (_, number) => client(number));
  const end = async () => {
    running = false;
    await Promise.all(clients);
    agent.destroy();
  };
  return { seen, end };
}

test('after FLUSHALL under load, a restore makes every key work again with its limits and usage', async () => {
  const server = await ownRedis();
  const redis = connectionTo(server.url);
  const start = () => startStack(onRedis(server.url));
  const stacks = [await start(), await start()] as const;
  const [stack, other] = stacks;
  const issue = (_: unknown, day = 10_000) => stack.issueKey({ plan: 'enterprise', minute: 100_000, day });
  const keys = await inTurn(Array.from({ length: KEYS }), 8, (none) => issue(none));
  const quiet = await issue(undefined, 9);
  const banned = await issue(undefined);
  for (let sent = 0; sent < 4; sent++) await askOnce(stack, quiet);
  await stack.admin('PUT', `/keys/${idOf(banned)}/ban`, { seconds: 3_600, reason: 'asks without end' });
  const plans = await redis.hgetall('gateway:plans');

  const clients = ask(stacks, keys);
  await sleep(1_000);
  const backup = await ctl(stack, 'backup');
  expect([backup.code, backup.out.trimEnd().split('\n').at(-1)]).toEqual([0, `{"end":true,"keys":${KEYS + 2}}`]);
  const lines = backup.out.split('\n').filter((line) => line.startsWith('{"id"'));
  const admittedThen = new Map<string, number>();
  for (const { id, fields } of lines.map((line) => JSON.parse(line)))
    admittedThen.set(id, Number(fields.admitted ?? 0));
  expect(clients.seen.every(({ status }) => status === 200)).toBe(true);

  await redis.flushall();
  const lostAt = performance.now();
  await expect.poll(() => clients.seen.some(({ at, status }) => at > lostAt && status === 401)).toBe(true);
  await sleep(500);
  const restored = await ctlReading(other, backup.out, '--json', 'restore');
  expect(JSON.parse(restored.out)).toMatchObject({ restored: KEYS + 2, present: 0, rejected: 0, isWhole: true });
  // Until the restore ended, keys were unknown, and their requests used up the allowance of the address, even those
  // that got 429. A second later, the address has some allowance again.
  const restoredAt = performance.now();
  const lastLoss = () => clients.seen.findLast(({ status }) => status === 401)?.at ?? 0;
  const settled = () => clients.seen.filter(({ at }) => at > Math.max(restoredAt, lastLoss()) + 2_000);
  await expect.poll(() => new Set(settled().map(({ key }) => key)).size, { timeout: 30_000 }).toBe(KEYS);
  await clients.end();

  const after = settled();
  expect(new Set(after.map(({ key }) => key)).size).toBe(KEYS);
  expect(new Set(after.map(({ status }) => status))).toEqual(new Set([200]));
  expect(await redis.hgetall('gateway:plans')).toEqual(plans);
  expect((await askOnce(other, quiet)).headers).toMatchObject({
    'x-ratelimit-limit': '9',
    'x-ratelimit-remaining': '4',
  });
  expect((await askOnce(other, banned)).json).toMatchObject({ code: 'key_banned' });
  // Usage continues from the backup, exact to the request.
  const since = new Map<string, number>();
  for (const { at, key, status } of clients.seen)
    if (status === 200 && at > lostAt) since.set(idOf(key), (since.get(idOf(key)) ?? 0) + 1);
  const counts = await inTurn(keys, 8, async (key) => {
    const id = idOf(key);
    const admitted = Number(await redis.hget(`gateway:key:{${id}}`, 'admitted'));
    return admitted - (admittedThen.get(id) ?? 0) - (since.get(id) ?? 0);
  });
  // A request that Redis decided before the loss may be answered after it.
  expect(counts.filter((more) => more > 0 || more < -1)).toEqual([]);
  expect(counts.filter((more) => more === -1).length).toBeLessThanOrEqual(8);

  const again = await ctlReading(stack, backup.out, '--json', 'restore');
  expect(JSON.parse(again.out)).toMatchObject({ restored: 0, present: KEYS + 2, rejected: 0 });
});
