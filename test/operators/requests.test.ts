import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test, vi } from 'vitest';
import { createApiKey } from '../../gateway/limiter/credential.ts';
import type {
  DoctorAnswer,
  ExplainAnswer,
  RequestsAnswer,
  RequestView,
  SeenFinding,
  TrafficAnswer,
} from '../../gateway/operators/api/answers.ts';
import { digestIn, idOf } from '../support/api-key.ts';
import { cleanUp } from '../support/clean-up.ts';
import { ctl } from '../support/ctl.ts';
import { faultyCore, okTo } from '../support/faulty-core.ts';
import { type Answer, post, send } from '../support/http.ts';
import { askOnce as ask, get, pagesOf, viewOf } from '../support/operators.ts';
import { connectRaw } from '../support/raw-client.ts';
import { emptyDatabase, ownRedis } from '../support/redis-database.ts';
import { bothStacks, type Stack, startStack } from '../support/stack.ts';
import { eventually, signalAll, startWorkers, type Workers } from '../support/workers.ts';

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
  expect(view?.reason).toBe(`${why} The client could retry at ${view?.retryAt?.replace(/\.\d+Z$/, 'Z')}.`);
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

/** cli-requests.test.ts has the other filters. */
test('requests are found by status and text regardless of case, in pages that list each request once', async () => {
  const stack = await startStack();
  const [first, second] = [await stack.issueKey(), await stack.issueKey({ plan: 'free', minute: 1 })];
  const ids: string[] = [];
  for (let at = 0; at < 12; at++) ids.push((await ask(stack, first)).id);
  for (let at = 0; at < 3; at++) await ask(stack, second);
  const count = async (query: string) => (await found(stack, `${query}&limit=200`)).requests.length;
  await expect.poll(() => count('status=2xx')).toBe(13);
  const queries = ['status=4XX', `q=${ids[4]?.toUpperCase()}`, 'q=%2Fv1%2Fpets', 'q=nothing'];
  expect(await Promise.all(queries.map(count))).toEqual([2, 1, 15, 0]);
  const pages = await pagesOf<RequestsAnswer>(stack, '/requests?limit=4');
  const paged = pages.flatMap(({ requests }) => requests.map(({ requestId }) => requestId));
  expect(paged).toHaveLength(15);
  expect(new Set(paged).size).toBe(15);
  expect(paged.slice(3)).toEqual(ids.toReversed());
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

/** @returns the worst finding in the console, and the first finding of the doctor about a gateway */
async function findingsOn({ admin }: Workers) {
  const traffic = (await admin('/traffic')).json as TrafficAnswer;
  const doctor = (await admin('/doctor')).json as DoctorAnswer;
  return [traffic.health, doctor.findings.find(({ about }) => about.startsWith('gateway'))];
}

describe('with two gateways of two workers each', async () => {
  const { url, redis } = await emptyDatabase();
  const [here, there] = [await startWorkers({ REDIS_URL: url }), await startWorkers({ REDIS_URL: url })];

  test("a hanging worker is listed as missing, and another gateway reports it with its gateway's name", async () => {
    const missingAt = async ({ admin }: Workers) => ((await admin('/requests')).json as RequestsAnswer).missing;
    await eventually(() => missingAt(there)).toEqual([]);
    const pid = here.pids()[1] as number;
    process.kill(pid, 'SIGSTOP');
    // On a busy machine, a whole gateway may take too long to answer.
    await eventually(() => Promise.all([here, there].map(missingAt))).toEqual([
      ['worker 2'],
      [`${hostname()}:${here.child.pid} worker 2`],
    ]);
    const about = `gateway ${hostname()}:${here.child.pid} worker 2`;
    const silent = expect.objectContaining({ about, status: 'unknown', found: 'does not answer' });
    await eventually(() => findingsOn(there)).toEqual([silent, silent]);
    process.kill(pid, 'SIGCONT');
    await eventually(() => findingsOn(there)).toEqual([undefined, undefined]);
  });

  test('requests on two gateways are merged, and a hanging gateway is listed as missing, by ctl as well', async () => {
    const key = await here.issueKey();
    const pids = new Set<number>();
    const list = async () => (await here.admin(`/requests?keyId=${idOf(key)}&limit=200`)).json as RequestsAnswer;
    await eventually(async () => {
      for (const one of [here, there]) await Promise.all(Array.from({ length: 8 }, () => ask(one, key)));
      const { requests, missing } = await list();
      expect(missing).toEqual([]);
      for (const { gateway } of requests) pids.add(gateway.pid);
      return pids.size;
    }).toBe(4);
    const { requests } = await list();
    const times = requests.map(({ at }) => Date.parse(at));
    // Requests are listed newest first, give or take a second.
    for (const [at, time] of times.entries()) expect(time).toBeLessThan((times[at - 1] ?? Infinity) + 1_000);
    // The answer has the decisions of all workers of the gateway that received the call.
    const explain = async (limit: number) =>
      ((await here.admin(`/keys/${idOf(key)}/explain?limit=${limit}`)).json as ExplainAnswer).decisions;
    const decisions = await explain(200);
    expect(new Set(decisions.map(({ gateway }) => gateway.pid))).toEqual(new Set(here.pids()));
    const decidedAt = decisions.map(({ at }) => at);
    expect(decidedAt).toEqual(decidedAt.toSorted().reverse());
    for (const pid of here.pids()) {
      const made = decisions.find(({ gateway }) => gateway.pid === pid);
      expect(here.pids()[(made?.gateway.worker ?? 0) - 1]).toBe(pid);
      expect((await here.admin(`/decisions/${made?.requestId}`)).json).toMatchObject({ decisions: [made] });
    }
    // The refusal is the newest decision, so it is the first of the two that are requested.
    const disable = (disabled: boolean) => here.change('PATCH', `/keys/${idOf(key)}`, { disabled });
    expect((await disable(true)).status).toBe(200);
    const refused = await ask(here, key);
    expect([refused.status, (await explain(2))[0]]).toMatchObject([
      401,
      { requestId: refused.id, outcome: 'disabled' },
    ]);
    expect((await disable(false)).status).toBe(200);
    const findings = () => findingsOn(here);
    expect(await findings()).toEqual([undefined, undefined]);
    await here.change('PUT', `/keys/${idOf(key)}/ban`, { seconds: 600, reason: 'a test' });
    expect((await list()).requests[0]?.keyBan).toMatchObject({ banReason: 'a test', banRefused: 0 });
    signalAll(there.child.pid as number, 'SIGSTOP');
    try {
      const askedAt = performance.now();
      const partial = await list();
      expect(performance.now() - askedAt).toBeLessThan(2_500);
      expect(partial.missing).toEqual([expect.stringContaining(String(there.child.pid))]);
      expect(new Set(partial.requests.map(({ gateway }) => gateway.pid)).size).toBe(2);
      const { code, out, err } = await ctl(here, 'requests', '--limit', '1');
      expect([code, out]).toEqual([0, expect.stringMatching(/^id {16}\S+$/m)]);
      expect(err).toMatch(/^Note: these gateways did not respond, so their requests are missing: .+\.$/m);
      expect(err).toContain(String(there.child.pid));
      // The list waits for the hanging gateway only once, so it lacks the refusals by the ban.
      expect(partial.requests[0]?.keyBan).not.toHaveProperty('banRefused');
      const about = `gateway ${hostname()}:${there.child.pid}`;
      const silent = expect.objectContaining({ about, status: 'unknown', found: 'does not answer' });
      await eventually(findings).toEqual([silent, silent]);
      const [shown, checked] = await findings();
      expect(checked).toEqual(shown);
      // The finding has the time of the last heartbeat. A gateway sends one every five seconds.
      const silentFor = Date.now() - Date.parse((shown as SeenFinding).since ?? '');
      expect(silentFor).toBeGreaterThan(performance.now() - askedAt);
      expect(silentFor).toBeLessThan(performance.now() - askedAt + 7_000);
    } finally {
      signalAll(there.child.pid as number, 'SIGCONT');
    }
    there.child.kill('SIGTERM');
    await there.ended;
    expect((await list()).missing).toEqual([]);
  });

  test('a hanging gateway is detected and named by /readyz even if no operator is connected', async () => {
    const hung = await startWorkers({ REDIS_URL: url });
    const detail = async () => ((await send(`${here.adminUrl}/readyz`)).json as { detail?: string }).detail;
    const about = `gateway ${hostname()}:${hung.child.pid}`;
    // After this time, the gateways no longer count an operator as connected.
    await sleep(6_000);
    await eventually(detail).toBeUndefined();
    signalAll(hung.child.pid as number, 'SIGSTOP');
    try {
      const stoppedAt = performance.now();
      await eventually(detail).toMatch(new RegExp(`^${about} does not answer \\(unknown since \\S+Z\\)\\.$`));
      expect(performance.now() - stoppedAt).toBeLessThan(8_000);
    } finally {
      signalAll(hung.child.pid as number, 'SIGCONT');
    }
    await eventually(detail).toBeUndefined();
    hung.child.kill('SIGTERM');
    await hung.ended;
  });

  test('a killed gateway is removed from the list at the next check on its host, or when another one takes its name', async () => {
    const killed = await startWorkers({ REDIS_URL: url });
    const missing = async () => ((await here.admin('/requests')).json as RequestsAnswer).missing;
    await eventually(missing).toEqual([]);
    signalAll(killed.child.pid as number, 'SIGKILL');
    await killed.ended;
    expect([await missing(), await redis.zcard('gateway:gateways')]).toEqual([[], 1]);
    const now = Math.floor(Date.now() / 1_000);
    const own = `${hostname()}:${here.child.pid}`;
    // Silent: another gateway, the predecessor of this one, one that shares its name, and one gone for too long.
    const listed = [now - 60, 'elsewhere:7:aa', now - 290, `${own}:bb`, now, `${own}:dd`, now - 301, 'elsewhere:8:cc'];
    await redis.zadd('gateway:gateways', ...listed);
    expect(await missing()).toEqual(['elsewhere:7', own]);
    const { findings } = (await here.admin('/doctor')).json as DoctorAnswer;
    const since = findings.find(({ about }) => about === 'gateway elsewhere:7')?.since;
    expect(since).toBe(new Date((now - 60) * 1_000).toISOString());
  });
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
