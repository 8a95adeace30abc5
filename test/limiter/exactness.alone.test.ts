import { expect, test } from 'vitest';
import { judge } from '../support/allowance-checker.ts';
import { hammer } from '../support/load.ts';
import { startService } from '../support/process.ts';
import { connectionTo, ownRedis } from '../support/redis-database.ts';
import { createKey } from '../support/redis-keys.ts';
import { temporaryFolder } from '../support/stack.ts';
import { thoroughly } from '../support/thorough.ts';

const GATEWAYS = 4;
const CONNECTIONS = 50;
const KEYS = thoroughly(60, 10);
const DURATION_MS = thoroughly(15_000, 2_500);
const MINUTE_LIMIT = 20;

test(`with ${GATEWAYS} gateways on one Redis, each key gets exactly its allowance`, async () => {
  const server = await ownRedis();
  const redis = connectionTo(server.url);
  await redis.hset('gateway:plans', {
    'free.minute': MINUTE_LIMIT,
    'free.day': 100_000,
    'free.ban_after': 1_000_000_000,
  });
  const keys = await Promise.all(Array.from({ length: KEYS }, async () => (await createKey(redis)).apiKey));
  const folder = await temporaryFolder();
  const core = await startService('core/main.ts', { PORT: '0', DATABASE_URL: `sqlite:${folder}/store.db` });
  const environment = {
    PORT: '0',
    ADMIN_PORT: '0',
    CORE_URL: core.addresses.core,
    REDIS_URL: server.url,
    REDIS_TIMEOUT_MS: '10000',
    DATA_DIR: folder,
    LOG_LEVEL: 'warn',
  };
  const gateways = await Promise.all(
    Array.from({ length: GATEWAYS }, () => startService('gateway/main.ts', environment)),
  );

  const loads = gateways.map(({ addresses }) => hammer(addresses.gateway ?? '', keys, CONNECTIONS, DURATION_MS));
  const observed = (await Promise.all(loads)).flat();
  const { violations, usedShare } = judge(observed, { capacity: MINUTE_LIMIT, windowMs: 60_000 });
  const admitted = observed.filter((request) => request.admitted).length;
  process.stdout.write(
    `${observed.length} requests, ${admitted} admitted, ${(usedShare * 100).toFixed(3)} % of the allowance used\n`,
  );

  expect(violations).toEqual([]);
  expect(usedShare).toBeGreaterThanOrEqual(0.999);
  expect(observed.length).toBeGreaterThan(2 * admitted);
});

test('the checker detects one request too many and an unused part of an allowance', () => {
  const request = (at: number, admitted: boolean) => ({ key: 'k', sentAt: at, answeredAt: at + 1, admitted });
  const allowance = { capacity: 2, windowMs: 1_000 };
  expect(judge([request(0, true), request(1, true), request(499, true)], allowance).violations).toEqual([]);
  expect(judge([request(0, true), request(1, true), request(498, true)], allowance).violations).toHaveLength(1);
  const late = [request(2_000, true), request(2_001, false), request(2_002, true)];
  expect(judge([request(0, true), request(1, true), ...late], allowance).usedShare).toBe(4 / 5);
  // Idle time does not count as unused allowance.
  expect(judge([request(0, true), request(1, true), request(9_000, true)], allowance).usedShare).toBe(1);
});
