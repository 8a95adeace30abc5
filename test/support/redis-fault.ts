import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { vi } from 'vitest';
import { type FaultProxy, startFaultProxy } from './fault-proxy.ts';
import { type LogLine, parsedLines } from './log.ts';
import { type Answered, ask, startLoad } from './paced-load.ts';
import { startService } from './process.ts';
import type { RedisServer } from './redis.ts';
import { connectionTo, ownRedis } from './redis-database.ts';
import { createKey } from './redis-keys.ts';
import { ADMIN_TOKEN, temporaryFolder } from './stack.ts';

/** A Redis process, a direct client for it, and a proxy that simulates a faulty network for the gateway. */
export interface Rig {
  readonly server: RedisServer;
  /** A client that bypasses the proxy. Its commands fail at once while Redis is unavailable. */
  readonly redis: Redis;
  readonly proxy: FaultProxy;
}

export interface RedisFault {
  readonly name: string;
  /** Resolves once the fault is active. */
  cause(rig: Rig): unknown;
  /** Resolves once the fault is over, or is certain to end by itself. */
  heal?(rig: Rig): unknown;
}

/** An answer, with its decision mode from the gateway's log. */
export interface Decided extends Answered {
  readonly mode: 'shared' | 'local';
}

/** The observations during one fault. All times are milliseconds on the same clock. */
export type Observation = Awaited<ReturnType<typeof observe>>;

export const TIGHT = 60;
export const BAN_AFTER = 10;
const SPENT_BEFORE = 40;
const WARM_MS = 400;
const FAULT_MS = 1_700;
/** On a busy machine, fewer requests are sent, so a fault lasts until there are enough, but at most this long. */
const LONGEST_FAULT_MS = 10_000;
const ENOUGH_STRANGERS = 6;
const AFTER_MS = 500;

/** A gateway in front of this core, and its Redis, which can fail in several ways, one after another. */
export async function startFailing(core: string, settings: Record<string, string> = {}) {
  const rig = await startRig();
  await rig.redis.hset('gateway:plans', { 'free.ban_after': BAN_AFTER, 'free.ban_grace_seconds': 0 });
  const gateway = await startGatewayProcess({ CORE_URL: core, REDIS_URL: rig.proxy.url, ...settings });
  return { rig, gateway, log: parsedLines(gateway.process.out) };
}

/** Causes the fault under load with new keys, and ends it. */
export async function observe(fault: RedisFault, { rig, gateway, log }: Awaited<ReturnType<typeof startFailing>>) {
  const { redis } = rig;
  const unknownBefore = await unknownFates(gateway.adminUrl);
  const [roomy, tight] = [await createKey(redis, { minute: 1e6, day: 1e6 }), await createKey(redis, { minute: TIGHT })];
  const unseen = await Promise.all(Array.from({ length: 100 }, () => createKey(redis)));

  const [metRoomy, metTight] = [await meet(gateway.url, roomy.apiKey), await meet(gateway.url, tight.apiKey)];
  const steady = startLoad(gateway.url, () => roomy.apiKey, { clients: 4, pauseMs: 10 });
  const before = metTight.slice(-1);
  while (before.length < SPENT_BEFORE) before.push(await ask(gateway.url, tight.apiKey));
  await sleep(WARM_MS);

  await fault.cause(rig);
  const causedAt = performance.now();
  const hammering = startLoad(gateway.url, () => tight.apiKey, { clients: 2, pauseMs: 5 });
  const strangers = startLoad(gateway.url, () => nextOf(unseen), { clients: 1, pauseMs: 200 });
  const isEnough = () =>
    hammering.answers.filter(({ status }) => status === 429).length > BAN_AFTER &&
    strangers.answers.length >= ENOUGH_STRANGERS;
  for (await sleep(FAULT_MS); !isEnough() && performance.now() < causedAt + LONGEST_FAULT_MS; ) await sleep(50);
  await Promise.all([hammering.stop(), strangers.stop()]);
  const fixedAt = performance.now();
  await fault.heal?.(rig);
  const healedAt = await answering(redis);
  const after = await meet(gateway.url, nextOf(unseen));
  await sleep(AFTER_MS);
  await steady.stop();

  rig.proxy.set({ kind: 'pass' });
  // Lines arrive shortly after answers.
  const decided = (answers: readonly Answered[]) => vi.waitFor(() => withModes(answers, log()));
  return {
    causedAt,
    /** From this time on, the gateway may reach Redis again, possibly before the test does. */
    fixedAt,
    /** The time at which Redis answered a direct client again. */
    healedAt,
    /** Requests with a key that stays within its allowance, from before the fault to after it. */
    roomy: await decided(steady.answers),
    /** Requests with a key that exceeds its allowance, from before the fault until it ends. */
    tight: await decided([...before, ...hammering.answers]),
    /**
     * Requests with keys that were new to the gateway. `during` the fault, each request uses another key. `after` it,
     * the requests use one key until the first of them succeeds.
     */
    unseen: { during: [...strangers.answers], after },
    /** The number of requests sent per key, including those before the observation. */
    sent: {
      roomy: metRoomy.length + steady.answers.length,
      tight: metTight.length - 1 + before.length + hammering.answers.length,
    },
    /** The gateway's count of local admissions that Redis may or may not have charged. */
    unknown: (await unknownFates(gateway.adminUrl)) - unknownBefore,
    roomyHash: await redis.hgetall(roomy.hash),
    tightHash: await redis.hgetall(tight.hash),
  };
}

/** Sends requests until the key is verified. On a busy machine even a healthy Redis can miss the deadline. */
async function meet(gateway: string, key: string): Promise<Answered[]> {
  const answers = [await ask(gateway, key)];
  for (; answers.at(-1)?.status !== 200 && answers.length < 200; await sleep(50)) answers.push(await ask(gateway, key));
  return answers;
}

async function unknownFates(adminUrl: string): Promise<number> {
  const text = await (await fetch(`${adminUrl}/metrics`)).text();
  return Number(/^gateway_local_admissions_total\{fate="unknown"\} (\d+)$/m.exec(text)?.[1]);
}

const nextOf = (keys: { apiKey: string }[]): string => (keys.pop() as { apiKey: string }).apiKey;

export async function startRig(): Promise<Rig> {
  const server = await ownRedis({ appendonly: 'yes', dir: await temporaryFolder() });
  const redis = connectionTo(server.url, {
    retryStrategy: () => 20,
    maxLoadingRetryTime: 20,
    maxRetriesPerRequest: 0,
    commandTimeout: 500,
  });
  return { server, redis, proxy: await startFaultProxy(server.url) };
}

/** The time at which Redis answers again. */
async function answering(redis: Redis): Promise<number> {
  while ((await redis.hlen('gateway:plans').catch(() => undefined)) === undefined) await sleep(5);
  return performance.now();
}

export type GatewayProcess = Awaited<ReturnType<typeof startGatewayProcess>>;

/** Starts a gateway process with the settings of a container. */
export async function startGatewayProcess(settings: Record<string, string>) {
  const environment = { PORT: '0', ADMIN_PORT: '0', ADMIN_TOKEN, ...settings };
  const process = await startService('gateway/main.ts', environment);
  return {
    url: process.addresses.gateway ?? '',
    adminUrl: process.addresses.admin ?? '',
    process,
    /** Stops the gateway as Ctrl-C does, and returns its log. */
    async stop(): Promise<LogLine[]> {
      process.child.kill('SIGINT');
      const { out } = await process.ended;
      return parsedLines(() => out)();
    },
  };
}

/** Adds to each answer the decision mode from the gateway's log. */
export function withModes(answers: readonly Answered[], log: readonly LogLine[]): Decided[] {
  const modes = new Map(log.filter(({ msg }) => msg === 'request').map(({ requestId, mode }) => [requestId, mode]));
  return answers.map((answer) => {
    if (!modes.has(answer.id)) throw new Error(`The log has no line for request ${answer.id}.`);
    return { ...answer, mode: modes.get(answer.id) === 'local' ? 'local' : 'shared' };
  });
}
