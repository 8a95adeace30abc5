import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { expect, test } from 'vitest';
import { cleanUp } from '../support/clean-up.ts';
import { emptyPostgres } from '../support/databases.ts';
import { send } from '../support/http.ts';
import { startService } from '../support/process.ts';
import { UNLIMITED } from '../support/stack.ts';
import { stackBefore } from '../support/stack-before.ts';
import { quantile } from '../support/statistics.ts';
import { TIMED } from '../support/timed.ts';

const LOCKED_MS = 2_000;
const BOUND_MS = 100;

test(
  'while orders are locked in PostgreSQL, reading pets through the gateway is as fast as directly from the core',
  TIMED,
  async () => {
    const url = await emptyPostgres();
    const core = await startService('core/main.ts', { PORT: '0', DATABASE_URL: url, LOG_LEVEL: 'warn' });
    const { stack, key: blocked, get } = await stackBefore(core.addresses.core ?? '');
    const free = await stack.issueKey(UNLIMITED);
    for (const key of [blocked, free]) await get('', { key });
    const locking = new pg.Client(url);
    await locking.connect();
    cleanUp(() => locking.end());
    await locking.query('BEGIN; LOCK TABLE orders');

    // Fewer than the core's database connections.
    const orders = Array.from({ length: 5 }, () => send(`${stack.gateway}/v1/store/orders`, { key: blocked }));
    const [direct, through]: [number[], number[]] = [[], []];
    const time = async (times: number[], asked: () => Promise<{ status: number }>) => {
      const before = performance.now();
      expect((await asked()).status).toBe(200);
      times.push(performance.now() - before);
    };
    for (const end = performance.now() + LOCKED_MS; performance.now() < end; await sleep(10)) {
      await Promise.all([
        ...Array.from({ length: 4 }, () => time(through, () => get('', { key: free }))),
        time(direct, () => send(`${core.addresses.core}/v1/pets`)),
      ]);
    }
    await locking.query('ROLLBACK');
    expect(new Set((await Promise.all(orders)).map(({ status }) => status))).toEqual(new Set([200]));
    expect(quantile(through, 0.99)).toBeLessThan(quantile(direct, 0.99) + BOUND_MS);
  },
);
