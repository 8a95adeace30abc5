import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { withCheck } from '../support/credentials.ts';
import { type Answer, send } from '../support/http.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { bothStacks, startStack } from '../support/stack.ts';

const { url: redisUrl } = await emptyDatabase();

describe.for(bothStacks(redisUrl))('with %s', async ([, environment]) => {
  const stack = await startStack(environment);
  const good = await stack.issueKey();
  const other = await stack.issueKey();
  const revoked = await stack.issueKey();
  await stack.admin('DELETE', `/keys/${idOf(revoked)}`);
  const expired = await stack.issueKey({ expiresAt: new Date(Date.now() + 300).toISOString() });
  await sleep(301);
  const unknownId = withCheck(`as_000000000000_${good.slice(16, 48)}`);
  const wrongSecret = withCheck(`${good.slice(0, 16)}${other.slice(16, 48)}`);

  const refused: [name: string, headers: Record<string, string | string[]>][] = [
    ['no Authorization', {}],
    ['the scheme Basic', { authorization: 'Basic dXNlcjpwYXNz' }],
    ['an empty bearer token', { authorization: 'Bearer ' }],
    ['only the scheme', { authorization: 'Bearer' }],
    ['two Authorization headers', { Authorization: [`Bearer ${good}`, `Bearer ${good}`] }],
    ['a key with spaces', { authorization: `Bearer ${good.slice(0, 20)} ${good.slice(20)}` }],
    ['a word after the key', { authorization: `Bearer ${good} more` }],
    ['a key of 10 kB', { authorization: `Bearer as_${'a'.repeat(10_000)}` }],
    ['a wrong checksum', { authorization: `Bearer ${good.slice(0, -1)}${good.endsWith('a') ? 'b' : 'a'}` }],
    ['an unknown id with a valid checksum', { authorization: `Bearer ${unknownId}` }],
    ['a wrong secret with a valid checksum', { authorization: `Bearer ${wrongSecret}` }],
    ['a revoked key', { authorization: `Bearer ${revoked}` }],
    ['an expired key', { authorization: `Bearer ${expired}` }],
    ['the key in X-Api-Key', { 'x-api-key': good }],
  ];

  test.for(refused)('the response is 401 without a reason: %s', async ([, headers]) => {
    const answer = await send(`${stack.gateway}/v1/pets`, { headers });
    expect(answer.status).toBe(401);
    expect(answer.text).toBe(
      '{"code":"unauthorized","message":"A valid API key is required in the header Authorization: Bearer as_...","status":401}',
    );
    expect(answer.headers['www-authenticate']).toBe('Bearer');
    expect(answer.headers['x-ratelimit-limit']).toBe('60');
    expect(lasting(answer)).toEqual(lasting(await send(`${stack.gateway}/v1/pets`)));
  });

  test.for(['Bearer', 'bearer', 'BEARER'])('the scheme may be spelled %s', async (scheme) => {
    const answer = await send(`${stack.gateway}/v1/pets`, { headers: { authorization: `${scheme} ${good}` } });
    expect(answer.status).toBe(200);
  });

  test('a wrong secret uses no token of the key with the same id', async () => {
    const before = await send(`${stack.gateway}/v1/pets`, { key: good });
    for (let sent = 0; sent < 5; sent++) await send(`${stack.gateway}/v1/pets`, { key: wrongSecret });
    const after = await send(`${stack.gateway}/v1/pets`, { key: good });
    expect(Number(after.headers['x-ratelimit-remaining'])).toBeGreaterThanOrEqual(
      Number(before.headers['x-ratelimit-remaining']) - 1,
    );
  });
});

test('an address gets 429 after 60 requests a minute without a key, and a valid key from it still works', async () => {
  const stack = await startStack();
  const key = await stack.issueKey();
  const statuses: number[] = [];
  for (let sent = 0; sent < 62; sent++) statuses.push((await send(`${stack.gateway}/v1/pets`)).status);
  expect(statuses.filter((status) => status === 401).length).toBeGreaterThanOrEqual(60);
  expect(statuses.at(-1)).toBe(429);
  // Each refused request takes a place in line, so the next place is a few seconds away.
  expect(['2', '3']).toContain((await send(`${stack.gateway}/v1/pets`)).headers['retry-after']);
  expect((await send(`${stack.gateway}/v1/pets`, { key })).status).toBe(200);
});

const VARYING = ['date', 'x-request-id', 'x-ratelimit-remaining', 'x-ratelimit-reset', 'ratelimit'];

/** Returns a response without the headers that differ between any two requests. */
function lasting({ status, text, headers }: Answer) {
  return { status, text, headers: Object.entries(headers).filter(([name]) => !VARYING.includes(name)) };
}
