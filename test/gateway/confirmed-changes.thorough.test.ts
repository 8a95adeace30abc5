import http from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { createApiKey } from '../../gateway/limiter/credential.ts';
import type { DoctorAnswer, RequestsAnswer } from '../../gateway/operators/api/answers.ts';
import { AUDIT_LOG, announceTo, confirmed, follow } from '../../gateway/primary/changes.ts';
import type { Changed } from '../../gateway/primary/channel.ts';
import { Keys } from '../../gateway/stores/keys.ts';
import { RedisStorage } from '../../gateway/stores/redis/storage.ts';
import { NotMade, type Storage, Unknown } from '../../gateway/stores/storage.ts';
import { idOf } from '../support/api-key.ts';
import { cleanUp } from '../support/clean-up.ts';
import { type Answer, send } from '../support/http.ts';
import { scrape } from '../support/metrics.ts';
import type { RedisServer } from '../support/redis.ts';
import { connectedRedis, connectionTo, emptyDatabase, ownRedis } from '../support/redis-database.ts';
import { secretWith } from '../support/secrets.ts';
import { startStack, temporaryFolder, UNLIMITED } from '../support/stack.ts';
import { sqliteStorage } from '../support/storages.ts';
import { eventually, isAlive, stall, startWorkers, suspend, untilServing, type Workers } from '../support/workers.ts';

/**
 * An operator's change applies to the next request on every worker. The audit log tells other gateways what they missed.
 */

/** Keeps six connections open to each of the two workers. The kernel assigns connections to workers at random. */
async function onEveryWorker(gateway: Workers) {
  const key = await gateway.issueKey();
  const byWorker = new Map(gateway.pids().map((pid) => [pid, [] as http.Agent[]]));
  const open = () => [...byWorker.values()].flat();
  cleanUp(() => {
    for (const agent of open()) agent.destroy();
  });
  for (let at = 0; open().length < 12; at++) {
    if (at === 1_000) throw new Error('The kernel assigned too few connections to one of the workers.');
    const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
    const answer = await send(`${gateway.gateway}/v1/pets`, { key, agent });
    const { requests } = (await gateway.admin(`/requests?q=${answer.headers['x-request-id']}`)).json as RequestsAnswer;
    const agents = byWorker.get(requests[0]?.gateway.pid ?? 0);
    if (agents !== undefined && agents.length < 6) agents.push(agent);
    else agent.destroy();
  }
  const ask = async (key: string): Promise<Answer[]> => {
    const answers: Answer[] = [];
    for (const agent of open()) answers.push(await send(`${gateway.gateway}/v1/pets`, { key, agent }));
    return answers;
  };
  const codes = async (key: string) =>
    new Set((await ask(key)).map(({ status, json }) => (status === 200 ? 200 : (json as { code: string }).code)));
  return { ask, codes };
}

const shared = await startWorkers();
const { ask: askShared, codes: codesOnShared } = await onEveryWorker(shared);

test('a lifted ban, new limits and new plans are in force on every worker once they are acknowledged', async () => {
  const key = await shared.issueKey({ plan: 'free' });
  for (let round = 0; round < 3; round++) {
    await shared.change('PUT', `/keys/${idOf(key)}/ban`, { seconds: 600, reason: 'test' });
    expect(await codesOnShared(key)).toEqual(new Set(['key_banned']));
    await shared.change('DELETE', `/keys/${idOf(key)}/ban`);
    expect(await codesOnShared(key)).toEqual(new Set([200]));
    await shared.change('PATCH', '/plans/free', { minute: 100 + round });
    const limits = (await askShared(key)).map(({ headers }) => headers['x-ratelimit-limit']);
    expect(new Set(limits)).toEqual(new Set([String(100 + round)]));
  }
});

test('a reset applies to the next request on every worker', async () => {
  const key = await shared.issueKey({ plan: 'enterprise', minute: 12, day: 100 });
  for (let round = 0; round < 3; round++) {
    // Uses up all tokens.
    await askShared(key);
    expect(await codesOnShared(key)).toEqual(new Set(['rate_limit_exceeded']));
    await shared.change('PUT', `/keys/${idOf(key)}/ban`, { seconds: 600, reason: 'test' });
    expect(await codesOnShared(key)).toEqual(new Set(['key_banned']));
    expect((await shared.change('POST', `/keys/${idOf(key)}/reset`, {})).status).toBe(200);
    const answers = await askShared(key);
    expect(answers.map(({ headers }) => headers['x-ratelimit-remaining'])).toEqual(
      Array.from({ length: 12 }, (_, at) => String(11 - at)),
    );
    await shared.change('POST', `/keys/${idOf(key)}/reset`, {});
  }
});

test('no process uses the old state of a key that was revoked or reset just before a Redis outage', async () => {
  const server = await ownRedis({ appendonly: 'yes', dir: await temporaryFolder() });
  const gateway = await startWorkers({ REDIS_URL: server.url, REDIS_TIMEOUT_MS: '250' });
  const { ask, codes } = await onEveryWorker(gateway);
  const [revoked, other] = [await gateway.issueKey(), await gateway.issueKey()];
  const key = await gateway.issueKey({ plan: 'enterprise', minute: 1_000, day: 40 });
  /** Sends twelve requests. @returns how many tokens are left for the day */
  const left = async () => {
    const answers = await ask(key);
    return Number(/"day";r=(\d+)/.exec(String(answers.at(-1)?.headers.ratelimit))?.[1]);
  };
  // Each worker logs this line once Redis answers again.
  const back = (times: number) =>
    eventually(() => gateway.logged('decisions are shared again').length).toBeGreaterThanOrEqual(times);
  const expectServed = async (keys: readonly string[]) => {
    for (const one of keys) expect(await codes(one)).toEqual(new Set([200]));
  };
  await expectServed([revoked, other]);
  expect(await left()).toBe(40 - 12);
  // The primary collects keys and levels from its workers.
  await server.stop();
  await expectServed([revoked, other]);
  expect(await left()).toBe(40 - 24);
  await server.restart();
  await back(2);
  await expectServed([revoked, other]);

  await gateway.change('PUT', `/keys/${idOf(key)}/ban`, { seconds: 600, reason: 'test' });
  expect(await codes(key)).toEqual(new Set(['key_banned']));
  expect((await gateway.change('POST', `/keys/${idOf(key)}/reset`, {})).status).toBe(200);
  expect((await gateway.change('DELETE', `/keys/${idOf(revoked)}`)).status).toBe(204);
  await server.stop();
  for (const one of [revoked, key]) expect(await codes(one)).toEqual(new Set(['unavailable']));
  await expectServed([other]);

  // Local decisions use the levels since the reset, once workers have read them.
  await server.restart();
  await back(4);
  expect(await left()).toBe(40 - 12);
  await server.stop();
  expect(await left()).toBe(40 - 24);
});

test('a worker that stalls for 3 s during a change survives, and the change is acknowledged once it binds there', async () => {
  const key = await shared.issueKey();
  expect(await codesOnShared(key)).toEqual(new Set([200]));
  const [stalled = 0] = shared.pids();
  const stalling = stall(stalled, 3_000);
  const before = performance.now();
  expect((await shared.change('PATCH', `/keys/${idOf(key)}`, { disabled: true })).status).toBe(200);
  expect(performance.now() - before).toBeGreaterThan(2_500);
  await stalling;
  expect(await codesOnShared(key)).toEqual(new Set(['unauthorized']));
  expect(isAlive(stalled)).toBe(true);
  expect(shared.logged('worker exited')).toEqual([]);
});

test('a worker that hangs for 10 s during a change is killed, and the change is acknowledged', async () => {
  const [key, other] = [await shared.issueKey(), await shared.issueKey()];
  const [hung = 0] = shared.pids();
  suspend(hung);
  const before = performance.now();
  const disable = (one: string) => shared.change('PATCH', `/keys/${idOf(one)}`, { disabled: true });
  expect((await Promise.all([key, other].map(disable))).map(({ status }) => status)).toEqual([200, 200]);
  // Both limits are 10 s: for the change, and for a worker that sends nothing.
  expect(performance.now() - before).toBeGreaterThan(8_000);
  expect(performance.now() - before).toBeLessThan(20_000);
  expect(isAlive(hung)).toBe(false);
  await eventually(() => shared.logged('worker exited')).toMatchObject([
    { level: 50, pid: hung, said: expect.stringMatching(/in time|sent nothing/) },
  ]);
  await untilServing(shared, 2);
});

/** Returns a storage on disk and the notifications about its changes. Each notification takes 10 ms. */
async function announcingStorage() {
  const storage = await sqliteStorage();
  const changes: Changed[] = [];
  const faults: { change?: Error } = {};
  const failing = new Proxy(storage, {
    get(target, name) {
      const value = Reflect.get(target, name);
      if (typeof value !== 'function') return value;
      return async (...given: unknown[]) => {
        const answer = await value.apply(target, given);
        if (name === 'change' && faults.change !== undefined) throw faults.change;
        return answer;
      };
    },
  }) as Storage;
  const note = async (changed: Changed) => {
    await new Promise((resolve) => setTimeout(resolve, 10));
    changes.push(changed);
  };
  const announce = announceTo(failing, note);
  return { storage: confirmed(failing, announce, async () => {}), changes, faults };
}

const create = {
  parts: [{ record: 'key:a', exists: false, set: { plan: 'free' } }],
  entries: [{ log: 'audit', fields: { action: 'key.create', target: 'a' } }],
} as const;
/** Returns a change to an existing key, with its audit entry. */
const changeOf = (field: string, to: string) => ({
  parts: [{ record: 'key:a', exists: true, set: { [field]: to } }] as const,
  entries: [
    { log: 'audit', fields: { action: 'key.change', target: 'a', changes: JSON.stringify([{ field, to }]) } },
  ] as const,
});
const lower = changeOf('minute', '5');

test('workers are notified of a change before it is acknowledged, but not of a new key or a change that was not made', async () => {
  const { storage, changes } = await announcingStorage();
  expect(await storage.change(lower)).toBe(false);
  expect(await storage.change(create)).toBe(true);
  expect(changes).toEqual([]);
  await storage.change(lower);
  expect(changes).toEqual([{ key: 'a' }]);
  await storage.change({ parts: [{ record: 'plans', set: { 'free.minute': '7' } }], entries: [] });
  expect(changes).toEqual([{ key: 'a' }, { plans: expect.objectContaining({ 'free.minute': '7' }) }]);
});

test('workers are notified that a change is a reset, unless its outcome is unknown', async () => {
  const { storage, changes, faults } = await announcingStorage();
  await storage.change(create);
  const reset = { ...lower, entries: [{ log: 'audit', fields: { action: 'key.reset', target: 'a' } }] } as const;
  await storage.change(reset);
  faults.change = new Unknown('no answer');
  await expect(storage.change(reset)).rejects.toThrow(Unknown);
  expect(changes).toEqual([{ key: 'a', isReset: true }, { key: 'a' }]);
});

test('workers are notified of a change whose outcome is unknown, and again before it is read back', async () => {
  const { storage, changes, faults } = await announcingStorage();
  await storage.change(create);
  faults.change = new Unknown('no answer');
  await expect(storage.change(lower)).rejects.toThrow(Unknown);
  expect(changes).toEqual([{ key: 'a' }]);
  expect(await storage.read('key:a')).toMatchObject({ minute: '5' });
  expect(changes).toEqual([{ key: 'a' }, { key: 'a' }]);
  await storage.read('key:a');
  expect(changes).toHaveLength(2);
  faults.change = new NotMade('The disk is full.');
  await expect(storage.change(lower)).rejects.toThrow(NotMade);
  expect(changes).toHaveLength(2);
});

const { url } = await emptyDatabase();
const redis = await connectedRedis(url);
const storage = new RedisStorage(redis);
const keys = new Keys(storage);

const AUDIT = 'gateway:activity';

function follower() {
  const changes: Changed[] = [];
  const tail = follow(AUDIT_LOG, storage, async (changed) => void changes.push(changed));
  return {
    tail,
    async changes() {
      await tail.read();
      return changes.splice(0);
    },
  };
}

async function changedKey(): Promise<string> {
  const { credential } = createApiKey();
  const record = {
    plan: 'free',
    name: 'test',
    createdAt: Date.now() * 1_000,
    secrets: [secretWith(credential.digest)],
  };
  await keys.create(credential.id, record as never);
  return credential.id;
}

const entryAbout = (target: string, at = '*') => redis.xadd(AUDIT, at, 'target', target, 'action', 'key.change');

test('each change to a key is reported once; on startup and after a gap, all keys are reported as possibly changed', async () => {
  const id = await changedKey();
  const { changes } = follower();
  expect(await changes()).toEqual([{ anyKey: true }]);
  expect(await changes()).toEqual([]);
  for (const target of [id, id, 'free', '*']) await entryAbout(target);
  expect(await changes()).toEqual([{ key: id }]);
  // There are more of these entries than fit on one page.
  for (let at = 0; at < 60; at++) await entryAbout(id);
  expect(await changes()).toEqual([{ key: id }]);
  for (let at = 0; at < 600; at++) await entryAbout(id);
  expect(await changes()).toEqual([{ anyKey: true }]);
  await redis.del(AUDIT);
  expect(await changes()).toEqual([{ anyKey: true }]);
  await entryAbout(id);
  expect(await changes()).toEqual([{ key: id }]);
});

test('new names, tags and secrets affect no decision and are not reported', async () => {
  const id = await changedKey();
  const { changes } = follower();
  await changes();
  const about = (action: string, ...fields: string[]) => {
    const changes = JSON.stringify(fields.map((field) => ({ field, to: 'x' })));
    return redis.xadd(AUDIT, '*', 'target', id, 'action', action, 'changes', changes);
  };
  await about('key.create', 'plan');
  await about('key.change', 'name', 'tags');
  await about('secret.create', 'secret', 'scope');
  await about('secret.change', 'secret', 'name');
  expect(await changes()).toEqual([]);
  await about('secret.change', 'secret', 'name', 'networks');
  expect(await changes()).toEqual([{ key: id }]);
});

test('after a value of another type has replaced the audit log, all keys are reported as possibly changed', async () => {
  const { changes, tail } = follower();
  await changes();
  await redis.set(AUDIT, 'nonsense');
  await expect(tail.read()).rejects.toThrow('WRONGTYPE');
  await redis.del(AUDIT);
  expect(await changes()).toEqual([{ anyKey: true }, { anyKey: true }]);
  expect(await changes()).toEqual([]);
});

test('changes that Redis has lost are logged, and shown by the doctor and by a metric; a shortened log is no loss', async () => {
  const { url } = await emptyDatabase();
  const database = await connectedRedis(url);
  const stack = await startStack({ REDIS_URL: url });
  const key = await stack.issueKey();
  const lines = () => stack.log.filter(({ msg }) => msg === 'Redis has lost changes');
  const state = async () => {
    const { findings } = (await stack.admin('GET', '/doctor')).json as DoctorAnswer;
    const found = findings.find(({ about }) => about === 'changes by operators')?.found;
    return [lines().length, found, (await scrape(stack.adminUrl)).sum('gateway_changes_lost_total')];
  };
  const [kept = ''] = (await database.xrevrange(AUDIT, '+', '-', 'COUNT', 1)).map(([id]) => id);
  const names = await database.keys('*');
  const copies = await Promise.all(names.map((name) => database.dumpBuffer(name)));
  expect((await stack.admin('DELETE', `/keys/${idOf(key)}`)).status).toBe(204);
  const [lost = ''] = (await database.xrevrange(AUDIT, '+', '-', 'COUNT', 1)).map(([id]) => id);
  await sleep(600);
  await database.xtrim(AUDIT, 'MAXLEN', 1);
  await sleep(600);
  expect(await state()).toEqual([0, undefined, 0]);
  for (const [at, name] of names.entries()) await database.restore(name, 0, copies[at] as Buffer, 'REPLACE');
  const [after, until] = [kept, lost].map((id) => new Date(Number.parseInt(id, 10)).toISOString());
  await expect.poll(lines).toMatchObject([{ level: 50, after, until }]);
  const found = `were lost, because Redis has older data: all after ${after} until ${until}`;
  expect(await state()).toEqual([1, found, 1]);
  expect((await send(`${stack.gateway}/v1/pets`, { key })).status).toBe(200);
  await database.flushdb();
  await expect.poll(lines).toMatchObject([{}, { level: 50, until: after }]);
  expect(lines()[1]).not.toHaveProperty('after');
});

test('a reset is reported even if another change to the key follows', async () => {
  const [id, other] = [await changedKey(), await changedKey()];
  const { changes } = follower();
  await changes();
  await redis.xadd(AUDIT, '*', 'target', id, 'action', 'key.reset');
  for (const target of [other, id]) await entryAbout(target);
  expect(await changes()).toEqual([{ key: id, isReset: true }, { key: other }]);
  await entryAbout(id);
  expect(await changes()).toEqual([{ key: id }]);
});

const maxmemory = async ({ url }: RedisServer, bytes: string) =>
  void (await connectionTo(url).config('SET', 'maxmemory', bytes));

test.for([
  ['answers nothing for a second', 'SIGSTOP'],
  ['is full', 'OOM'],
] as const)(
  'a ban or a revocation binds on other gateways once it is acknowledged, even if Redis %s',
  async ([, kind]) => {
    const redis = await ownRedis();
    const settings = { REDIS_URL: redis.url, REDIS_TIMEOUT_MS: '250' };
    const [one, other] = [await startStack(settings), await startStack(settings)];
    for (const [method, path, body] of [
      ['PUT', '/ban', { seconds: 600, reason: 'test' }],
      ['DELETE', '', undefined],
      ['PUT', '/ban', { seconds: 600, reason: 'test' }],
    ] as const) {
      const key = await one.issueKey(UNLIMITED);
      const sent: { at: number; status: number }[] = [];
      let isOver = false;
      const ask = async () => {
        for (; !isOver; await sleep(5)) {
          const at = performance.now();
          sent.push({ at, status: (await send(`${other.gateway}/v1/pets`, { key })).status });
        }
      };
      const asking = Promise.all([ask(), ask()]);
      await eventually(() => sent.some(({ status }) => status === 200)).toBe(true);
      if (kind === 'SIGSTOP') redis.pause();
      else await maxmemory(redis, '1');
      await sleep(500);
      const made = one.admin(method, `/keys/${idOf(key)}${path}`, body);
      const acknowledged = made.then(({ status }) => ({ status, at: performance.now() }));
      await sleep(500);
      redis.resume();
      const { status, at } = await acknowledged;
      expect(status).toBeLessThan(300);
      await sleep(300);
      const later = () => sent.filter((request) => request.at > at);
      await eventually(() => later().length).toBeGreaterThan(5);
      isOver = true;
      await asking;
      if (kind === 'OOM') await maxmemory(redis, '0');
      expect(later().filter((request) => request.status === 200)).toEqual([]);
    }
  },
);
