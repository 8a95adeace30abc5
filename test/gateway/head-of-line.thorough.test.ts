import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { cleanUp } from '../support/clean-up.ts';
import { okTo } from '../support/faulty-core.ts';
import { send } from '../support/http.ts';
import { type Stack, UNLIMITED } from '../support/stack.ts';
import { stackBefore } from '../support/stack-before.ts';
import { quantile } from '../support/statistics.ts';
import { TIMED } from '../support/timed.ts';

/** Tests that there is no head-of-line blocking: a slow read delays no other request. */

const SLOW_MS = 2_000;
/** A read that waits behind a slow one takes up to SLOW_MS longer. */
const BOUND_MS = SLOW_MS / 4;

/**
 * Starts a gateway with two keys in front of a core that answers orders slowly and everything else immediately, but
 * in order on each connection, as HTTP requires.
 */
async function setUp(slowMs = SLOW_MS) {
  const turns = new WeakMap<Socket, Promise<unknown>>();
  let asked = 0;
  const { stack, key: slow } = await stackBefore((socket, head) => {
    asked += 1;
    const answerAt = performance.now() + (head.includes('/store/orders') ? slowMs : 0);
    const turn = turns.get(socket) ?? Promise.resolve();
    turns.set(
      socket,
      turn.then(async () => {
        const waitMs = answerAt - performance.now();
        if (waitMs > 0) await sleep(waitMs);
        socket.write(okTo(head));
      }),
    );
  });
  const quick = await stack.issueKey(UNLIMITED);
  for (const key of [slow, quick]) await pets(stack, key);
  return { stack, slow, quick, timesAsked: () => asked };
}

async function timed(ask: Promise<{ status: number }>): Promise<{ status: number; ms: number }> {
  const before = performance.now();
  const { status } = await ask;
  return { status, ms: performance.now() - before };
}

const pets = (stack: Stack, key: string) => timed(send(`${stack.gateway}/v1/pets`, { key }));
const orders = (stack: Stack, key: string) => timed(send(`${stack.gateway}/v1/store/orders`, { key }));

/** Ignores the few responses that were delayed by other work on the machine. */
const typical = (answers: readonly { ms: number }[]) =>
  quantile(
    answers.map(({ ms }) => ms),
    0.9,
  );

test.for(['another client', 'the same client'])(
  'reads of %s are answered immediately while slow reads are in progress',
  TIMED,
  async (who) => {
    const { stack, slow, quick } = await setUp();
    const key = who === 'another client' ? quick : slow;
    const many = () => Promise.all(Array.from({ length: 40 }, () => pets(stack, key)));
    const alone = [...(await many()), ...(await many())];
    const late = Array.from({ length: 9 }, () => orders(stack, slow));
    const behind = await many();
    expect(new Set(behind.map(({ status }) => status))).toEqual(new Set([200]));
    expect(typical(behind)).toBeLessThan(typical(alone) + BOUND_MS);
    const answers = await Promise.all(late);
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
    expect(Math.max(...answers.map(({ ms }) => ms))).toBeLessThan(SLOW_MS + 3 * BOUND_MS);
  },
);

test('other clients never wait behind the repeated slow reads of one client', TIMED, async () => {
  const { stack, slow, quick } = await setUp();
  const alone: { status: number; ms: number }[] = [];
  for (let round = 0; round < 30; round++)
    alone.push(...(await Promise.all(Array.from({ length: 5 }, () => pets(stack, quick)))));
  const late: Promise<{ status: number; ms: number }>[] = [];
  const times: { status: number; ms: number }[] = [];
  for (let round = 0; round < 30; round++) {
    for (let count = 0; count < 3; count++) late.push(orders(stack, slow));
    times.push(...(await Promise.all([pets(stack, quick), pets(stack, quick)])));
    await sleep(20);
  }
  expect(new Set(times.map(({ status }) => status))).toEqual(new Set([200]));
  // Once the gateway has detected that the client is slow, the client gets separate connections.
  expect(typical(times)).toBeLessThan(2 * typical(alone) + 30);
  expect(new Set((await Promise.all(late)).map(({ status }) => status))).toEqual(new Set([200]));
});

test.for([15, 30])('reads of one client that take %i ms delay few reads of others', TIMED, async (slowMs) => {
  const { stack, slow, quick } = await setUp(slowMs);
  const repeated = async (ask: () => Promise<unknown>, end: number) => {
    while (performance.now() < end) await ask();
  };
  const readFor = async (ms: number, into: { ms: number }[]) => {
    const end = performance.now() + ms;
    await Promise.all(Array.from({ length: 4 }, () => repeated(async () => into.push(await pets(stack, quick)), end)));
  };
  const alone: { ms: number }[] = [];
  const beside: { ms: number }[] = [];
  // Both are measured in turns, so that other work on the machine delays both.
  for (let turn = 0; turn < 4; turn++) {
    await readFor(300, alone);
    await Promise.all([readFor(800, beside), repeated(() => orders(stack, slow), performance.now() + 800)]);
  }
  expect(typical(beside)).toBeLessThan(1.5 * typical(alone) + slowMs / 2);
});

test('at most a tenth of the reads are sent twice, however many clients are slow one after another', async () => {
  const { stack, quick, timesAsked } = await setUp(300);
  await pets(stack, quick);
  const keys = await Promise.all(Array.from({ length: 30 }, () => stack.issueKey(UNLIMITED)));
  const before = timesAsked();
  let sent = 0;
  for (const key of keys) {
    const asked = [orders(stack, key), ...Array.from({ length: 20 }, () => pets(stack, quick))];
    sent += asked.length;
    expect(new Set((await Promise.all(asked)).map(({ status }) => status))).toEqual(new Set([200]));
  }
  // At first, a few more than a tenth are sent twice.
  expect(timesAsked() - before).toBeLessThanOrEqual(1.1 * sent + 64);
});

test('slow writes of one client leave connections for the writes of others', async () => {
  const waiting: Socket[] = [];
  const { stack, post } = await stackBefore((socket, head) => {
    if (head.includes('slow')) waiting.push(socket);
    else socket.write(okTo(head));
  });
  const modest = await stack.issueKey(UNLIMITED);
  const slow = Array.from({ length: 200 }, () => post('?slow'));
  await expect.poll(() => waiting.length).toBe(32);
  // If they had to wait, they would time out, because nothing is answered before.
  const others = await Promise.all(Array.from({ length: 20 }, () => post('', {}, { key: modest })));
  expect(new Set(others.map(({ status }) => status))).toEqual(new Set([200]));
  const answering = setInterval(() => {
    for (const socket of waiting.splice(0)) socket.write('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]');
  }, 5);
  cleanUp(() => clearInterval(answering));
  expect(new Set((await Promise.all(slow)).map(({ status }) => status))).toEqual(new Set([200]));
});

test('a gateway stall does not count as a core stall', async () => {
  const { stack, quick, timesAsked } = await setUp();
  const before = timesAsked();
  for (let round = 0; round < 10; round++) {
    const answers = Array.from({ length: 20 }, () => pets(stack, quick));
    await sleep(5);
    const until = performance.now() + 150;
    while (performance.now() < until);
    await Promise.all(answers);
  }
  expect(timesAsked() - before).toBeLessThanOrEqual(200 + 20);
});
