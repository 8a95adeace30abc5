import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type { DoctorAnswer } from '../../gateway/operators/api/answers.ts';
import { idOf } from '../support/api-key.ts';
import { send } from '../support/http.ts';
import { connectRaw } from '../support/raw-client.ts';
import { connectionTo, ownRedis } from '../support/redis-database.ts';
import { type Stack, startStack, temporaryFolder } from '../support/stack.ts';

/** What one gateway acknowledges to an operator binds on the others, even if Redis stops at that moment. */

const server = await ownRedis({ appendonly: 'yes', appendfsync: 'always', dir: await temporaryFolder() });
const redis = connectionTo(server.url);
const settings = { REDIS_URL: server.url, REDIS_TIMEOUT_MS: '250' };
const [one, other] = [await startStack(settings), await startStack(settings)];

const BODY = JSON.stringify({ name: 'Rex', categoryId: 1 });

/** Sends a request whose body is incomplete. @returns a function that completes it, and returns the status */
async function writeSlowly({ gateway }: Stack, key: string) {
  const client = await connectRaw(gateway);
  const head = ['POST /v1/pets HTTP/1.1', 'Host: a', `Authorization: Bearer ${key}`, 'Content-Type: application/json'];
  client.socket.write(`${head.join('\r\n')}\r\nContent-Length: ${BODY.length}\r\n\r\n${BODY.slice(0, 10)}`);
  return async () => {
    client.socket.write(BODY.slice(10));
    await expect.poll(client.received).toMatch(/^HTTP\/1\.1 \d+/);
    return Number(client.received().slice(9, 12));
  };
}

const read = ({ gateway }: Stack, key: string) => send(`${gateway}/v1/pets`, { key });

const WORDS: readonly [string, (key: string) => ReturnType<Stack['admin']>][] = [
  ['revocation', (key) => one.admin('DELETE', `/keys/${idOf(key)}`)],
  ['disabling', (key) => one.admin('PATCH', `/keys/${idOf(key)}`, { disabled: true })],
  ['rotation', (key) => one.admin('POST', `/keys/${idOf(key)}/rotate`, { graceSeconds: 0 })],
  ['ban', (key) => one.admin('PUT', `/keys/${idOf(key)}/ban`, { seconds: 600, reason: 'test' })],
];

test.for(WORDS)('a %s binds on other gateways, even if Redis stops once it is acknowledged', async ([, give]) => {
  const key = await one.issueKey();
  for (const stack of [one, other]) await expect.poll(async () => (await read(stack, key)).status).toBe(200);
  const admitted = async () => Number(await redis.hget(`gateway:key:{${idOf(key)}}`, 'admitted'));
  expect(await admitted()).toBe(2);
  const finish = await Promise.all([one, other].map((stack) => writeSlowly(stack, key)));
  await expect.poll(admitted).toBe(4);
  expect((await give(key)).status).toBeLessThan(300);
  server.pause();
  try {
    for (const stack of [one, other]) expect((await read(stack, key)).status).toBe(503);
    for (const status of await Promise.all(finish.map((end) => end()))) expect(status).toBe(503);
  } finally {
    server.resume();
  }
});

test('a plan binds on other gateways once it is acknowledged', async () => {
  const key = await one.issueKey({ plan: 'business' });
  for (let minute = 1_000; minute < 1_005; minute++) {
    expect((await one.admin('PATCH', '/plans/business', { minute })).status).toBe(200);
    expect((await read(other, key)).headers['x-ratelimit-limit']).toBe(String(minute));
  }
});

const listSilent = async () => redis.zadd('gateway:gateways', (await redis.time())[0] ?? 0, 'elsewhere:7:6a0c5f00beef');

test('a change that a running gateway does not confirm is not acknowledged', async () => {
  const key = await one.issueKey();
  await listSilent();
  const disable = (stack = one) => stack.admin('PATCH', `/keys/${idOf(key)}`, { disabled: true });
  const { status, json } = await disable();
  expect(status).toBe(503);
  expect(json).toMatchObject({
    message:
      'The change was made, but not all gateways have confirmed it (elsewhere:7). It is safe to repeat the change.',
  });
  expect((await read(other, key)).status).toBe(401);
  // Neither another change, nor its repetition through another gateway, is acknowledged.
  await listSilent();
  expect((await one.admin('PATCH', `/keys/${idOf(key)}`, { minute: 5 })).json).toMatchObject({
    message:
      'An earlier change is not confirmed yet: not all gateways have confirmed it (elsewhere:7). Repeat the request in a few seconds.',
  });
  await listSilent();
  expect((await disable(other)).status).toBe(503);
  // A gateway that has not polled for three seconds does not serve, or has lost Redis.
  await expect.poll(async () => (await disable()).status, { timeout: 10_000 }).toBe(200);
});

test('a key whose last change is not confirmed can be revoked; the revocation is in force, but not acknowledged', async () => {
  const key = await one.issueKey();
  await listSilent();
  expect((await one.admin('PATCH', `/keys/${idOf(key)}`, { minute: 5 })).status).toBe(503);
  const revoke = async () => await one.admin('DELETE', `/keys/${idOf(key)}`);
  for (let attempt = 0; attempt < 2; attempt++) {
    await listSilent();
    expect((await revoke()).json).toMatchObject({
      message: expect.stringMatching(/^The change was made, but not all/),
    });
    for (const stack of [one, other]) expect((await read(stack, key)).status).toBe(401);
  }
  await expect.poll(async () => (await revoke()).status, { timeout: 10_000 }).toBe(404);
});

test('if the list of gateways holds another value, the refused change and the doctor name its key, until it is deleted', async () => {
  const key = await one.issueKey();
  await redis.set('gateway:gateways', 'junk');
  const why = 'gateway:gateways in Redis holds a value of the wrong type. Check the value, then delete it.';
  const disable = async () => await one.admin('PATCH', `/keys/${idOf(key)}`, { disabled: true });
  expect((await disable()).json).toMatchObject({
    message: `The change was made, but the other gateways have not confirmed it. ${why} It is safe to repeat the change.`,
  });
  expect((await disable()).json).toMatchObject({
    message: `An earlier change is not confirmed yet: the other gateways have not confirmed it. ${why}`,
  });
  const line = { msg: 'operator request', status: 503, reason: expect.stringContaining(why) };
  await expect.poll(() => one.log).toContainEqual(expect.objectContaining(line));
  const findings = async () => ((await one.admin('GET', '/doctor')).json as DoctorAnswer).findings;
  const found = {
    about: 'other gateways',
    status: 'fault',
    found: expect.stringContaining('gateway:gateways'),
    advice: expect.stringContaining('DEL gateway:gateways'),
  };
  expect(await findings()).toContainEqual(expect.objectContaining(found));
  await redis.del('gateway:gateways');
  await expect.poll(() => redis.zcard('gateway:gateways'), { timeout: 5_000 }).toBe(2);
  expect((await disable()).status).toBe(200);
  expect((await findings()).map(({ about }) => about)).not.toContain('other gateways');
});

test('the changes of a whole page of a backup are confirmed together', async () => {
  const key = await one.issueKey();
  const page = (await one.admin('GET', '/backup')).json as { at: string; keys: { id: string }[] };
  const copied = page.keys.find(({ id }) => id === idOf(key));
  const keys = Array.from({ length: 100 }, (_, at) => ({ ...copied, id: `Restored${1_000 + at}` }));
  const pushes = async () => Number(/cmdstat_rpush:calls=(\d+)/.exec(await redis.info('commandstats'))?.[1] ?? 0);
  const before = await pushes();
  const { status, json } = await one.admin('POST', '/restore', { at: page.at, keys });
  expect([status, json]).toEqual([200, expect.objectContaining({ restored: 100 })]);
  // A notice is a question and its answer.
  expect(await pushes()).toBeGreaterThan(before);
  expect((await pushes()) - before).toBeLessThan(20);
});

test('a change that is acknowledged just after an outage binds on gateways that have not noticed its end', async () => {
  const keys = [await one.issueKey(), await one.issueKey()];
  for (const key of keys) {
    for (const stack of [one, other]) await expect.poll(async () => (await read(stack, key)).status).toBe(200);
    await server.stop();
    await expect.poll(async () => (await read(other, key)).status).toBe(200);
    await sleep(4_000);
    await server.restart();
    const disable = async () => (await one.admin('PATCH', `/keys/${idOf(key)}`, { disabled: true })).status;
    await expect.poll(disable, { interval: 5 }).toBe(200);
    server.pause();
    expect((await read(other, key)).status).not.toBe(200);
    server.resume();
  }
});

test('a gateway that stops confirms the changes that it was asked about', async () => {
  const leaving = await startStack(settings);
  const key = await one.issueKey();
  expect((await read(leaving, key)).status).toBe(200);
  let isOver = false;
  const change = async () => {
    for (let minute = 1; !isOver; minute++) {
      const { status, text } = await one.admin('PATCH', `/keys/${idOf(key)}`, { minute });
      expect([status, text]).toEqual([200, expect.any(String)]);
    }
  };
  const changing = change();
  await sleep(300);
  await leaving.stop();
  await sleep(300);
  isOver = true;
  await changing;
});
