import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { describe, expect, test } from 'vitest';
import type { HistoryAnswer, KeysAnswer } from '../../gateway/operators/api/answers.ts';
import { activityOf } from '../support/activity.ts';
import { idOf } from '../support/api-key.ts';
import { startFaultProxy } from '../support/fault-proxy.ts';
import type { Answer } from '../support/http.ts';
import { ask, get, hashOf } from '../support/operators.ts';
import { connectionTo, ownRedis } from '../support/redis-database.ts';
import { type Stack, startStack } from '../support/stack.ts';

// These tests wait for the deadlines of operators' calls, which are seconds long.

/** Starts a Redis that can be paused, a proxy in front of it, and a gateway with the default deadline for decisions. */
async function setUp() {
  const server = await ownRedis();
  const proxy = await startFaultProxy(server.url);
  return { server, redis: connectionTo(server.url), proxy, stack: await startStack({ REDIS_URL: proxy.url }) };
}

const keyIn = ({ json }: Answer): string => (json as { key: string }).key;
const rotate = (stack: Stack, key: string, body: unknown) => stack.admin('POST', `/keys/${idOf(key)}/rotate`, body);
const DAY = { graceSeconds: 86_400 };

const secretsOf = async (redis: Redis, key: string): Promise<number> =>
  (await redis.hkeys(hashOf(idOf(key)))).filter((field) => field.startsWith('secret:')).length;

/** Repeats the request until Redis decides it, because Redis may still be recovering. */
async function statusOf(stack: Stack, key: string): Promise<number> {
  for (;;) {
    const { status } = await ask(stack, key);
    if (status !== 503) return status;
    await sleep(50);
  }
}

const listed = async (stack: Stack) => (await get<KeysAnswer>(stack, '/keys')).keys.map(({ id }) => id).sort();

/** Ids of all existing keys, listed or not. */
const existing = async (redis: Redis): Promise<string[]> =>
  (await redis.keys('gateway:key:*')).map((name) => name.slice('gateway:key:{'.length, -1)).sort();

test.for([150, 1_500])("while Redis is paused for %i ms, operators' writes are delayed, but none fails", async (ms) => {
  const { server, stack } = await setUp();
  const key = await stack.issueKey();
  server.pause();
  const answers = [
    stack.admin('POST', '/keys', { name: 'late', plan: 'free' }),
    stack.admin('PATCH', `/keys/${idOf(key)}`, { name: 'renamed' }),
    stack.admin('PATCH', '/plans/free', { minute: 61 }),
    rotate(stack, key, DAY),
  ];
  await sleep(ms);
  server.resume();
  expect((await Promise.all(answers)).map(({ status }) => status)).toEqual([201, 200, 200, 201]);
  expect(await statusOf(stack, keyIn(await (answers[0] as Promise<Answer>)))).toBe(200);
  expect(await statusOf(stack, key)).toBe(200);
  expect(await statusOf(stack, keyIn(await (answers[3] as Promise<Answer>)))).toBe(200);
});

/** The delay of a reply, long enough for the test to act before it arrives. */
const REPLY_MS = 300;

/**
 * Starts a write, and cuts its connection after Redis has executed it but before the reply arrives.
 * @param isForLong whether the network stays down until the write has failed
 */
async function loseAnswer(
  { proxy, stack }: Pick<Awaited<ReturnType<typeof setUp>>, 'proxy' | 'stack'>,
  write: () => Promise<Answer>,
  isDone: () => Promise<boolean>,
  isForLong = false,
): Promise<Answer> {
  proxy.set({ kind: 'delay', ms: REPLY_MS });
  const answer = write();
  while (!(await isDone())) await sleep(5);
  proxy.set({ kind: 'reset' });
  if (isForLong) await answer;
  proxy.set({ kind: 'pass' });
  await expect.poll(async () => (await stack.admin('GET', '/keys')).status).toBe(200);
  return await answer;
}

describe('writes whose reply was lost with the connection', async () => {
  const rig = await setUp();
  const { redis, stack } = rig;

  test('a key is issued although the reply was lost', async () => {
    const before = await existing(redis);
    const write = () => stack.admin('POST', '/keys', { name: 'new', plan: 'free' });
    const answer = await loseAnswer(rig, write, async () => (await existing(redis)).length > before.length);
    expect(answer.status).toBe(201);
    expect(await statusOf(stack, keyIn(answer))).toBe(200);
  });

  test('a key is rotated although the reply was lost', async () => {
    const key = await stack.issueKey();
    const isDone = async () => (await secretsOf(redis, key)) === 2;
    const answer = await loseAnswer(rig, () => rotate(stack, key, DAY), isDone);
    expect(answer.status).toBe(201);
    expect([await statusOf(stack, key), await statusOf(stack, keyIn(answer))]).toEqual([200, 200]);
  });

  test('a key is revoked although the reply was lost', async () => {
    const key = await stack.issueKey();
    const isDone = async () => !(await existing(redis)).includes(idOf(key));
    const answer = await loseAnswer(rig, () => stack.admin('DELETE', `/keys/${idOf(key)}`), isDone);
    expect(answer.status).toBe(204);
  });

  test('a plan change is recorded with its author although the reply was lost', async () => {
    const write = () => stack.admin('PATCH', '/plans/pro', { minute: 301, author: 'ann' });
    const isDone = async () => (await redis.hget('gateway:plans', 'pro.minute')) === '301';
    const answer = await loseAnswer(rig, write, isDone);
    expect([answer.status, answer.json]).toEqual([200, expect.objectContaining({ minute: 301 })]);
    expect((await get<HistoryAnswer>(stack, '/plans/history')).history[0]).toMatchObject({
      author: 'ann',
      changes: [{ field: 'pro.minute', from: '300', to: '301' }],
    });
  });

  test('each write whose reply was lost is recorded once', async () => {
    const actions = (await activityOf(stack)).map(({ action }) => action).reverse();
    const issued = 'key.create';
    expect(actions).toEqual([issued, issued, 'key.rotate', issued, 'key.revoke', 'plan.change']);
  });
});

test('a key that was created despite a 503 is listed', async () => {
  const rig = await setUp();
  const write = () => rig.stack.admin('POST', '/keys', { name: 'new', plan: 'free' });
  const isDone = async () => (await existing(rig.redis)).length === 1;
  expect((await loseAnswer(rig, write, isDone, true)).status).toBe(503);
  expect(await listed(rig.stack)).toEqual(await existing(rig.redis));
});

test('if a rotation was made despite a 503 and is repeated, the secret in use stays valid', async () => {
  const rig = await setUp();
  const { redis, stack } = rig;
  const key = await stack.issueKey();
  const isDone = async () => (await secretsOf(redis, key)) === 2;
  expect((await loseAnswer(rig, () => rotate(stack, key, DAY), isDone, true)).status).toBe(503);
  const retried = await rotate(stack, key, DAY);
  expect(retried.status).toBe(201);
  expect([await statusOf(stack, key), await statusOf(stack, keyIn(retried))]).toEqual([200, 200]);
});
