import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { repeat } from '../../shared/process/repeat.ts';
import { judge } from '../support/allowance-checker.ts';
import { startFaultProxy } from '../support/fault-proxy.ts';
import { inTurn } from '../support/in-turn.ts';
import { ask, startLoad } from '../support/paced-load.ts';
import { connectionTo, ownRedis } from '../support/redis-database.ts';
import { withModes } from '../support/redis-fault.ts';
import { startStack } from '../support/stack.ts';
import { quantile } from '../support/statistics.ts';

/** A slow Redis is not an outage: four gateways share each limit exactly while Redis answers within the deadline. */

const MINUTE = 70;
const LASTS_MS = 12_000;

/** Starts four gateways on one Redis, and creates a key for load on all of them, and unused keys. */
async function fourGateways() {
  const server = await ownRedis();
  const redis = connectionTo(server.url);
  const proxy = await startFaultProxy(server.url);
  const stacks = await inTurn([1, 2, 3, 4], 2, () => startStack({ REDIS_URL: proxy.url }));
  const [first] = stacks;
  const hammered = await first!.issueKey({ minute: MINUTE, day: 100_000 });
  await first!.admin('PATCH', '/plans/free', { ban_after: 1_000_000 });
  const unseen = await inTurn(Array.from({ length: 40 }), 8, () => first!.issueKey());
  return { redis, proxy, stacks, hammered, unseen };
}

async function observe({ stacks, hammered, unseen }: Awaited<ReturnType<typeof fourGateways>>) {
  const loads = stacks.map(({ gateway }) => startLoad(gateway, () => hammered, { clients: 2, pauseMs: 20 }));
  const fresh = [];
  for (const [at, key] of unseen.entries()) {
    fresh.push(await ask(stacks[at % 4]!.gateway, key));
    await sleep(LASTS_MS / unseen.length);
  }
  await Promise.all(loads.map((load) => load.stop()));
  return { answers: loads.flatMap(({ answers }) => answers), fresh };
}

/** The delay of each reply, or the duration of pauses. Both tests run at the same time, because they mostly wait. */
const SLOWNESS = { 'answers after 60 ms': { delayMs: 60 }, 'pauses for 120 ms twice a second': { pauseMs: 120 } };

const observed = await Promise.all(
  Object.entries(SLOWNESS).map(
    async ([how, { delayMs, pauseMs }]: [string, { delayMs?: number; pauseMs?: number }]) => {
      const rig = await fourGateways();
      if (delayMs !== undefined) rig.proxy.set({ kind: 'delay', ms: delayMs });
      const ended = new AbortController();
      // A timer of its own would send two pauses in a row after a stall of this process.
      if (pauseMs !== undefined) void repeat(500, ended.signal, () => rig.redis.client('PAUSE', pauseMs));
      const { answers, fresh } = await observe(rig);
      ended.abort();
      return { how, answers, fresh, stacks: rig.stacks };
    },
  ),
);

test.for(observed)(
  'while Redis $how, four gateways admit exactly the limit, and no key gets a 5xx',
  ({ answers, fresh, stacks }) => {
    expect(new Set(fresh.map(({ status }) => status))).toEqual(new Set([200]));
    // Its log says why a gateway decides alone, and its body why it refuses a request.
    for (const stack of stacks) expect(stack.log.filter(({ msg }) => msg === 'decisions are local')).toEqual([]);
    expect(answers.filter(({ status }) => status !== 200 && status !== 429)).toEqual([]);
    const judgement = judge(answers, { capacity: MINUTE, windowMs: 60_000 });
    expect(judgement.violations).toEqual([]);
    expect(judgement.usedShare).toBeGreaterThan(0.95);
  },
);

/** The delay that a busy machine may add to the slowest of a thousand requests. */
const NOISE_MS = 100;

test.for([60, 100])(
  'when a Redis with a latency of %d ms is lost, requests wait at most 300 ms, and decisions are shared again within 0.5 s of its return',
  async (ms) => {
    const server = await ownRedis();
    const proxy = await startFaultProxy(server.url);
    const stack = await startStack({ REDIS_URL: proxy.url });
    const keys = await Promise.all(
      Array.from({ length: 8 }, () => stack.issueKey({ minute: 1_000_000, day: 1_000_000 })),
    );
    for (const key of keys) await ask(stack.gateway, key);
    proxy.set({ kind: 'delay', ms });
    const loads = keys.map((key) => startLoad(stack.gateway, () => key, { clients: 4, pauseMs: 2 }));
    await sleep(1_000);
    proxy.set({ kind: 'black-hole' });
    const lostAt = performance.now();
    await sleep(2_000);
    proxy.set({ kind: 'delay', ms });
    const contactAt = performance.now();
    await sleep(1_500);
    await Promise.all(loads.map((load) => load.stop()));
    const answers = withModes(
      loads.flatMap((load) => load.answers),
      stack.log,
    );
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
    const atLoss = answers.filter(({ sentAt, answeredAt }) => answeredAt > lostAt && sentAt < lostAt + 300);
    const waits = atLoss.map(({ ms: took }) => took);
    const again = answers.find(({ sentAt, mode }) => sentAt >= contactAt && mode === 'shared');
    const sharedAfter = (again?.sentAt ?? Infinity) - contactAt;
    process.stdout.write(
      `loss of a Redis that answers after ${ms} ms: ${waits.length} requests, p99.9 ${quantile(waits, 0.999).toFixed(0)} ms; shared again after ${sharedAfter.toFixed(0)} ms\n`,
    );
    expect(quantile(waits, 0.999)).toBeLessThan(300 + NOISE_MS);
    expect(sharedAfter).toBeLessThan(500 + NOISE_MS);
  },
);

test('a Redis with a latency of 150 ms that lost its scripts still decides requests with unverified keys', async () => {
  const { redis, proxy, stacks, unseen } = await fourGateways();
  proxy.set({ kind: 'delay', ms: 150 });
  for (const key of unseen.slice(0, 4)) {
    await redis.script('FLUSH');
    expect((await ask(stacks[0]!.gateway, key)).status).toBe(200);
  }
});
