import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { send } from '../support/http.ts';
import { startLoad } from '../support/paced-load.ts';
import { type Decided, withModes } from '../support/redis-fault.ts';
import { MASTER_NAME, startSentinels, type Watched } from '../support/redis-sentinel.ts';
import { replicated } from '../support/replicated.ts';
import { type Stack, startStack, UNLIMITED } from '../support/stack.ts';

const KILLS = 5;
const KEYS = 8;
const MINUTE_LIMIT = 120;
const PER_MS = MINUTE_LIMIT / 60_000;
/** An upper bound for the replication delay on one machine. */
const UNREPLICATED_MS = 500;

interface Failover {
  /** The times just before and just after the primary was killed. */
  readonly since: number;
  readonly until: number;
  /** The time from the sentinels' announcement of a new primary to the first decision on it. */
  readonly sharedAfterMs: number;
}

async function setUp() {
  const watched = await startSentinels();
  const stack = await startStack({
    REDIS_MODE: 'sentinel',
    REDIS_URL: watched.urls,
    REDIS_MASTER_NAME: MASTER_NAME,
  });
  return { watched, stack };
}

/** Kills the primary, waits until decisions are shared again, and restarts the node as a replica. */
async function failOver(watched: Watched, stack: Stack): Promise<Failover> {
  const lost = await watched.primary();
  const logged = stack.log.length;
  const since = performance.now();
  await lost.server.stop();
  const until = performance.now();
  await expect.poll(() => watched.primary(), { timeout: 15_000, interval: 20 }).not.toBe(lost);
  const namedAt = performance.now();
  await expect.poll(() => isSharedAgain(stack, logged), { timeout: 5_000, interval: 10 }).toBe(true);
  const sharedAfterMs = performance.now() - namedAt;
  await watched.rejoin(lost);
  return { since, until, sharedAfterMs };
}

function isSharedAgain(stack: Stack, since: number): boolean {
  const modes = stack.log.slice(since).flatMap(({ msg, mode }) => (msg === 'request' ? [mode] : []));
  return modes.includes('local') && modes.at(-1) === undefined;
}

const admitted = (answers: readonly Decided[]): number => answers.filter((answer) => answer.admitted).length;

/**
 * How many admissions beyond its allowance a key may have. Eight clients take turns with the keys, so requests with one
 * key overlap and may finish in any order, and a request whose call was lost with the primary may be admitted in
 * addition.
 */
const OVERLAP = 4;

/**
 * For each interval of local decisions on a key: its admissions, and the tokens that were left before it or refilled
 * during it.
 */
function localStretches(answers: readonly Decided[]): { taken: number; allowed: number }[] {
  const inOrder = answers.toSorted((a, b) => a.answeredAt - b.answeredAt);
  const stretches: { taken: number; allowed: number }[] = [];
  let before = inOrder[0] as Decided;
  let local: Decided[] = [];
  for (const answer of inOrder) {
    if (answer.mode === 'local') local.push(answer);
    else {
      if (local.length > 0) stretches.push(stretch(before, local));
      [before, local] = [answer, []];
    }
  }
  return stretches;
}

function stretch(before: Decided, local: readonly Decided[]): { taken: number; allowed: number } {
  const left = Number(before.headers['x-ratelimit-remaining']);
  const elapsed = (local.at(-1)?.answeredAt ?? 0) - before.sentAt;
  return { taken: admitted(local), allowed: left + elapsed * PER_MS + OVERLAP };
}

test(`${KILLS} failovers cause no 5xx for verified keys and few admissions beyond their allowance`, async () => {
  const { watched, stack } = await setUp();
  await stack.admin('PATCH', '/plans/free', { minute: MINUTE_LIMIT, day: 1_000_000, ban_after: 1_000_000_000 });
  const keys = await Promise.all(Array.from({ length: KEYS }, () => stack.issueKey()));
  const startedAt = performance.now();
  for (const key of keys) await send(`${stack.gateway}/v1/pets`, { key });
  await replicated((await watched.primary()).redis, 2);
  let turn = 0;
  const load = startLoad(stack.gateway, () => keys[turn++ % KEYS] as string, { clients: 8, pauseMs: 10 });
  await sleep(2_000);
  const failovers: Failover[] = [];
  for (let kill = 0; kill < KILLS; kill++) failovers.push(await failOver(watched, stack));
  await load.stop();
  const elapsed = performance.now() - startedAt;
  const answers = withModes(load.answers, stack.log);
  const slowest = Math.max(...failovers.map(({ sharedAfterMs }) => sharedAfterMs));
  process.stdout.write(
    `${answers.length} requests, ${KILLS} failovers in ${(elapsed / 1_000).toFixed(1)} s, decisions shared again within ${slowest.toFixed(0)} ms of the announcement of a new primary\n`,
  );

  // If a request failed, this assertion shows its log line.
  expect(stack.log.filter(({ status }) => Number(status) >= 500)).toEqual([]);
  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200, 429]));
  expect(slowest).toBeLessThan(5_000);
  const { redis } = await watched.primary();
  for (const key of keys) {
    const own = answers.filter((answer) => answer.key === key);
    const stretches = localStretches(own);
    expect(stretches.length).toBeGreaterThan(KILLS / 2);
    for (const { taken, allowed } of stretches) expect(taken).toBeLessThanOrEqual(allowed);
    const local = own.filter(({ mode }) => mode === 'local');
    expect(admitted(local)).toBeLessThanOrEqual(MINUTE_LIMIT + elapsed * PER_MS + OVERLAP);
    const shared = own.filter(({ mode }) => mode === 'shared');
    const kept = Number(await redis.hget(`gateway:key:{${idOf(key)}}`, 'admitted'));
    // Local admissions are charged afterwards, but the level never falls below minus the minute limit.
    expect(kept).toBeLessThanOrEqual(2 * MINUTE_LIMIT + elapsed * PER_MS);
    const unreplicated = failovers.map(({ since, until }) =>
      admitted(shared.filter(({ answeredAt }) => answeredAt > since - UNREPLICATED_MS && answeredAt <= until)),
    );
    expect(admitted(shared) - kept).toBeLessThanOrEqual(unreplicated.reduce((sum, count) => sum + count, 0));
  }
});

test('the gateway switches to the new primary even if the old one becomes a replica and keeps its connections', async () => {
  const { watched, stack } = await setUp();
  const [key, unseen] = [await stack.issueKey(), await stack.issueKey()];
  const ask = (apiKey: string) => send(`${stack.gateway}/v1/store/orders`, { key: apiKey });
  expect((await ask(key)).status).toBe(200);
  await watched.swap();
  expect((await ask(key)).status).toBe(200);
  expect(stack.log.findLast(({ msg }) => msg === 'decisions are local')?.reason).toContain('READONLY');
  await expect.poll(async () => (await ask(unseen)).status, { timeout: 10_000, interval: 50 }).toBe(200);
  const mode = async () => {
    await ask(key);
    return stack.log.findLast(({ msg }) => msg === 'request')?.mode;
  };
  await expect.poll(mode).toBeUndefined();
});

test('a gateway starts without its sentinels and finds the primary once they run', async () => {
  const watched = await startSentinels({ password: 'of-the-sentinels' });
  for (const sentinel of watched.sentinels) sentinel.child.kill('SIGSTOP');
  const stack = await startStack({
    REDIS_MODE: 'sentinel',
    REDIS_URL: watched.urls,
    REDIS_MASTER_NAME: MASTER_NAME,
    REDIS_SENTINEL_PASSWORD: 'of-the-sentinels',
  });
  expect((await stack.admin('GET', '/keys')).status).toBe(503);
  for (const sentinel of watched.sentinels) sentinel.child.kill('SIGCONT');
  await expect.poll(async () => (await stack.admin('GET', '/keys')).status, { timeout: 10_000 }).toBe(200);
  const sentinel = watched.sentinels[0]?.url.slice('redis://'.length);
  const times = (what: string) => stack.log.filter((line) => line.msg === what && line.sentinel === sentinel).length;
  // The gateway may still count this sentinel as unavailable, and would then not log it again.
  await expect.poll(() => times('sentinel is unavailable') - times('sentinel is back')).toBe(0);
  watched.sentinels[0]?.child.kill('SIGKILL');
  const about = { sentinel, reason: expect.stringContaining('ECONNREFUSED') };
  await expect.poll(() => stack.log.findLast(({ msg }) => msg === 'sentinel is unavailable')).toMatchObject(about);
  expect(JSON.stringify(stack.log)).not.toContain('of-the-sentinels');
});

const FROZEN_MS = 5_000;

async function planned({ sentinels }: Watched): Promise<void> {
  await sentinels[0]?.redis.call('SENTINEL', 'FAILOVER', MASTER_NAME);
}

async function afterFreeze(watched: Watched): Promise<void> {
  const { server } = await watched.primary();
  server.pause();
  await sleep(FROZEN_MS);
  server.resume();
}

test.for([
  ['a planned failover', planned],
  ['a failover after a freeze of the primary', afterFreeze],
] as const)('no acknowledged change is lost in %s, though the old primary still runs', async ([, failOverNow]) => {
  const watched = await startSentinels({ isHasty: false });
  const settings = { REDIS_MODE: 'sentinel', REDIS_URL: watched.urls, REDIS_MASTER_NAME: MASTER_NAME };
  const stacks = [await startStack(settings), await startStack(settings)];
  /** Sends a request to each gateway. @returns the statuses */
  const ask = async (key: string) => {
    const answers = stacks.map(({ gateway }) => send(`${gateway}/v1/store/orders`, { key }));
    return (await Promise.all(answers)).map(({ status }) => status);
  };
  const [created, revoked, served]: string[][] = [[], [], []];
  let isOver = false;
  const operate = async ({ admin }: Stack) => {
    for (let count = 0; !isOver; count++) {
      const { status, json } = await admin('POST', '/keys', { name: 'test', ...UNLIMITED });
      await sleep(50);
      if (status !== 201) continue;
      const { id, key } = json as { id: string; key: string };
      if (count % 2 === 0) created?.push(id);
      else {
        await ask(key);
        if ((await admin('DELETE', `/keys/${id}`)).status !== 204) continue;
        revoked?.push(id);
        if ((await ask(key)).includes(200)) served?.push(id);
      }
    }
  };
  const operators = stacks.map(operate);
  const before = await watched.primary();
  await sleep(1_000);
  await failOverNow(watched);
  await expect.poll(() => before.redis.info('replication'), { timeout: 60_000 }).toContain('role:slave');
  await sleep(1_000);
  isOver = true;
  await Promise.all(operators);
  const { redis } = await watched.primary();
  const exist = (ids: readonly string[] = []) => Promise.all(ids.map((id) => redis.exists(`gateway:key:{${id}}`)));
  expect(created?.length).toBeGreaterThan(20);
  expect(new Set(await exist(created))).toEqual(new Set([1]));
  expect(new Set(await exist(revoked))).toEqual(new Set([0]));
  expect(served).toEqual([]);
});
