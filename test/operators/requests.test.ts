import { randomUUID } from 'node:crypto';
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test, vi } from 'vitest';
import { createApiKey } from '../../gateway/limiter/credential.ts';
import type { RequestsAnswer, RequestView } from '../../gateway/operators/api/answers.ts';
import type { Exchange } from '../../gateway/telemetry/exchange.ts';
import { RecentRequests } from '../../gateway/telemetry/recent-requests.ts';
import { digestIn, idOf } from '../support/api-key.ts';
import { cleanUp } from '../support/clean-up.ts';
import { startFaultProxy } from '../support/fault-proxy.ts';
import { faultyCore, okTo } from '../support/faulty-core.ts';
import { type Answer, post, send } from '../support/http.ts';
import { scrape } from '../support/metrics.ts';
import { askOnce as ask, get, viewOf } from '../support/operators.ts';
import { connectRaw } from '../support/raw-client.ts';
import { connectionTo, emptyDatabase, ownRedis } from '../support/redis-database.ts';
import { bothStacks, type Stack, startStack } from '../support/stack.ts';

/** Tests which requests a gateway remembers and how operators query them. */

vi.setConfig({ testTimeout: 60_000 });

const { url: REDIS_URL } = await emptyDatabase();

/** The requests that a query finds. A request is recorded one event-loop turn after its answer. */
const found = (stack: Stack, query = '') => get<RequestsAnswer>(stack, `/requests?${query}`);

const one = async (stack: Stack, id: string): Promise<RequestView | undefined> => {
  let view: RequestView | undefined;
  await expect
    .poll(async () => {
      const { requests } = await found(stack, `q=${id}`);
      expect(requests.length).toBeLessThan(2);
      view = requests[0];
      return view?.status ?? 0;
    })
    .toBeGreaterThan(0);
  return view;
};

describe.for(bothStacks(REDIS_URL))('with %s', ([, environment]) => {
  test('each request is listed with its outcome, reason, retry time and remedy', async () => {
    const stack = await startStack(environment);
    const key = await stack.issueKey({ name: 'acme', plan: 'free', minute: 60, day: 1 });
    const [admitted, refused] = [await ask(stack, key), await ask(stack, key)];
    const stranger = await ask(stack);
    const [{ id: secretId = '' } = {}] = (await viewOf(stack, idOf(key))).secrets;
    const sent = { method: 'GET', path: '/v1/pets', address: '127.0.0.1' };
    const common = { keyId: idOf(key), keyName: 'acme', secretId, ...sent };
    expect(await one(stack, admitted.id)).toMatchObject({ ...common, status: 200, outcome: 'admitted' });
    expect((await one(stack, admitted.id))?.reason).toBeUndefined();
    const retryAfter = Number(refused.headers['retry-after']);
    const why = await one(stack, refused.id);
    expect(why).toMatchObject({ ...common, status: 429, code: 'rate_limit_exceeded', outcome: 'refused' });
    const sentence = /^The key had used up its limit of 1 request per day\. The client could retry at (\S+)\.$/.exec(
      why?.reason ?? '',
    );
    expect(Math.abs(Date.parse(sentence?.[1] ?? '') - Date.now() - 1_000 * retryAfter)).toBeLessThan(3_000);
    expect(why?.advice).toMatch(/^Raise the limit of the key or of its plan \(free\)/);
    const without = await one(stack, stranger.id);
    expect(without).toMatchObject({ status: 401, code: 'unauthorized', outcome: 'malformed' });
    expect(without).not.toHaveProperty('keyId');
    expect(without?.reason).toMatch(/^The request had no API key/);
    const { text } = await stack.admin('GET', '/requests');
    for (const hidden of [key.slice(16), digestIn(key)]) expect(text).not.toContain(hidden);
  });

  test('the reason of a refusal mentions the ban, the disabled or revoked key, the scope or the network', async () => {
    const stack = await startStack(environment);
    const reasonOf = async (answer: { id: string }) => (await one(stack, answer.id))?.reason ?? '';
    const banned = await stack.issueKey();
    await stack.admin('PUT', `/keys/${idOf(banned)}/ban`, { seconds: 600 });
    expect(await reasonOf(await ask(stack, banned))).toMatch(/^An operator had banned the key until \d{4}-\S+Z\.$/);
    await stack.admin('PATCH', '/plans/free', { ban_after: 1, ban_grace_seconds: 0 });
    const loud = await stack.issueKey({ minute: 1 });
    for (let sent = 0; sent < 6; sent++) await ask(stack, loud);
    expect(await reasonOf(await ask(stack, loud))).toContain('because its client kept sending requests before');
    const disabled = await stack.issueKey();
    await stack.admin('PATCH', `/keys/${idOf(disabled)}`, { disabled: true });
    expect(await reasonOf(await ask(stack, disabled))).toBe('The key is disabled.');
    const revoked = await stack.issueKey();
    await stack.admin('DELETE', `/keys/${idOf(revoked)}`);
    expect(await reasonOf(await ask(stack, revoked))).toContain('was revoked');
    const { json } = await stack.admin('POST', `/keys/${idOf(await stack.issueKey())}/secrets`, {
      name: 'narrow',
      scope: ['write'],
    });
    expect(await reasonOf(await ask(stack, (json as { key: string }).key))).toContain('lacks the scope for GET');
    expect(await reasonOf(await ask(stack, await stack.issueKey(), '/nowhere'))).toMatch(/could not be found/);
    // Clients often try keys on /v1/limits, because it costs no token.
    for (const [key, outcome] of [
      [disabled, 'disabled'],
      [revoked, 'unknown'],
      ['malformed', 'malformed'],
    ] as const)
      expect(await one(stack, (await ask(stack, key, '/v1/limits')).id)).toMatchObject({
        outcome,
        status: 401,
      });
  });
});

const retryTimeIn = ({ headers }: Answer) => Date.now() + 1_000 * Number(headers['retry-after']);

/** Expects the refusal to be attributed to the limit of its address, with the retry time from Retry-After. */
function expectAddressLimit(view: RequestView | undefined, retryTime: number) {
  const why = 'In one minute, the address 127.0.0.1 sent too many requests that do not count against a key.';
  const second = new Date(1_000 * Math.ceil(Date.parse(view?.retryAt ?? '') / 1_000)).toISOString();
  expect(view?.reason).toBe(`${why} The client could retry at ${second.replace('.000Z', 'Z')}.`);
  expect(Math.abs(Date.parse(view?.retryAt ?? '') - retryTime)).toBeLessThan(3_000);
  expect(view?.advice).toBe(
    'Check its earlier requests: they have no valid key, or they read the limits or the reference too often.',
  );
}

test('if the limits of a valid key are read too often, it is not reported as invalid', async () => {
  const stack = await startStack();
  const key = await stack.issueKey();
  let last = await ask(stack, key, '/v1/limits');
  while (last.status === 200) last = await ask(stack, key, '/v1/limits');
  const retryTime = retryTimeIn(last);
  const view = await one(stack, last.id);
  expectAddressLimit(view, retryTime);
  expect((await found(stack, `keyId=${idOf(key)}&status=429`)).requests).toEqual([view]);
});

test('a refusal by the address limit is not counted as a repeated refusal of a wrong key', async () => {
  const stack = await startStack();
  const answers: (Answer & { id: string })[] = [];
  const askAs = async (key: string) => answers.push(await ask(stack, key));
  for (let sent = 0; sent < 62; sent++) await askAs('malformed');
  const [retryTime, last] = [retryTimeIn(answers[61] as Answer), answers[61]];
  expectAddressLimit(await one(stack, last?.id ?? ''), retryTime);
  for (let sent = 0; sent < 3; sent++) await askAs(createApiKey().apiKey);
  const limited = answers.slice(60).map(({ id }) => id);
  expect(answers.map(({ status }) => status)).toEqual([...Array(60).fill(401), ...Array(5).fill(429)]);
  const idsOf = async (query: string) => (await found(stack, query)).requests.map(({ requestId }) => requestId);
  await expect.poll(() => idsOf('status=429')).toEqual(limited.toReversed());
  expect(await idsOf('code=rate_limit_exceeded')).toEqual(limited.toReversed());
  const { requests } = await found(stack, 'status=401&limit=100');
  expect(requests.reduce((sum, { repeated }) => sum + 1 + repeated, 0)).toBe(60);
});

test('the duration of a request is broken down, and a request in progress is listed', async () => {
  const core = await faultyCore((socket, head) => void setTimeout(() => socket.write(okTo(head)), 300));
  const stack = await startStack({ CORE_URL: core });
  const asked = ask(stack, await stack.issueKey());
  await expect.poll(async () => (await found(stack)).requests.length).toBe(1);
  expect((await found(stack)).requests[0]).not.toHaveProperty('status');
  const view = await one(stack, (await asked).id);
  const { decision = -1, waiting = -1, core: inCore = -1, sending = -1 } = view?.times ?? {};
  expect(inCore).toBeGreaterThan(250);
  for (const part of [decision, waiting, sending]) expect(part).toBeGreaterThanOrEqual(0);
  expect(Math.abs(decision + waiting + inCore + sending - (view?.durationMs ?? 0))).toBeLessThan(1);
});

test('the duration of a request that the core does not answer is attributed to the core', async () => {
  const stack = await startStack({ CORE_URL: await faultyCore(() => {}), CORE_TIMEOUT_MS: '400' });
  const answer = await ask(stack, await stack.issueKey());
  expect(answer.status).toBe(504);
  const { core: inCore = -1, sending = -1 } = (await one(stack, answer.id))?.times ?? {};
  expect(inCore).toBeGreaterThan(350);
  expect(sending).toBeLessThan(inCore);
});

test('the wait for a body that never arrives in full is part of the duration', async () => {
  const stack = await startStack();
  const id = randomUUID();
  const client = await connectRaw(stack.gateway);
  const head = `POST /v1/pets HTTP/1.1\r\nHost: store\r\nAuthorization: Bearer ${await stack.issueKey()}\r\nX-Request-Id: ${id}`;
  client.socket.write(`${head}\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{`);
  await sleep(400);
  client.socket.destroy();
  const { times, durationMs = 0 } = (await one(stack, id)) ?? {};
  expect(times?.waiting).toBeGreaterThan(250);
  expect(Math.abs((times?.decision ?? 0) + (times?.waiting ?? 0) - durationMs)).toBeLessThan(1);
});

test.for([
  ['admitted', 5, undefined],
  ['refused', 0, 'rate_limit_exceeded'],
] as const)(
  'a request whose client leaves during the decision is recorded once, as %s',
  async ([outcome, tokens, code]) => {
    const { url } = await ownRedis();
    const redis = await startFaultProxy(url);
    const reached: string[] = [];
    const core = await faultyCore((socket, head) => {
      reached.push(head);
      socket.write(okTo(head));
    });
    const stack = await startStack({ REDIS_URL: redis.url, CORE_URL: core, REDIS_TIMEOUT_MS: '5000' });
    const key = await stack.issueKey({ plan: 'enterprise', minute: tokens + 1, day: 1_000 });
    expect((await ask(stack, key)).status).toBe(200);
    const before = await one(stack, (await ask(stack, key)).id);
    expect(before?.outcome).toBe(outcome);
    const [id, sentBefore] = [randomUUID(), reached.length];
    redis.set({ kind: 'hold' });
    const client = await connectRaw(stack.gateway);
    client.socket.write(
      `GET /v1/pets HTTP/1.1\r\nHost: store\r\nAuthorization: Bearer ${key}\r\nX-Request-Id: ${id}\r\n\r\n`,
    );
    await sleep(100);
    client.socket.resetAndDestroy();
    await sleep(100);
    redis.set({ kind: 'pass' });
    expect(await one(stack, id)).toMatchObject({ outcome, status: code === undefined ? 499 : 429, decision: {} });
    expect((await one(stack, id))?.code).toBe(code);
    expect(reached).toHaveLength(sentBefore);
    expect(stack.log.filter(({ requestId }) => requestId === id)).toEqual([expect.objectContaining({ outcome })]);
    const metrics = await scrape(stack.adminUrl);
    const decided = outcome === 'admitted' ? outcome : 'refused_minute';
    expect(metrics.sum('gateway_decisions_total', { outcome: decided })).toBe(outcome === 'admitted' ? 3 : 2);
    expect(metrics.sum('gateway_requests_without_decision_total')).toBe(0);
  },
);

test('a list by tag includes requests without a decision', async () => {
  const stack = await startStack();
  const key = await stack.issueKey({ tags: { team: 'a' } });
  const { headers } = await send(`${stack.gateway}/v1/limits`, { key });
  expect(await one(stack, headers['x-request-id'] as string)).toMatchObject({ status: 200, keyId: idOf(key) });
  await expect.poll(async () => (await found(stack, 'tag=team:a')).requests).toHaveLength(1);
});

test('a gateway with a wrong clock is not forgotten by the others', async () => {
  const { url } = await ownRedis();
  const redis = connectionTo(url);
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() - 600_000 });
  try {
    await startStack({ REDIS_URL: url });
    await expect.poll(() => redis.zcard('gateway:gateways')).toBe(1);
  } finally {
    vi.useRealTimers();
  }
  const [, at] = await redis.zrange('gateway:gateways', 0, '-1', 'WITHSCORES');
  expect(Math.abs(Number(at) - Date.now() / 1_000)).toBeLessThan(60);
});

test('answers have a Server-Timing header only if SERVER_TIMING is set', async () => {
  const core = await faultyCore((socket, head) => void setTimeout(() => socket.write(okTo(head)), 100));
  const [shown, hidden] = [
    await startStack({ CORE_URL: core, SERVER_TIMING: 'on' }),
    await startStack({ CORE_URL: core }),
  ];
  const key = await shown.issueKey({ plan: 'free', minute: 1 });
  const [served, refused] = [await ask(shown, key), await ask(shown, key)];
  expect(served.headers['server-timing']).toMatch(/^decision;dur=[\d.]+, waiting;dur=[\d.]+, core;dur=\d{2,}\.\d{3}$/);
  expect([refused.status, refused.headers['server-timing']]).toEqual([
    429,
    expect.stringMatching(/^decision;dur=[\d.]+$/),
  ]);
  expect((await ask(shown)).headers).not.toHaveProperty('server-timing');
  expect((await ask(hidden, await hidden.issueKey())).headers).not.toHaveProperty('server-timing');
});

test('a core failure is listed once with its cause', async () => {
  const stack = await startStack({ CORE_URL: 'http://127.0.0.1:1' });
  const failed = await ask(stack, await stack.issueKey());
  expect(failed.status).toBe(502);
  const view = await one(stack, failed.id);
  expect([view?.status, view?.outcome, view?.code]).toEqual([502, 'admitted', 'bad_gateway']);
  expect(view?.reason).toMatch(/ECONNREFUSED/);
  expect((await found(stack)).requests).toHaveLength(1);
});

test('an error from the core is found by its code, with advice for the client', async () => {
  const stack = await startStack();
  const id = randomUUID();
  const sent = await post(
    `${stack.gateway}/v1/pets`,
    {},
    { key: await stack.issueKey(), headers: { 'X-Request-Id': id } },
  );
  expect(sent.status).toBe(400);
  const { code = '', advice } = (await one(stack, id)) ?? {};
  expect((await found(stack, `code=${code}`)).requests).toHaveLength(1);
  expect(advice).toMatch(/^Advice for the client: The message names /);
});

test('while Redis hangs, the list arrives within 2 s without key names, and a list filtered by tag gets 503', async () => {
  const redis = await ownRedis();
  const stack = await startStack({ REDIS_URL: redis.url, REDIS_TIMEOUT_MS: '250' });
  const key = await stack.issueKey();
  await ask(stack, key);
  const list = async () => await get<RequestsAnswer>(stack, '/requests');
  await expect.poll(async () => (await list()).requests.length).toBe(1);
  redis.pause();
  cleanUp(() => redis.resume());
  for (let at = 0; at < 2; at++) {
    const askedAt = performance.now();
    const { requests, missing } = await list();
    expect(performance.now() - askedAt).toBeLessThan(1_800);
    expect([requests.length, requests[0]?.keyName, missing]).toEqual([
      1,
      undefined,
      ['the gateways registered in Redis'],
    ]);
  }
  expect((await stack.admin('GET', '/requests?tag=team:a')).status).toBe(503);
});

/** Which requests a process keeps, and how it counts and lists them. */

const BUCKETS = ['minute', 'day'].map((name) => ({ name, limit: 60, window: 60, tokens: 0, fraction: 0 }));

/** A record of a request with a key, as a gateway would create it. */
const seen = (id: string, keyId: string, outcome: 'admitted' | 'refused') =>
  ({
    ...{ id, request: { method: 'GET' }, canonical: { path: '/v1/pets' }, network: '192.0.2.1', keyId, outcome },
    verdict: { outcome, buckets: BUCKETS, now: 0, plan: 'free', bannedUntil: 0, rejected: '' },
    ...{
      status: outcome === 'admitted' ? 200 : 429,
      startedAt: performance.now(),
      endedAt: performance.now(),
      notedPlace: 0,
    },
  }) as unknown as Exchange;

test('refusals are kept longer than successes, and an aggressive client displaces no refusals of others', async () => {
  const recent = new RecentRequests(100, { version: 'a version' });
  const record = (one: Exchange) => {
    recent.decided(one);
    recent.ended(one);
  };
  record(seen('calm refused', 'calm', 'refused'));
  for (let at = 0; at < 5_000; at++) record(seen(`loud ${at}`, 'loud', 'refused'));
  for (let at = 0; at < 1_000; at++) record(seen(`admitted ${at}`, 'calm', 'admitted'));
  const all = await recent.find({ limit: 1_000 });
  expect(all.filter(({ outcome }) => outcome === 'admitted')).toHaveLength(50);
  const refused = all.filter(({ outcome }) => outcome === 'refused');
  expect(refused.length).toBeLessThanOrEqual(30);
  expect(refused.reduce((sum, { repeated }) => sum + repeated, 0)).toBeGreaterThan(4_000);
  expect(refused.map(({ requestId }) => requestId)).toContain('calm refused');
});

test('admitted requests that fail do not displace successful ones', async () => {
  const recent = new RecentRequests(100, { version: 'a version' });
  const inFlight = Array.from({ length: 5 }, (_, at) => seen(`slow ${at}`, 'loud', 'admitted'));
  for (let at = 0; at < 40; at++) {
    const one = seen(`served ${at}`, 'calm', 'admitted');
    recent.decided(one);
    recent.ended(one);
  }
  for (const one of inFlight) recent.decided(one);
  for (let at = 0; at < 5_000; at++) {
    const one = Object.assign(seen(`missing ${at}`, 'loud', 'admitted'), { status: 404 });
    recent.decided(one);
    if (at % 1_000 === 0) recent.ended(Object.assign(inFlight[at / 1_000] as Exchange, { status: 404 }));
    recent.ended(one);
  }
  const served = (await recent.find({ limit: 1_000 })).filter(({ status }) => status === 200);
  expect(served.map(({ requestId }) => requestId)).toEqual(Array.from({ length: 40 }, (_, at) => `served ${39 - at}`));
});

test('a refusal is counted only in an entry of its own key, however many refusals of other keys followed', async () => {
  vi.useFakeTimers({ toFake: ['Date'] });
  cleanUp(() => vi.useRealTimers());
  const recent = new RecentRequests(100, { version: 'a version' });
  const sent = new Map<string, number>();
  const refuse = (keyId: string, times: number) => {
    for (let at = 0; at < times; at++) recent.ended(seen(`${keyId} ${at}`, keyId, 'refused'));
    sent.set(keyId, (sent.get(keyId) ?? 0) + times);
  };
  refuse('loud', 7);
  for (let at = 0; at < 11; at++) refuse(`calm ${at}`, 6);
  refuse('loud', 200);
  const listed = new Map<string, number>();
  for (const { keyId = '', repeated } of await recent.find({ limit: 1_000 }))
    listed.set(keyId, (listed.get(keyId) ?? 0) + 1 + repeated);
  for (const [keyId, count] of listed) expect([keyId, count <= (sent.get(keyId) ?? 0)]).toEqual([keyId, true]);
  expect(listed.get('loud')).toBe(200);
});

test('a list contains each request once, even if others are recorded or fail while the list is built', async () => {
  const recent = new RecentRequests(4_000, { version: 'a version' });
  let made = 0;
  const record = (status: number) => {
    const one = Object.assign(seen(`request ${made++}`, 'loud', 'admitted'), { status });
    recent.decided(one);
    return one;
  };
  for (let at = 0; at < 2_000; at++) recent.ended(record(200));
  for (const status of [200, 404]) {
    const running = Array.from({ length: 300 }, () => record(status));
    const found = recent.find({ limit: 10_000 });
    while (running.length > 0) {
      for (const one of running.splice(0, 60)) recent.ended(one);
      if (status === 200) for (let at = 0; at < 60; at++) recent.ended(record(200));
      await nextTurn();
    }
    const ids = (await found).map(({ requestId }) => requestId);
    const cursors = (await found).map(({ cursor }) => cursor);
    expect(new Set(ids).size).toBe(ids.length);
    expect(cursors).toEqual(cursors.toSorted().reverse());
    const expected = Array.from({ length: 1_000 }, (_, at) => `request ${at + 700}`);
    if (status === 200) expect(ids).toEqual(expect.arrayContaining(expected));
  }
});
