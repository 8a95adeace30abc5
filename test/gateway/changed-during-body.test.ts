import { once } from 'node:events';
import http from 'node:http';
import { json } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { startFaultProxy } from '../support/fault-proxy.ts';
import { send } from '../support/http.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { bothStacks, type Stack, startStack } from '../support/stack.ts';

const { url } = await emptyDatabase();
const PET = JSON.stringify({ name: 'Rex', categoryId: 1, status: 'available' });

/**
 * Sends a POST whose body is complete only after `meanwhile`. @returns the status; the error code if there is one; and,
 * for a 429, the headers that report the limits
 */
async function postDuring({ gateway }: Stack, key: string, meanwhile: () => Promise<unknown>) {
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json', 'content-length': PET.length };
  const request = http.request(`${gateway}/v1/pets`, { method: 'POST', headers });
  request.write(PET.slice(0, 5));
  const answered = once(request, 'response') as Promise<[http.IncomingMessage]>;
  await meanwhile();
  request.end(PET.slice(5));
  const [response] = await answered;
  const {
    'retry-after': retryAfter,
    'x-ratelimit-remaining': remaining,
    'x-ratelimit-reset': reset,
  } = response.headers;
  const { code } = (await json(response)) as { code?: string };
  if (response.statusCode !== 429) return [response.statusCode, code];
  return [response.statusCode, code, { retryAfter, remaining, reset: Number(reset) - Math.floor(Date.now() / 1_000) }];
}

const soon = expect.toSatisfy((seconds) => Number(seconds) > 50 && Number(seconds) <= 61);
const BANNED = { retryAfter: soon, remaining: '0', reset: soon };
const CHANGES: [what: string, method: string, path: string, body: unknown, outcome: unknown[]][] = [
  ['revoked', 'DELETE', '', undefined, [401, 'unauthorized']],
  ['disabled', 'PATCH', '', { disabled: true }, [401, 'unauthorized']],
  ['banned', 'PUT', '/ban', { seconds: 60, reason: 'test' }, [429, 'key_banned', BANNED]],
  ['renamed', 'PATCH', '', { name: 'another' }, [201, undefined]],
  ['given a limit below its usage', 'PATCH', '', { minute: 1 }, [201, undefined]],
];

test('a request without a body is refused if its key is revoked before the reply to its decision arrives', async () => {
  const proxy = await startFaultProxy(url);
  const stack = await startStack({ REDIS_URL: proxy.url, REDIS_TIMEOUT_MS: '5000' });
  const key = await stack.issueKey();
  const ask = () => send(`${stack.gateway}/v1/pets`, { key });
  expect((await ask()).status).toBe(200);
  proxy.set({ kind: 'hold', to: 'evalsha' });
  const asked = ask();
  await sleep(50);
  // The change may be acknowledged later than usual if Redis was slow a moment ago.
  expect((await stack.admin('DELETE', `/keys/${idOf(key)}`)).status).toBe(204);
  proxy.set({ kind: 'pass' });
  expect((await asked).status).toBe(401);
});

describe.for(bothStacks(url))('with %s', async ([, environment]) => {
  const stack = await startStack(environment);

  test.for(CHANGES)(
    'a POST gets the right response if its key is %s while the body arrives',
    async ([, method, path, body, outcome]) => {
      const key = await stack.issueKey();
      const pets = async () => ((await send(`${stack.core}/v1/pets`)).json as unknown[]).length;
      const decided = async () =>
        ((await stack.admin('GET', `/keys/${idOf(key)}`)).json as { admitted: number }).admitted;
      const change = async () => {
        await expect.poll(decided).toBe(1);
        expect((await stack.admin(method, `/keys/${idOf(key)}${path}`, body)).status).toBeLessThan(300);
      };
      const before = await pets();
      expect(await postDuring(stack, key, change)).toEqual(outcome);
      expect((await pets()) - before).toBe(outcome[0] === 201 ? 1 : 0);
    },
  );
});
