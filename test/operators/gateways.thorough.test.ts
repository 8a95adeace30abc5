import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type {
  CheckResult,
  DoctorAnswer,
  ExplainAnswer,
  RequestsAnswer,
  TrafficAnswer,
} from '../../gateway/operators/api/answers.ts';
import { idOf } from '../support/api-key.ts';
import { ctl } from '../support/ctl.ts';
import { send } from '../support/http.ts';
import { askOnce as ask } from '../support/operators.ts';
import { connectionTo, ownRedis } from '../support/redis-database.ts';
import { eventually, signalAll, startWorkers, type Workers } from '../support/workers.ts';

/** Two gateways of two workers each query each other through Redis, and report one that hangs. */

const { url } = await ownRedis();
const redis = connectionTo(url);
const [here, there] = [await startWorkers({ REDIS_URL: url }), await startWorkers({ REDIS_URL: url })];

const detail = async () => ((await send(`${here.adminUrl}/readyz`)).json as { detail?: string }).detail;
const missingAt = async ({ admin }: Workers) => ((await admin('/requests')).json as RequestsAnswer).missing;

/** @returns the worst finding in the console, and the first finding of the doctor about a gateway */
async function findingsOn({ admin }: Workers) {
  const traffic = (await admin('/traffic')).json as TrafficAnswer;
  const doctor = (await admin('/doctor')).json as DoctorAnswer;
  return [traffic.health, doctor.findings.find(({ about }) => about.startsWith('gateway'))];
}

// No operator has called either gateway yet.
test('even a lone /readyz reports another gateway that hangs', async () => {
  await eventually(detail).toBeUndefined();
  const pid = there.child.pid as number;
  // Gateways report once a second that they are running. This is long enough for a few reports.
  await sleep(3_500);
  signalAll(pid, 'SIGSTOP');
  const stoppedAt = Date.now();
  try {
    await sleep(4_000);
    expect(await detail()).toMatch(/^gateways did not answer within 0\.7 s \(unknown since \S+Z\)\.$/);
    await eventually(detail).toMatch(new RegExp(`^gateway ${hostname()}:${pid} does not answer \\(unknown since `));
    const [since = ''] = /(?<=since )\S+Z/.exec((await detail()) ?? '') ?? [];
    expect(Math.abs(Date.parse(since) - stoppedAt)).toBeLessThan(2_500);
    await sleep(1_000);
    // A gateway that is known to be silent does not delay readiness checks, because their callers may have short
    // timeouts.
    const askedAt = performance.now();
    expect(await detail()).toContain('does not answer');
    expect(performance.now() - askedAt).toBeLessThan(600);
  } finally {
    signalAll(pid, 'SIGCONT');
  }
  await eventually(detail).toBeUndefined();
});

test("a hanging worker is listed as missing, and another gateway reports it with its gateway's name", async () => {
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

test('while Redis refuses writes, a gateway that answers is not reported as silent', async () => {
  await eventually(() => missingAt(here)).toEqual([]);
  await redis.config('SET', 'min-replicas-to-write', '1');
  await eventually(() => missingAt(here)).toEqual(['the gateways registered in Redis']);
  const { findings } = (await here.admin('/doctor')).json as DoctorAnswer;
  const found = findings.filter(({ about }) => /^(other gateways|gateway )/.test(about));
  expect(found).toMatchObject([
    {
      about: 'other gateways',
      status: 'unknown',
      found: expect.stringMatching(/^cannot be queried through Redis: NOREPLICAS/),
    },
  ]);
  await redis.config('SET', 'min-replicas-to-write', '0');
  await eventually(() => findingsOn(here)).toEqual([undefined, undefined]);
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
  const explain = async (limit: number) =>
    ((await here.admin(`/keys/${idOf(key)}/explain?limit=${limit}`)).json as ExplainAnswer).decisions;
  const decisions = await explain(200);
  expect(new Set(decisions.map(({ gateway }) => gateway.pid))).toEqual(pids);
  const decidedAt = decisions.map(({ at }) => at);
  expect(decidedAt).toEqual(decidedAt.toSorted().reverse());
  for (const { pids } of [here, there])
    for (const [at, pid] of pids().entries()) {
      const made = decisions.find(({ gateway }) => gateway.pid === pid);
      expect(made?.gateway.worker).toBe(at + 1);
      expect((await here.admin(`/decisions/${made?.requestId}`)).json).toEqual({ decisions: [made], missing: [] });
    }
  const [asked] = decisions.filter(({ gateway }) => there.pids().includes(gateway.pid));
  expect((await ctl(here, 'keys', 'find', asked?.requestId ?? '')).out).toContain(idOf(key));
  // The refusal is the newest decision, so it is the first of the two that are requested.
  const disable = (disabled: boolean) => here.change('PATCH', `/keys/${idOf(key)}`, { disabled });
  expect((await disable(true)).status).toBe(200);
  const refused = await ask(here, key);
  expect([refused.status, (await explain(2))[0]]).toMatchObject([401, { requestId: refused.id, outcome: 'disabled' }]);
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
    const explained = await ctl(here, 'keys', 'explain', idOf(key), '--limit', '1');
    expect([explained.code, explained.err]).toEqual([0, err]);
    const unknown = await ctl(here, 'keys', 'explain', '--request', asked?.requestId ?? '');
    const notFound = `No gateway remembers a decision on this request. These did not respond: ${partial.missing}.`;
    expect([unknown.code, unknown.err]).toEqual([3, expect.stringContaining(notFound)]);
    // The list waits for the hanging gateway only once, so it lacks the refusals by the ban.
    expect(partial.requests[0]?.keyBan).not.toHaveProperty('banRefused');
    const about = `gateway ${hostname()}:${there.child.pid}`;
    const silent = expect.objectContaining({ about, status: 'unknown', found: 'does not answer' });
    await eventually(findings).toEqual([silent, silent]);
    const [shown, checked] = await findings();
    expect(checked).toEqual(shown);
    // The finding has the time of the last heartbeat. A gateway sends one a second.
    const silentFor = Date.now() - Date.parse((shown as CheckResult).since ?? '');
    expect(silentFor).toBeGreaterThan(performance.now() - askedAt);
    expect(silentFor).toBeLessThan(performance.now() - askedAt + 7_000);
  } finally {
    signalAll(there.child.pid as number, 'SIGCONT');
  }
  there.child.kill('SIGTERM');
  await there.ended;
  expect((await list()).missing).toEqual([]);
});

test('a killed gateway is removed from the list at the next check on its host, or when another one takes its name', async () => {
  const killed = await startWorkers({ REDIS_URL: url });
  const missing = () => missingAt(here);
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
