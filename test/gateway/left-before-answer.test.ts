import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { send } from '../support/http.ts';
import { serveHttp } from '../support/http-server.ts';
import { eventuallyScraped } from '../support/metrics.ts';
import { connectRaw } from '../support/raw-client.ts';
import { type Stack, startStack, UNLIMITED } from '../support/stack.ts';

/** A client leaves just before the core begins a large answer. The gateway then lets go of the request. */

const LARGE = Buffer.alloc(1_000_000, 'x');
/** Less than passes until the gateway looks for clients that have left, and enough for it to see the end. */
const AHEAD_MS = 5;
/** Half of the connections to a core that carry one request each. */
const MOST_OF_ONE_KEY = 32;
/** Fewer than that in a round, so that a core is still asked where all are held. */
const ROUNDS = 5;
const IN_A_ROUND = 20;
/** Enough for what was sent to be read. */
const LATER_MS = 100;

/** A core that hands each request to the test, which answers. */
async function heldCore(): Promise<{ url: string; next: () => Promise<ServerResponse> }> {
  const [asked, waiting]: [ServerResponse[], ((response: ServerResponse) => void)[]] = [[], []];
  const url = await serveHttp((request, response) => {
    response.setHeader('X-Request-Id', String(request.headers['x-request-id']));
    const take = waiting.shift();
    if (take === undefined) asked.push(response);
    else take(response);
  });
  return { url, next: async () => asked.shift() ?? (await new Promise((resolve) => waiting.push(resolve))) };
}

/** A gateway in front of such a core, and a key that is known to ask for large answers. */
async function setUp(settings: Record<string, string> = {}) {
  const core = await heldCore();
  const stack = await startStack({ CORE_URL: core.url, ...settings });
  const key = await stack.issueKey(UNLIMITED);
  const list = () => send(`${stack.gateway}/v1/pets`, { key });
  const first = list();
  (await core.next()).end(LARGE);
  expect((await first).status).toBe(200);
  return { stack, next: core.next, list, ask: (requests: number) => ask(stack, key, requests) };
}

async function ask(stack: Stack, key: string, requests: number): Promise<Socket> {
  const { socket } = await connectRaw(stack.gateway);
  socket.write(`GET /v1/pets HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${key}\r\n\r\n`.repeat(requests));
  return socket;
}

const untilNothingIsHeld = ({ adminUrl }: Stack) =>
  eventuallyScraped(adminUrl, (metrics) => metrics.sum('gateway_upstream_in_flight')).toBe(0);

test('no memory is held for clients that left just before their large answers began', async () => {
  const { stack, next, list, ask } = await setUp();
  for (let round = 0; round < ROUNDS; round++) {
    for (let left = 0; left < IN_A_ROUND; left++) {
      const client = await ask(1);
      const response = await next();
      client.resetAndDestroy();
      await sleep(AHEAD_MS);
      response.end(LARGE);
    }
    await untilNothingIsHeld(stack);
  }
  const answers = Array.from({ length: MOST_OF_ONE_KEY }, list);
  const held = await Promise.all(answers.map(next));
  for (const response of held) response.end(LARGE);
  expect((await Promise.all(answers)).map(({ status }) => status)).toEqual(answers.map(() => 200));
});

test('no memory is held for a large answer that waits behind another one, and each request has its log line', async () => {
  // The first of three is never answered.
  const { stack, next, ask } = await setUp({ CORE_TIMEOUT_MS: '1000' });
  const lines = () => stack.log.filter(({ msg }) => msg === 'request').length;
  const before = lines();
  const client = await ask(3);
  await next();
  const [second, third] = [await next(), await next()];
  second.end(LARGE);
  await sleep(LATER_MS);
  client.resetAndDestroy();
  await sleep(LATER_MS);
  third.end(LARGE);
  await untilNothingIsHeld(stack);
  await expect.poll(() => lines() - before).toBe(3);
});
