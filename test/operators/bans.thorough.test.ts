import http from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test, vi } from 'vitest';
import type {
  BansAnswer,
  ExplainAnswer,
  KeysAnswer,
  KeyUsageAnswer,
  KeyView,
  RequestsAnswer,
  TopAnswer,
  UsageOfKey,
} from '../../gateway/operators/api/answers.ts';
import { activityOf } from '../support/activity.ts';
import { idOf } from '../support/api-key.ts';
import { ctl } from '../support/ctl.ts';
import { type Answer, send } from '../support/http.ts';
import { inTurn } from '../support/in-turn.ts';
import { ask, codeOf, dayLeft, get, hashOf, operatorsRedis, viewOf } from '../support/operators.ts';
import { bothStacks, type Stack, startStack, temporaryFolder } from '../support/stack.ts';
import { replaced, startWorkers, suspend } from '../support/workers.ts';

/** Bans and resets. A reset gives a customer a fresh start. */

const { url: REDIS_URL, redis, withRedis } = await operatorsRedis();

const view = (stack: Stack, key: string) => viewOf(stack, idOf(key));
const refusedOf = async (stack: Stack, key: string) => (await view(stack, key)).banRefused;

/** The number of requests with the key that bans have refused, summed over all minutes. */
async function bannedIn(stack: Stack, key: string): Promise<number> {
  const { minutes } = await usageOf(stack, key);
  expect(minutes.map(({ at }) => at)).toEqual([...new Set(minutes.map(({ at }) => at))].sort());
  return minutes.reduce((sum, minute) => sum + (minute.banned ?? 0), 0);
}

/** Sends `times` requests and expects a ban to refuse them all. */
async function refused(stack: Stack, key: string, times: number): Promise<void> {
  const codes = await inTurn(Array.from({ length: times }), 8, () => codeOf(stack, key));
  expect(new Set(codes)).toEqual(new Set(['key_banned']));
}

/** Issues a key and sends requests until it is banned. @returns the key */
async function banned(stack: Stack, more = {}): Promise<string> {
  await stack.admin('PATCH', '/plans/free', { ban_after: 2, ban_grace_seconds: 0, ban_seconds: 300 });
  const key = await stack.issueKey({ minute: 1, ...more });
  for (let sent = 0; sent < 4; sent++) await ask(stack, key);
  expect(await view(stack, key)).toMatchObject({ state: 'banned', bans: 1 });
  return key;
}

describe.for(bothStacks(REDIS_URL))('with %s', async ([, environment]) => {
  const stack = await startStack(environment);

  test('a ban is listed with its reason, is in force at once, and expires on time', async () => {
    await stack.admin('PATCH', '/plans/free', { ban_after: 2, ban_grace_seconds: 0, ban_seconds: 300 });
    const bans = async () => (await get<BansAnswer>(stack, '/bans')).bans;
    const [key, loud] = [await stack.issueKey({ name: 'scraper' }), await stack.issueKey({ minute: 1, day: 1 })];
    await ask(stack, key);
    await stack.admin('PUT', `/keys/${idOf(loud)}/ban`, { seconds: 1, reason: 'by an operator' });
    const set = await stack.admin('PUT', `/keys/${idOf(key)}/ban`, { seconds: 2, reason: 'scrapes everything' });
    const setAt = performance.now();
    expect(set).toMatchObject({ status: 200, json: { state: 'banned', banReason: 'scrapes everything' } });
    const answer = await ask(stack, key);
    expect(answer).toMatchObject({ status: 429, json: { code: 'key_banned' } });
    expect(Number(answer.headers['retry-after'])).toBeLessThanOrEqual(2);
    const listed = { id: idOf(key), name: 'scraper', banReason: 'scrapes everything' };
    expect(await bans()).toContainEqual(expect.objectContaining(listed));
    await sleep(2_050 - (performance.now() - setAt));
    expect([await codeOf(stack, key), await bans()]).toEqual([200, []]);

    for (let sent = 0; sent < 4; sent++) await ask(stack, loud);
    expect(await view(stack, loud)).toMatchObject({ state: 'banned' });
    expect(await view(stack, loud)).not.toHaveProperty('banReason');
    await stack.admin('DELETE', `/keys/${idOf(loud)}`);
  });

  test('requests refused by a ban are counted for the key, in the list of keys and in the list of bans', async () => {
    const [key, other] = [await banned(stack), await banned(stack)];
    await refused(stack, key, 150);
    await refused(stack, other, 3);
    await expect.poll(() => refusedOf(stack, key)).toBe(151);
    const { keys } = await get<KeysAnswer>(stack, '/keys?state=banned');
    const { bans } = await get<BansAnswer>(stack, '/bans');
    const { keys: sorted } = await get<KeysAnswer>(stack, '/keys?state=banned&sort=oldest');
    for (const list of [keys, bans, sorted])
      expect(new Map(list.map(({ id, banRefused }) => [id, banRefused]))).toEqual(
        new Map([
          [idOf(key), 151],
          [idOf(other), 4],
        ]),
      );
    await stack.admin('DELETE', `/keys/${idOf(key)}/ban`);
    expect(await view(stack, key)).not.toHaveProperty('banRefused');
    expect(await bannedIn(stack, key)).toBe(151);
  });

  test('every list shows the ban on a key, and its usage by minute counts the requests that the ban refused', async () => {
    const [key, other] = [await banned(stack), await stack.issueKey({ minute: 1 })];
    await refused(stack, key, 7);
    for (let sent = 0; sent < 2; sent++) await ask(stack, other);
    await expect.poll(() => bannedIn(stack, key)).toBe(8);
    const ban = { bannedUntil: (await view(stack, key)).bannedUntil, bans: 1, banRefused: 8 };
    const { keys } = await get<TopAnswer>(stack, '/keys/top');
    expect(keys.find(({ id }) => id === idOf(key))).toMatchObject(ban);
    const { requests } = await get<RequestsAnswer>(stack, `/requests?keyId=${idOf(key)}`);
    expect(requests.map(({ keyBan }) => keyBan)).toEqual(requests.map(() => ban));
    for (const by of ['key', 'day']) {
      const { usage } = await get<{ usage: UsageOfKey[] }>(stack, `/usage?by=${by}`);
      expect([by, usage.find(({ id }) => id === idOf(key))?.ban]).toEqual([by, ban]);
      expect(usage.find(({ id }) => id === idOf(other))).not.toHaveProperty('ban');
    }
    expect((await get<ExplainAnswer>(stack, `/keys/${idOf(key)}/explain`)).key).toMatchObject(ban);
    expect((await stack.admin('PATCH', `/keys/${idOf(key)}`, { name: 'renamed' })).json).toMatchObject(ban);
    const ofOther = await get<RequestsAnswer>(stack, `/requests?keyId=${idOf(other)}`);
    expect(ofOther.requests.map((one) => 'keyBan' in one)).toEqual([false, false]);
    expect(await bannedIn(stack, other)).toBe(0);
    const { minutes, ban: inUsage } = await get<KeyUsageAnswer>(stack, `/keys/${idOf(key)}/usage`);
    expect(inUsage).toEqual(ban);
    const sum = (of: 'admitted' | 'refused' | 'banned') =>
      minutes.reduce((total, minute) => total + (minute[of] ?? 0), 0);
    expect([sum('admitted'), sum('refused'), sum('banned')]).toEqual([1, 2, 8]);
  });

  test('refusals by limits in the minute before a ban are not counted as refused by the ban', async () => {
    await stack.admin('PATCH', '/plans/free', { ban_after: 100, ban_grace_seconds: 0, ban_seconds: 300 });
    const key = await stack.issueKey({ minute: 1 });
    const codes: unknown[] = [];
    while (codes.at(-1) !== 'key_banned' && codes.length < 200) codes.push(await codeOf(stack, key));
    expect(codes.length).toBeGreaterThan(100);
    await refused(stack, key, 20);
    await expect.poll(() => refusedOf(stack, key)).toBe(21);
  });

  test('refusals by an earlier ban are not counted for the current one', async () => {
    const key = await banned(stack);
    await refused(stack, key, 5);
    await stack.admin('DELETE', `/keys/${idOf(key)}/ban`);
    await stack.admin('PUT', `/keys/${idOf(key)}/ban`, { seconds: 100, reason: 'by an operator' });
    expect(await refusedOf(stack, key)).toBe(0);
    await refused(stack, key, 2);
    await expect.poll(() => refusedOf(stack, key)).toBe(2);
  });

  test('the explanation of a refused request says when the ban is over, and no longer advises lifting it', async () => {
    const key = await banned(stack);
    await refused(stack, key, 1);
    const last = async () => (await get<RequestsAnswer>(stack, `/requests?keyId=${idOf(key)}`)).requests[0];
    await expect.poll(last).toMatchObject({ code: 'key_banned', advice: expect.stringMatching(/^Lift the ban once/) });
    expect((await last())?.reason).not.toMatch(/over/);
    await stack.admin('POST', `/keys/${idOf(key)}/reset`, {});
    const { reason, advice } = (await last()) ?? {};
    expect([reason, advice]).toEqual([
      expect.stringMatching(/ The ban is over\.$/),
      'Make the client respect Retry-After. Otherwise its next ban lasts longer.',
    ]);
  });
});

test('refusals by two gateways are summed, and ctl shows when the ban ends, its number in the series, and its refusals', async () => {
  const [stack, other] = [await startStack(withRedis), await startStack(withRedis)];
  const key = await banned(stack, { name: 'loud' });
  await refused(stack, key, 1_003);
  await refused(other, key, 10);
  await expect.poll(() => refusedOf(other, key)).toBe(1_014);
  const ban = /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d.\d{3}Z \(in \d min\), first ban, refused 1,014 since/;
  // A gateway that is asked while this machine is busy can answer too late; its refusals are then missing.
  const expectShown = (of: Stack, words: readonly string[], shown: RegExp) =>
    expect.poll(async () => (await ctl(of, ...words)).out, { timeout: 30_000 }).toMatch(shown);
  for (const command of ['show', 'explain'])
    await expectShown(stack, ['keys', command, idOf(key)], new RegExp(`^banned until +${ban.source}$`, 'm'));
  expect(await bannedIn(stack, key)).toBe(1_014);
  for (const list of [
    'keys list --state banned',
    'keys top',
    'keys list --sort used',
    'requests',
    'usage',
    'usage --by key',
  ])
    await expectShown(stack, list.split(' '), new RegExp(` note\\n(.*\\n)*.*banned until ${ban.source}`));
  await expectShown(stack, ['requests', '--limit', '1'], new RegExp(`^note +banned until ${ban.source}$`, 'm'));
  await expectShown(other, ['bans', 'list'], new RegExp(` banned until +reason\\n.* ${ban.source} +-\\n`));
  // Makes the first ban look as if it had just expired, so that a second one follows.
  await redis.hset(hashOf(idOf(key)), { banned_until: '1', ban_decided: '1' });
  await redis.hset(hashOf(idOf(key)), { banned_until: String(Date.now() / 1_000 - 1) });
  for (let sent = 0; sent < 4; sent++) await ask(stack, key);
  // Refusals of one minute are counted together, so the request that began the ban may be counted with the first ban.
  expect((await ctl(stack, 'keys', 'show', idOf(key))).out).toMatch(
    /\(in (9|10) min\), second ban in a row(, refused (at least )?\d since)?$/m,
  );
});

test('refusals by all workers are summed, requests with tagged keys are found on all of them, and both lists say what a lost worker took with it', async () => {
  const workers = await startWorkers();
  const begun = Date.now();
  const key = await workers.issueKey({ plan: 'pro', tags: { customer: 'acme' } });
  await workers.change('PUT', `/keys/${idOf(key)}/ban`, { seconds: 100, reason: 'a test' });
  const list = async () => (await workers.admin('/requests?tag=customer:acme&limit=200')).json as RequestsAnswer;
  const pids = async () => new Set((await list()).requests.map(({ gateway }) => gateway.pid));
  // The kernel chooses the worker of a connection, and may choose the same one many times.
  let sent = 0;
  for (; sent < 2_000 && (await pids()).size < 2; sent += 50) {
    const agent = new http.Agent({ maxSockets: 50 });
    await Promise.all(Array.from({ length: 50 }, () => send(`${workers.gateway}/v1/pets`, { key, agent })));
    agent.destroy();
  }
  expect(await pids()).toEqual(new Set(workers.pids()));
  const view = async () => (await workers.admin(`/keys/${idOf(key)}`)).json as KeyView;
  await expect.poll(view).toMatchObject({ banRefused: sent });
  expect(await view()).not.toHaveProperty('banRefusedMore');
  expect(Date.parse((await list()).since)).toBeLessThan(begun);
  const unasked = await workers.issueKey();
  await workers.change('PUT', `/keys/${idOf(unasked)}/ban`, { seconds: 100, reason: 'a test' });
  expect((await ctl(workers, 'keys', 'show', idOf(unasked))).out).toContain(', refused 0 since\n');

  await replaced(workers, (pid) => process.kill(pid, 'SIGKILL'));
  const { banRefused: left = 0, banRefusedMore } = await view();
  expect([left < sent, banRefusedMore]).toEqual([true, true]);
  expect(Date.parse((await list()).since)).toBeGreaterThan(begun);
  const [shown, listed] = [await ctl(workers, 'keys', 'show', idOf(key)), await ctl(workers, 'requests')];
  expect(shown.out).toContain(`, refused at least ${left.toLocaleString('en-US')} since\n`);
  // Nobody knows whether a lost worker had refused a request with this key.
  expect((await ctl(workers, 'keys', 'show', idOf(unasked))).out).toMatch(/^banned until .* \(in \d+ \w+\)$/m);
  expect(listed.err).toMatch(
    /^Note: requests before \S+Z may be missing, because a gateway or worker started then\.$/m,
  );
});

const usageOf = (stack: Stack, key: string) => get<KeyUsageAnswer>(stack, `/keys/${idOf(key)}/usage`);

/** Issues a key, and sends requests before and during a ban by an operator. */
async function bannedAfterUse(stack: Stack, times: number): Promise<string> {
  const key = await stack.issueKey();
  expect(await codeOf(stack, key)).toBe(200);
  await stack.admin('PUT', `/keys/${idOf(key)}/ban`, { seconds: 600 });
  await refused(stack, key, times);
  return key;
}

test('once a gateway has overwritten refusals by a ban, neither the ban nor the usage by minute shows a wrong count', async () => {
  const stack = await startStack({ RECENT_REQUESTS: '100' });
  const key = await bannedAfterUse(stack, 6);
  await expect.poll(() => view(stack, key)).toMatchObject({ banRefused: 6 });
  expect(await view(stack, key)).not.toHaveProperty('banRefusedMore');
  // For each key, five refusals per minute get an entry. There are 30 entries.
  for (let other = 0; other < 7; other++) await bannedAfterUse(stack, 5);
  await expect.poll(() => view(stack, key)).toMatchObject({ banRefused: 0, banRefusedMore: true });
  const { minutes, bannedCountedSince } = await usageOf(stack, key);
  expect(minutes).toEqual([{ at: expect.any(String), admitted: 1, refused: 0 }]);
  expect(Date.parse(bannedCountedSince as string)).toBeGreaterThan(Date.parse(minutes[0]?.at as string));
});

test('the usage by minute shows no refusals by bans of zero for minutes that began before a gateway', async () => {
  const before = await startStack(withRedis);
  const key = await bannedAfterUse(before, 6);
  await expect.poll(() => bannedIn(before, key)).toBe(6);
  await before.stop();
  const begun = Date.now();
  const after = await startStack(withRedis);
  const { minutes, bannedCountedSince } = await usageOf(after, key);
  expect(minutes).toEqual([{ at: expect.any(String), admitted: 1, refused: 0 }]);
  expect(Date.parse(bannedCountedSince as string)).toBeGreaterThanOrEqual(begun);
});

test('the usage by minute shows that no ban refused any request, if gateways have run for longer', async () => {
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() - 120_000 });
  const stack = await startStack().finally(() => vi.useRealTimers());
  const key = await stack.issueKey();
  expect(await codeOf(stack, key)).toBe(200);
  expect((await usageOf(stack, key)).minutes).toMatchObject([{ admitted: 1, banned: 0 }]);
});

test('while a worker does not respond, nobody knows how many requests bans have refused', async () => {
  const workers = await startWorkers();
  const key = await workers.issueKey();
  const usage = async () => (await workers.admin(`/keys/${idOf(key)}/usage`)).json;
  expect(await usage()).toHaveProperty('bannedCountedSince');
  suspend(workers.pids()[0] as number);
  expect(await usage()).not.toHaveProperty('bannedCountedSince');
});

test('a limit is reported as too low once its clients have had to wait over a minute for ten minutes', async () => {
  const stack = await startStack(withRedis);
  const [small, busy] = [idOf(await stack.issueKey({ name: 'small' })), idOf(await stack.issueKey({ name: 'busy' }))];
  const [now, minute] = [Date.now() / 1_000, Math.floor(Date.now() / 60_000)];
  // The wait has grown to four minutes. Since then, requests have arrived at the limit's rate.
  const marksOf = (minutes: number) =>
    Array.from({ length: minutes }, (_, at) => `${minute - minutes + at}:0:${at === 0 ? 0 : 240 + 60 * at}`);
  for (const [id, minutes] of [
    [small, 15],
    [busy, 5],
  ] as const) {
    await redis.hset(hashOf(id), {
      left: `${now} 0/60 900/1000`,
      refusals: `${now + 241} ${now + 5} 0`,
      refused: 240 + 60 * minutes,
    });
    await redis.hset(`gateway:marks:{${id}}`, { usage_minutes: marksOf(minutes).join(' ') });
  }
  const { tooSmall, waitSeconds = 0 } = await get<KeyView>(stack, `/keys/${small}`);
  expect([tooSmall, waitSeconds > 200 && waitSeconds <= 241]).toEqual([true, true]);
  const other = await get<KeyView>(stack, `/keys/${busy}`);
  expect([other.tooSmall, (other.waitSeconds ?? 0) > 200]).toEqual([undefined, true]);
  const said = /limit too low for its clients: a refused request waits 4 min/;
  expect((await ctl(stack, 'keys', 'show', small)).out).toMatch(said);
  const { out } = await ctl(stack, 'keys', 'list');
  expect(out.split('\n').filter((line) => said.test(line))).toEqual([expect.stringContaining(small)]);
});

const standingOf = (answer: Answer) => [answer.status, answer.headers['x-ratelimit-remaining'], dayLeft(answer)];

const BAN_SECONDS = 300;

/** Issues a key and sends requests until both buckets are empty, requests are in line, and it has its first ban. */
async function bannedKey(stack: Stack): Promise<string> {
  await stack.admin('PATCH', '/plans/free', { ban_after: 3, ban_grace_seconds: 0, ban_seconds: BAN_SECONDS });
  const key = await stack.issueKey({ name: 'stuck', minute: 4, day: 4 });
  for (let sent = 0; sent < 20; sent++) if ((await codeOf(stack, key)) === 'key_banned') return key;
  throw new Error('The key was not banned.');
}

describe.for(bothStacks(REDIS_URL))('resets with %s', async ([, environment]) => {
  const stack = await startStack(environment);

  test('a reset restores the full limits of a banned key with empty buckets and a line, but keeps its usage, even across a restart', async () => {
    const DATA_DIR = await temporaryFolder();
    const first = await startStack({ ...environment, DATA_DIR });
    const [key, other] = [await bannedKey(first), await bannedKey(first)];
    const usage = async () => {
      const { minutes, days } = await get<KeyUsageAnswer>(first, `/keys/${idOf(key)}/usage`);
      return { minutes, days };
    };
    const [before, used] = [await view(first, key), await usage()];
    expect(before).toMatchObject({ state: 'banned', bans: 1, buckets: { day: { remaining: 0 } } });
    const reset = await first.admin('POST', `/keys/${idOf(key)}/reset`, { reason: 'their loop is fixed' });
    const full = (limit: number) => ({ limit, remaining: limit, used: 0 });
    const { admitted, refused, lastUsedAt } = before;
    const kept = { admitted, refused, lastUsedAt };
    const json = { state: 'active', bans: 0, ...kept, buckets: { minute: full(4), day: full(4) } };
    expect(reset).toMatchObject({ status: 200, json });
    expect(await usage()).toEqual(used);
    expect(standingOf(await ask(first, key))).toEqual([200, '3', 3]);
    expect(await view(first, key)).toMatchObject({ admitted: 5 });
    await first.admin('POST', `/keys/${idOf(other)}/reset`, {});
    await first.stop();
    const again = await startStack({ ...environment, DATA_DIR });
    expect(standingOf(await ask(again, other))).toEqual([200, '3', 3]);
    expect(dayLeft(await ask(again, key))).toBe(2);
  });

  test('after a reset, the next ban takes as many refusals and lasts as long as a first ban', async () => {
    const key = await bannedKey(stack);
    // The first reset clears a ban; the second clears only strikes.
    for (let round = 0; round < 2; round++) {
      await stack.admin('POST', `/keys/${idOf(key)}/reset`, {});
      const codes: unknown[] = [];
      for (let sent = 0; sent < 7; sent++) codes.push(await codeOf(stack, key));
      expect(codes).toEqual([200, 200, 200, 200, ...Array(3).fill('rate_limit_exceeded')]);
    }
    expect(await codeOf(stack, key)).toBe('key_banned');
    const { bans, bannedUntil = '' } = await view(stack, key);
    expect([bans, Date.parse(bannedUntil) - Date.now() <= BAN_SECONDS * 1_000]).toEqual([1, true]);
  });

  test('the audit entry of a reset lists the ban and the strikes that it cleared, and the buckets that it filled', async () => {
    const key = await bannedKey(stack);
    const { bannedUntil } = await view(stack, key);
    const reset = async () => {
      await stack.admin('POST', `/keys/${idOf(key)}/reset`, {});
      const changes = (await activityOf(stack, `?target=${idOf(key)}&limit=1`))[0]?.changes ?? [];
      return [changes.filter(({ field }) => !field.endsWith('Remaining')), changes.slice(-2)];
    };
    const full = (from: string | RegExp) => [
      { field: 'minuteRemaining', from: expect.stringMatching(from), to: '4' },
      { field: 'dayRemaining', from: expect.stringMatching(/^\d+$/), to: expect.stringMatching(/^\d+$/) },
    ];
    const refusals = { field: 'refusals', from: 'remembered' };
    expect(await reset()).toEqual([[{ field: 'bannedUntil', from: bannedUntil }, refusals], full(/^[01]$/)]);
    expect(await reset()).toEqual([[], []]);
    for (let sent = 0; sent < 6; sent++) await ask(stack, key);
    expect(await reset()).toEqual([[refusals], full(/^[01]$/)]);
  });
});
