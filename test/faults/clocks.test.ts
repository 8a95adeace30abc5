import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { expect, test } from 'vitest';
import { cleanUp } from '../support/clean-up.ts';
import { type Answered, ask } from '../support/paced-load.ts';
import { startService } from '../support/process.ts';
import { type RedisServer, startRedisServer } from '../support/redis.ts';
import { startGatewayProcess } from '../support/redis-fault.ts';
import { createKey } from '../support/redis-keys.ts';
import { temporaryFolder } from '../support/stack.ts';

const HOUR_MS = 3_600_000;
const MINUTE = 20;

/** Loaded by a process before anything else: its wall clock is wrong from the first moment on. */
const wrongClock = (offsetMs: number): string => {
  const source = `const now = Date.now; Date.now = () => now() + ${offsetMs};
    globalThis.Date = class extends Date { constructor(...given) { given.length === 0 ? super(Date.now()) : super(...given) } };`;
  return `--import=data:text/javascript,${encodeURIComponent(source)}`;
};

async function setUp(): Promise<{ server: RedisServer; redis: Redis; coreUrl: string }> {
  const server = await startRedisServer();
  cleanUp(server.stop);
  const redis = new Redis(server.url);
  redis.on('error', () => {});
  cleanUp(() => redis.disconnect());
  const folder = await temporaryFolder();
  const core = await startService('core/main.ts', { PORT: '0', DATABASE_URL: `sqlite:${folder}/store.db` });
  return { server, redis, coreUrl: core.addresses.core ?? '' };
}

const header = ({ headers }: Answered, name: string) => Number(headers[name]);

test('gateways whose clocks are two hours apart decide as one, with Redis and without it', async () => {
  const { server, redis, coreUrl } = await setUp();
  const settings = { CORE_URL: coreUrl, REDIS_URL: server.url, REDIS_TIMEOUT_MS: '2000' };
  await redis.hset('gateway:plans', { 'free.ban_after': '8', 'free.ban_seconds': '100' });
  const gateways = await Promise.all(
    [-HOUR_MS, 0, HOUR_MS].map((ms) => startGatewayProcess({ ...settings, NODE_OPTIONS: wrongClock(ms) })),
  );
  const begun = Date.now();
  const shared = await createKey(redis, { minute: MINUTE });
  const answers: Answered[] = [];
  const askInTurn = async (times: number) => {
    for (let sent = 0; sent < times; sent++) {
      const { url } = gateways[sent % gateways.length] as { url: string };
      answers.push(await ask(url, shared.apiKey));
    }
  };
  await askInTurn(MINUTE);
  expect(answers.map((answer) => header(answer, 'x-ratelimit-remaining'))).toEqual(
    Array.from({ length: MINUTE }, (_, at) => MINUTE - 1 - at),
  );
  await askInTurn(12);
  const outcomes = answers
    .slice(MINUTE)
    .map(({ json, admitted }) => (admitted ? 'none' : (json as { code: string }).code));
  expect(outcomes.slice(0, 7)).toEqual(Array(7).fill('rate_limit_exceeded'));
  expect(outcomes.slice(7)).toEqual(Array(5).fill('key_banned'));

  // Full again in a minute at the most, by the clock of Redis, which is the machine's own; or at the end of the ban.
  const seconds = begun / 1_000;
  for (const answer of answers) {
    expect(header(answer, 'x-ratelimit-reset')).toBeGreaterThanOrEqual(seconds);
    expect(header(answer, 'x-ratelimit-reset')).toBeLessThan(seconds + 120);
  }
  for (const answer of answers.slice(MINUTE + 7)) expect(Math.abs(header(answer, 'retry-after') - 98)).toBeLessThan(4);

  const own = await Promise.all(gateways.map(() => createKey(redis, { minute: MINUTE })));
  for (const [at, { url }] of gateways.entries()) await ask(url, own[at]?.apiKey ?? '');
  await server.stop();
  for (const [at, { url }] of gateways.entries()) {
    const local: Answered[] = [];
    while (local.length < 2 * MINUTE) local.push(await ask(url, own[at]?.apiKey ?? ''));
    expect(local.filter(({ admitted }) => admitted).length).toBeGreaterThanOrEqual(MINUTE - 1);
    expect(local.filter(({ admitted }) => admitted).length).toBeLessThanOrEqual(MINUTE + 2);
    expect(Math.abs(header(local[0] as Answered, 'x-ratelimit-reset') - Date.now() / 1_000)).toBeLessThan(30);
  }

  const logs = await Promise.all(gateways.map((gateway) => gateway.stop()));
  const [slow = 0, right = 0, fast = 0] = logs.map((log) => Date.parse(String(log[0]?.time)));
  expect([right - slow, fast - right].map((ms) => Math.round(ms / HOUR_MS))).toEqual([1, 1]);
});

test('a clock that was a day off grants one capacity at the most, and stalls nobody', async () => {
  const { server, redis, coreUrl } = await setUp();
  const gateway = await startGatewayProcess({ CORE_URL: coreUrl, REDIS_URL: server.url, REDIS_TIMEOUT_MS: '2000' });
  await redis.hset('gateway:plans', 'free.ban_after', '1000000000');
  await sleep(600);
  const limit = 60;
  const spend = async (key: string) => {
    const begun = performance.now();
    let admitted = 0;
    for (let sent = 0; sent < 2 * limit; sent++) admitted += (await ask(gateway.url, key)).admitted ? 1 : 0;
    return { admitted, refilled: Math.ceil(((performance.now() - begun) / 60_000) * limit) };
  };
  for (const { days, given } of [
    { days: 1, given: 0 },
    { days: -1, given: limit },
  ]) {
    const key = await createKey(redis, { minute: limit });
    await spend(key.apiKey);
    const asOf = Number(await redis.hget(key.hash, 'as_of'));
    await redis.hset(key.hash, 'as_of', (asOf + days * 86_400).toFixed(6));
    const { admitted, refilled } = await spend(key.apiKey);
    expect(admitted).toBeGreaterThanOrEqual(given);
    expect(admitted).toBeLessThanOrEqual(given + refilled + 1);
    await sleep(1_100);
    expect((await ask(gateway.url, key.apiKey)).status).toBe(200);
  }
});
