import { IncomingMessage, ServerResponse } from 'node:http';
import net from 'node:net';
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import { RefusalPacing } from '../../gateway/pipeline/overload.ts';
import { idOf } from '../support/api-key.ts';
import { cleanUp } from '../support/clean-up.ts';
import { send } from '../support/http.ts';
import { startStack, UNLIMITED } from '../support/stack.ts';

/** Tests how fast refusals are sent to clients that ignore them while other requests are served. */

const CONNECTIONS = 500;
const PROMPT = 60;
const MOST_WAITING = 10_000;
const A_SECOND = 1_000;

const stack = await startStack();

async function bannedKey(): Promise<string> {
  const key = await stack.issueKey(UNLIMITED);
  await stack.admin('PUT', `/keys/${idOf(key)}/ban`, { seconds: 3_600 });
  return key;
}

/** Uses up the refusals that a client gets without a delay. */
const annoy = (key: string) =>
  Promise.all(Array.from({ length: PROMPT }, () => send(`${stack.gateway}/v1/pets`, { key })));

/** Sends requests on all connections, a new one after each response. @returns the number of responses so far */
function hammer(key: string): () => number {
  let answers = 0;
  const request = `GET /v1/pets HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${key}\r\n\r\n`;
  for (let at = 0; at < CONNECTIONS; at++) {
    const socket = net.connect(Number(new URL(stack.gateway).port), '127.0.0.1', () => socket.write(request));
    socket.on('error', () => {});
    socket.on('data', () => {
      answers += 1;
      socket.write(request);
    });
    cleanUp(() => socket.destroy());
  }
  return () => answers;
}

test('a client that keeps sending after refusals gets at most a thousand of them a second while others are served', async () => {
  const served = await stack.issueKey(UNLIMITED);
  const answersToBanned = hammer(await bannedKey());
  const serve = async () => expect((await send(`${stack.gateway}/v1/pets`, { key: served })).status).toBe(200);
  await serve();
  await expect.poll(answersToBanned).toBeGreaterThan(PROMPT);
  const [before, startedAt] = [answersToBanned(), performance.now()];
  for (let at = 0; at < 20; at++) {
    await serve();
    await sleep(50);
  }
  const seconds = (performance.now() - startedAt) / 1_000;
  expect(answersToBanned() - before).toBeLessThan(seconds * A_SECOND + PROMPT);
  expect(answersToBanned() - before).toBeGreaterThan(0);

  // A refusal for another client does not wait behind these hundreds.
  const other = await bannedKey();
  await annoy(other);
  await serve();
  const waitedFrom = answersToBanned();
  expect((await send(`${stack.gateway}/v1/pets`, { key: other })).status).toBe(429);
  expect(answersToBanned() - waitedFrom).toBeLessThan(CONNECTIONS / 4);
});

test('the Retry-After of a delayed refusal is computed when it is sent', async () => {
  const served = await stack.issueKey(UNLIMITED);
  const key = await bannedKey();
  const beyond: number[] = [];
  const refused = async () => {
    const { headers } = await send(`${stack.gateway}/v1/pets`, { key });
    beyond.push(Date.now() / 1_000 + Number(headers['retry-after']) - Number(headers['x-ratelimit-reset']));
  };
  const refusals: Promise<void>[] = [];
  const count = 2_500;
  let areOver = false;
  while (!areOver) {
    // Requests are sent in waves, because the kernel resets connections that a busy listener does not accept in time.
    for (let at = 0; at < 250 && refusals.length < count; at++) refusals.push(refused());
    if (refusals.length === count)
      void Promise.allSettled(refusals).then(() => {
        areOver = true;
      });
    await send(`${stack.gateway}/v1/pets`, { key: served });
    await sleep(25);
  }
  await Promise.all(refusals);
  // Retry-After is rounded up to whole seconds.
  expect(Math.max(...beyond)).toBeLessThan(1.5);
});

/**
 * Stops the clock, so that a stalled machine does not change how long ago a client was served.
 * @returns a function that advances the clock
 */
function stopClock(): (ms: number) => void {
  let now = performance.now();
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => now);
  cleanUp(() => clock.mockRestore());
  return (ms) => {
    now += ms;
  };
}

/** Refuses a request from a client on a new connection. @returns the result of RefusalPacing.delay */
const refusalOf = (pacing: RefusalPacing, client: string): Promise<void> | undefined =>
  pacing.delay(client, new ServerResponse(new IncomingMessage(new net.Socket())));

test('when ten thousand refusals wait, the connection of each further one is closed', () => {
  const pacing = new RefusalPacing();
  const refuse = (client: string) => {
    const response = new ServerResponse(new IncomingMessage(new net.Socket()));
    return { isDelayed: pacing.delay(client, response) !== undefined, isCut: response.destroyed };
  };
  while (!refuse('the first').isDelayed);
  /** Shared by all refusals that are sent without a delay. */
  const prompt = new ServerResponse(new IncomingMessage(new net.Socket()));
  for (let waiting = 1; waiting <= MOST_WAITING; waiting++) {
    const client = `client ${waiting}`;
    for (let sent = 0; sent < PROMPT; sent++) void pacing.delay(client, prompt);
    const isFull = waiting === MOST_WAITING;
    expect(refuse(client)).toEqual({ isDelayed: true, isCut: isFull });
  }
});

test('a thousand refusals a second are sent without a delay while requests are served; only further ones wait', () => {
  const advance = stopClock();
  const pacing = new RefusalPacing();
  for (let sent = 0; sent < PROMPT; sent++) void refusalOf(pacing, 'refused');
  pacing.noteAdmitted('served');
  const isDelayed = () => refusalOf(pacing, 'refused') !== undefined;
  for (let second = 0; second < 1_000; second++) {
    expect(isDelayed()).toBe(false);
    advance(1);
  }
  // Four refusals may be sent at once. The served request adds only a quarter of one, so the fifth waits.
  expect(Array.from({ length: 5 }, isDelayed)).toEqual([false, false, false, false, true]);
});

test('only served requests of other clients slow down refusals, and refused clients take turns', async () => {
  stopClock();
  const pacing = new RefusalPacing();
  const released: string[] = [];
  const refuse = (client: string, times: number) => {
    for (let sent = 0; sent < times; sent++) void refusalOf(pacing, client)?.then(() => released.push(client));
  };
  const letOut = async () => {
    released.length = 0;
    await nextTurn();
    return released.length;
  };
  pacing.noteAdmitted('a');
  refuse('a', PROMPT + 500);
  expect(await letOut()).toBe(32);
  pacing.noteAdmitted('a');
  expect(await letOut()).toBe(32);
  refuse('b', PROMPT + 2);
  // In the current turn, only refusals for `a` are sent.
  await letOut();
  expect(released.filter((client) => client === 'b')).toHaveLength(2);
  pacing.noteAdmitted('b');
  await letOut();
  expect(await letOut()).toBeLessThanOrEqual(4);
});

test('the more requests are served, the more refusals are sent per turn, up to a maximum', async () => {
  const advance = stopClock();
  const pacing = new RefusalPacing();
  let released = 0;
  for (let sent = 0; sent < PROMPT + 500; sent++) void refusalOf(pacing, 'refused')?.then(() => (released += 1));
  /** Returns the number of refusals sent in the next turn after this many served requests. */
  const letOutBeside = async (served: number) => {
    for (let at = 0; at < served; at++) pacing.noteAdmitted('served');
    const before = released;
    advance(4);
    while (released === before) await nextTurn();
    return released - before;
  };
  await letOutBeside(1);
  expect(await letOutBeside(1)).toBe(4);
  expect(await letOutBeside(40)).toBe(10);
  expect(await letOutBeside(0)).toBe(4);
  expect(await letOutBeside(10_000)).toBe(32);
  expect(await letOutBeside(0)).toBe(4);
});

test('the refusal of a body that is too large counts as several refusals, even if its request was admitted', async () => {
  const [served, tooLarge] = [await stack.issueKey(UNLIMITED), await stack.issueKey(UNLIMITED)];
  const body = 'x'.repeat(70_000);
  let refused = 0;
  const post = async () => {
    const headers = { 'Content-Type': 'application/json' };
    const { status } = await send(`${stack.gateway}/v1/pets`, { key: tooLarge, method: 'POST', body, headers });
    expect(status).toBe(413);
    refused += 1;
  };
  await Promise.all(Array.from({ length: PROMPT }, post));
  const serve = async () => expect((await send(`${stack.gateway}/v1/pets`, { key: served })).status).toBe(200);
  await serve();
  const [before, startedAt] = [refused, performance.now()];
  const all = Promise.all(Array.from({ length: 60 }, post));
  for (let at = 0; at < 10; at++) {
    await serve();
    await sleep(50);
  }
  const seconds = (performance.now() - startedAt) / 1_000;
  // A body counts as 33 refusals. Admitted requests permit more refusals: at most 28 by now, then one for every four.
  expect(refused - before).toBeLessThan((seconds * A_SECOND + 28 + (60 + 10) / 4) / 33 + 3);
  await all;
});
