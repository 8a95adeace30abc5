import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { withCheck } from '../support/credentials.ts';
import { type Answer, post, send, sendBytes } from '../support/http.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { bothStacks, startStack } from '../support/stack.ts';

const { url: redisUrl } = await emptyDatabase();

const nowSeconds = () => Date.now() / 1_000;

function expectLimits({ headers }: Answer, limit: number): void {
  expect(headers['x-ratelimit-limit']).toBe(String(limit));
  expect(headers['x-ratelimit-remaining']).toMatch(/^\d+$/);
  expect(Number(headers['x-ratelimit-remaining'])).toBeLessThanOrEqual(limit);
  const untilReset = Number(headers['x-ratelimit-reset']) - nowSeconds();
  expect(untilReset).toBeGreaterThan(-2);
  expect(untilReset).toBeLessThan(86_402);
}

describe.for(bothStacks(redisUrl))('with %s', async ([, environment]) => {
  const stack = await startStack(environment);
  const pets = `${stack.gateway}/v1/pets`;
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

  test('every response reports the limits of its key, whatever the status', async () => {
    // The day limit is the tighter one. It refills one token every five minutes, so none is refilled during the test.
    const key = await stack.issueKey({ minute: 1_000, day: 300 });
    const answers = [
      await send(pets, { key }),
      await send(pets, { key, method: 'HEAD' }),
      await post(pets, { name: 'Rex', categoryId: 1 }, { key }),
      await post(pets, '{', { key }),
      await send(`${pets}/99`, { key }),
      await send(`${stack.gateway}/nowhere`, { key }),
      await send(pets, { key, method: 'DELETE' }),
      await post(pets, 'a'.repeat(70_000), { key }),
      await post(pets, 'x', { key, headers: { 'content-type': 'text/plain' } }),
    ];
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 201, 400, 404, 404, 405, 413, 415]);
    for (const answer of answers) expectLimits(answer, 300);
    const remaining = answers.map(({ headers }) => Number(headers['x-ratelimit-remaining']));
    expect(remaining).toEqual(answers.map((_, index) => 299 - index));
  });

  test('each refused request gets its own place in line, and X-RateLimit-Reset agrees with Retry-After', async () => {
    // One token is refilled every five minutes, so none is refilled during the test.
    const key = await stack.issueKey({ minute: 1_000, day: 288 });
    const admitted = await Promise.all(Array.from({ length: 288 }, () => send(pets, { key })));
    expect(new Set(admitted.map(({ status }) => status))).toEqual(new Set([200]));
    const refused = [await send(pets, { key }), await send(pets, { key }), await send(pets, { key })];
    expect(refused.map(({ status }) => status)).toEqual([429, 429, 429]);
    for (const [at, { headers }] of refused.entries()) {
      expect(Math.abs(Number(headers['retry-after']) - 300 * (at + 1))).toBeLessThan(20);
      expect(
        Math.abs(Number(headers['x-ratelimit-reset']) - nowSeconds() - Number(headers['retry-after'])),
      ).toBeLessThan(20);
      expect(headers.ratelimit).toBe(
        `"day";r=0;t=${headers['retry-after']};store-limit=288;store-remaining=0;store-reset=${headers['retry-after']}`,
      );
    }
    const [first, second] = refused.map(({ headers }) => Number(headers['x-ratelimit-reset'])) as [number, number];
    expect(second - first).toBe(300);
  });

  test('a refused request is admitted after its Retry-After', async () => {
    const key = await stack.issueKey({ minute: 60, day: 1_000 });
    let answer = await send(pets, { key });
    while (answer.status === 200) answer = await send(pets, { key });
    expect(answer.json).toEqual({ code: 'rate_limit_exceeded', message: expect.any(String), status: 429 });
    expectLimits(answer, 60);
    expect(answer.headers['x-ratelimit-remaining']).toBe('0');
    expect(answer.headers['retry-after']).toMatch(/^[12]$/);
    await sleep(Number(answer.headers['retry-after']) * 1_000);
    expect((await send(pets, { key })).status).toBe(200);
  });

  test('X-RateLimit-Reset is never earlier than the next token, even if a ban expires earlier', async () => {
    const key = await stack.issueKey({ plan: 'free', minute: 60, day: 1 });
    await send(pets, { key });
    await stack.admin('PUT', `/keys/${idOf(key)}/ban`, { seconds: 10 });
    await expect.poll(async () => (await send(pets, { key })).json).toMatchObject({ code: 'key_banned' });
    const { headers } = await send(pets, { key });
    expect(headers['x-ratelimit-limit']).toBe('1');
    const untilReset = Number(headers['x-ratelimit-reset']) - nowSeconds();
    expect(untilReset).toBeGreaterThanOrEqual(Number(headers['retry-after']) - 1);
  });

  test('the headers describe the tighter bucket', async () => {
    const key = await stack.issueKey({ minute: 10, day: 5 });
    const answer = await send(pets, { key });
    expectLimits(answer, 5);
    expect(answer.headers['ratelimit-policy']).toBe('"minute";q=10;w=60, "day";q=5;w=86400');
    expect(answer.headers.ratelimit).toBe(
      '"minute";r=9;t=54, "day";r=4;t=69120;store-limit=5;store-remaining=4;store-reset=17280',
    );
  });

  test('the headers describe the day bucket if both are empty', async () => {
    const key = await stack.issueKey({ minute: 1, day: 1 });
    const { headers } = await send(pets, { key });
    expect([headers['x-ratelimit-remaining'], Number(headers['x-ratelimit-reset']) > nowSeconds() + 3_600]).toEqual([
      '0',
      true,
    ]);
  });

  test.for(refused)('the response is 401 without a reason: %s', async ([, headers]) => {
    const answer = await send(pets, { headers });
    expect(answer.status).toBe(401);
    expect(answer.text).toBe(
      '{"code":"unauthorized","message":"A valid API key is required in the header Authorization: Bearer as_...","status":401}',
    );
    expect(answer.headers['www-authenticate']).toBe('Bearer');
    expect(answer.headers['x-ratelimit-limit']).toBe('60');
    expect(lasting(answer)).toEqual(lasting(await send(pets)));
  });

  test.for(['Bearer', 'bearer', 'BEARER'])('the scheme may be spelled %s', async (scheme) => {
    const answer = await send(pets, { headers: { authorization: `${scheme} ${good}` } });
    expect(answer.status).toBe(200);
  });

  test('a wrong secret uses no token of the key with the same id', async () => {
    const before = await send(pets, { key: good });
    for (let sent = 0; sent < 5; sent++) await send(pets, { key: wrongSecret });
    const after = await send(pets, { key: good });
    expect(Number(after.headers['x-ratelimit-remaining'])).toBeGreaterThanOrEqual(
      Number(before.headers['x-ratelimit-remaining']) - 1,
    );
  });
});

test('responses to requests without a key, even malformed ones, report the limits of the address', async () => {
  const stack = await startStack();
  expectLimits(await send(`${stack.gateway}/v1/pets`), 60);
  expectLimits(await send(`${stack.gateway}//`), 60);
  const raw = await sendBytes(stack.gateway, 'GET / HTTP/1.1\r\nbroken\r\n\r\n');
  expect(raw).toMatch(/^HTTP\/1.1 400 [\s\S]*\r\nX-RateLimit-Limit: 60\r\n[\s\S]*\r\n\r\n\{"code":"invalid_request"/);
});

test('a request with an unknown HTTP version is charged to the address, like every malformed one', async () => {
  const stack = await startStack();
  const left = async () =>
    Number(/X-RateLimit-Remaining: (\d+)/.exec(await sendBytes(stack.gateway, 'GET / HTTP/3.0\r\n\r\n'))?.[1]);
  const first = await left();
  expect(await left()).toBeLessThan(first);
});

test('the RateLimit fields of the draft can be switched off', async () => {
  const stack = await startStack({ RATELIMIT_FIELDS: 'off' });
  const answer = await send(`${stack.gateway}/v1/pets`, { key: await stack.issueKey() });
  expect(answer.headers['ratelimit-policy']).toBeUndefined();
  expect(answer.headers.ratelimit).toBeUndefined();
  expectLimits(answer, 60);
});

test('an address gets 429 after 60 requests a minute without a key, and a valid key from it still works', async () => {
  const stack = await startStack();
  const key = await stack.issueKey();
  const statuses: number[] = [];
  for (let sent = 0; sent < 62; sent++) statuses.push((await send(`${stack.gateway}/v1/pets`)).status);
  expect(statuses.filter((status) => status === 401).length).toBeGreaterThanOrEqual(60);
  expect(statuses.at(-1)).toBe(429);
  // Each refused request takes a place in line, so the next place is a few seconds away.
  const { headers, text } = await send(`${stack.gateway}/v1/pets`);
  expect(['2', '3']).toContain(headers['retry-after']);
  expect(text).toContain('without a valid API key from this address');
  expect((await send(`${stack.gateway}/v1/pets`, { key })).status).toBe(200);
});

const VARYING = ['date', 'x-request-id', 'x-ratelimit-remaining', 'x-ratelimit-reset', 'ratelimit'];

/** Returns a response without the headers that differ between any two requests. */
function lasting({ status, text, headers }: Answer) {
  return { status, text, headers: Object.entries(headers).filter(([name]) => !VARYING.includes(name)) };
}
