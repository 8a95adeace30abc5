import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { listeningCore } from '../support/faulty-core.ts';
import { type Answered, ask } from '../support/paced-load.ts';
import { connectionTo, ownRedis } from '../support/redis-database.ts';
import { startGatewayProcess } from '../support/redis-fault.ts';
import { createKey } from '../support/redis-keys.ts';

const HOUR_MS = 3_600_000;
const DAY_S = 86_400;
/** The day limit is the tighter one, so that almost nothing is refilled during a test. */
const LIMITS = { minute: 25, day: 20 };
/** The wait for the next token of the day. With such low limits, it is longer than any wait in line. */
const RETRY_S = DAY_S / LIMITS.day;
/** The delay that a busy machine may add. The error of a wrong clock, at least an hour, is far larger. */
const TOLERANCE_S = 60;

/** The option that shifts the wall clock of a process from its start. */
const wrongClock = (offsetMs: number): string => {
  const source = `const now = Date.now; Date.now = () => now() + ${offsetMs};
    globalThis.Date = class extends Date { constructor(...given) { given.length === 0 ? super(Date.now()) : super(...given) } };`;
  return `--import=data:text/javascript,${encodeURIComponent(source)}`;
};

async function setUp() {
  const server = await ownRedis();
  const settings = { CORE_URL: (await listeningCore()).url, REDIS_URL: server.url, REDIS_TIMEOUT_MS: '5000' };
  return { server, redis: connectionTo(server.url), settings };
}

const header = ({ headers }: Answered, name: string) => Number(headers[name]);

test('gateways whose clocks differ by two hours make the same decisions, with and without Redis', async () => {
  const { server, redis, settings } = await setUp();
  await redis.hset('gateway:plans', {
    'free.minute': String(LIMITS.minute),
    'free.ban_after': '8',
    'free.ban_grace_seconds': '0',
    'free.ban_seconds': '100',
  });
  const gateways = await Promise.all(
    [-HOUR_MS, HOUR_MS].map((ms) => startGatewayProcess({ ...settings, NODE_OPTIONS: wrongClock(ms) })),
  );
  const begun = Date.now();
  // The reset time is by the Redis clock, which is the machine's clock.
  const expectReset = (answer: Answered | undefined, inSeconds: number) =>
    expect(Math.abs(header(answer as Answered, 'x-ratelimit-reset') - begun / 1_000 - inSeconds)).toBeLessThan(
      TOLERANCE_S,
    );
  const shared = await createKey(redis, LIMITS);
  const answers: Answered[] = [];
  for (let sent = 0; sent < LIMITS.day + 25; sent++)
    answers.push(await ask(gateways[sent % gateways.length]?.url ?? '', shared.apiKey));
  const admitted = answers.slice(0, LIMITS.day);
  expect(admitted.map((answer) => header(answer, 'x-ratelimit-remaining'))).toEqual(
    Array.from({ length: LIMITS.day }, (_, at) => LIMITS.day - 1 - at),
  );
  for (const [at, answer] of admitted.entries()) expectReset(answer, ((at + 1) * DAY_S) / LIMITS.day);
  const refused = answers.slice(LIMITS.day);
  const codes = refused.map(({ json }) => (json as { code?: string }).code);
  // Strikes expire, so slow requests may get more than eight refusals.
  const borne = codes.indexOf('key_banned');
  expect(borne).toBeGreaterThanOrEqual(8);
  expect(codes).toEqual(codes.map((_, at) => (at < borne ? 'rate_limit_exceeded' : 'key_banned')));
  // The ban expires long before the next token is refilled.
  for (const answer of refused) expectReset(answer, RETRY_S);

  const own = await Promise.all(gateways.map(() => createKey(redis, LIMITS)));
  for (const [at, { url }] of gateways.entries()) await ask(url, own[at]?.apiKey ?? '');
  await server.stop();
  for (const [at, { url }] of gateways.entries()) {
    const local: Answered[] = [];
    while (local.length < 2 * LIMITS.day) local.push(await ask(url, own[at]?.apiKey ?? ''));
    expect(local.filter((answer) => answer.admitted)).toHaveLength(LIMITS.day - 1);
    expectReset(local[0], (2 * DAY_S) / LIMITS.day);
    expectReset(local.at(-1), RETRY_S);
  }

  const logs = await Promise.all(gateways.map((gateway) => gateway.stop()));
  const [slow = 0, fast = 0] = logs.map((log) => Date.parse(String(log[0]?.time)));
  expect(Math.round((fast - slow) / HOUR_MS)).toBe(2);
});

test('a clock that was wrong by a day grants at most one extra bucket and blocks no key', async () => {
  const { redis, settings } = await setUp();
  const gateway = await startGatewayProcess(settings);
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
    const [asOf, ...levels] = String(await redis.hget(key.hash, 'left')).split(' ');
    await redis.hset(key.hash, 'left', [(Number(asOf) + days * 86_400).toFixed(6), ...levels].join(' '));
    const { admitted, refilled } = await spend(key.apiKey);
    expect(admitted).toBeGreaterThanOrEqual(given);
    expect(admitted).toBeLessThanOrEqual(given + refilled + 1);
    await sleep(1_100);
    expect((await ask(gateway.url, key.apiKey)).status).toBe(200);
  }
});
