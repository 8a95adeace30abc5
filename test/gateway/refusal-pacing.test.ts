import { IncomingMessage, ServerResponse } from 'node:http';
import net from 'node:net';
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { RefusalPacing } from '../../gateway/pipeline/refusal-pacing.ts';
import { idOf } from '../support/api-key.ts';
import { cleanUp } from '../support/clean-up.ts';
import { send } from '../support/http.ts';
import { startStack } from '../support/stack.ts';

/** Refusals of clients that keep on sending, beside requests that are served. */

const unlimited = { plan: 'enterprise', minute: 1_000_000, day: 1_000_000 };
const CONNECTIONS = 500;
const PROMPT = 60;
const MOST_WAITING = 10_000;
const A_SECOND = 1_000;

const stack = await startStack();

async function bannedKey(): Promise<string> {
  const key = await stack.issueKey(unlimited);
  await stack.admin('PUT', `/keys/${idOf(key)}/ban`, { seconds: 3_600 });
  return key;
}

/** Uses up the refusals that are sent at once. */
const annoy = (key: string) =>
  Promise.all(Array.from({ length: PROMPT }, () => send(`${stack.gateway}/v1/pets`, { key })));

/** On each connection the next request follows the answer. @returns how many answers there were so far */
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

test('beside requests that are served, a client that keeps on gets a thousand refusals a second', async () => {
  const served = await stack.issueKey(unlimited);
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

  // Another client that is refused does not wait behind those hundreds.
  const other = await bannedKey();
  await annoy(other);
  await serve();
  const waitedFrom = answersToBanned();
  expect((await send(`${stack.gateway}/v1/pets`, { key: other })).status).toBe(429);
  expect(answersToBanned() - waitedFrom).toBeLessThan(CONNECTIONS / 4);
});

test('when ten thousand refusals wait, the connection of another is cut, whoever sent it', () => {
  const pacing = new RefusalPacing();
  const refuse = (client: string) => {
    const response = new ServerResponse(new IncomingMessage(new net.Socket()));
    return { isDelayed: pacing.turn(client, response) !== undefined, isCut: response.destroyed };
  };
  for (let waiting = 0; waiting <= MOST_WAITING; waiting++) {
    const client = `client ${waiting}`;
    for (let sent = 0; sent < PROMPT; sent++) refuse(client);
    const isFull = waiting === MOST_WAITING;
    expect(refuse(client)).toEqual({ isDelayed: true, isCut: isFull });
  }
});

test('a client makes no room for its own requests, and the refusals of several take turns', async () => {
  const pacing = new RefusalPacing();
  const told: string[] = [];
  const refuse = (client: string, times: number) => {
    for (let sent = 0; sent < times; sent++) {
      const turn = pacing.turn(client, new ServerResponse(new IncomingMessage(new net.Socket())));
      if (turn !== undefined) void turn.then(() => told.push(client));
    }
  };
  const letOut = async () => {
    told.length = 0;
    await nextTurn();
    return told.length;
  };
  pacing.makeRoomFor('a');
  refuse('a', PROMPT + 500);
  expect(await letOut()).toBe(32);
  pacing.makeRoomFor('a');
  expect(await letOut()).toBe(32);
  refuse('b', PROMPT + 2);
  // The turn that has begun is still one of `a` alone.
  await letOut();
  expect(told.filter((client) => client === 'b')).toHaveLength(2);
  pacing.makeRoomFor('b');
  await letOut();
  expect(await letOut()).toBeLessThanOrEqual(4);
});
