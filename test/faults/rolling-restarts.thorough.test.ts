import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { judge } from '../support/allowance-checker.ts';
import { post, send } from '../support/http.ts';
import { hammer, readAndWrite } from '../support/load.ts';
import { startService } from '../support/process.ts';
import { ADMIN_TOKEN, temporaryFolder } from '../support/stack.ts';
import { thoroughly } from '../support/thorough.ts';
import { startWorkers, type Workers } from '../support/workers.ts';

const RESTARTS = thoroughly(20, 6);
const CONNECTIONS = 16;
/** A pause, because a careless stop cuts connections that are idle when their worker ends. */
const PAUSE_MS = 60;
/** Within the one second of the lame duck. */
const NOTICED_AFTER_MS = 400;
/** Two starts and two stops, on a machine where other tests run. */
const RESTARTED_WITHIN_MS = 120_000;
const SERVED = ['GET 200', 'POST 201'];

const MINUTE_LIMIT = 40;
const KEYS = 50;
const LIMITED_MS = 5_000;

async function startInFrontOfCore(): Promise<Workers> {
  const DATABASE_URL = `sqlite:${await temporaryFolder()}/store.db`;
  const core = await startService('core/main.ts', { PORT: '0', DATABASE_URL });
  return await startWorkers({ CORE_URL: core.addresses.core });
}

async function restart({ child, logged }: Workers, count: number): Promise<void> {
  child.kill('SIGHUP');
  await expect.poll(() => logged('rolling restart done').length, { timeout: RESTARTED_WITHIN_MS }).toBe(count);
}

test(`${RESTARTS} rolling restarts under load and a final stop fail no request`, async () => {
  const workers = await startInFrontOfCore();
  const load = readAndWrite(workers.gateway, await workers.issueKey(), CONNECTIONS, PAUSE_MS);
  for (let count = 1; count <= RESTARTS; count++) await restart(workers, count);
  expect(new Set(workers.logged('worker serves').map(({ pid }) => pid)).size).toBe(2 + 2 * RESTARTS);
  expect(workers.logged('worker stopped').map(({ code }) => code)).toEqual(Array(2 * RESTARTS).fill(0));
  expect(workers.logged('worker ended')).toEqual([]);

  // A load balancer notices the stop and takes a moment to turn away.
  workers.child.kill('SIGTERM');
  while ((await send(`${workers.adminUrl}/readyz`)).status === 200) await sleep(20);
  await sleep(NOTICED_AFTER_MS);
  await load.end();
  expect((await workers.ended).code).toBe(0);
  process.stdout.write(`${RESTARTS} rolling restarts: ${JSON.stringify(Object.fromEntries(load.outcomes))}\n`);
  expect([...load.outcomes.keys()].sort()).toEqual(SERVED);
}, 600_000);

test('two workers on one Redis, one restarted meanwhile: each key gets exactly its allowance', async () => {
  const workers = await startInFrontOfCore();
  // Clients that hammer are not to be banned.
  const patient = { method: 'PATCH', key: ADMIN_TOKEN };
  expect((await post(`${workers.adminUrl}/plans/enterprise`, { ban_after: 1_000_000_000 }, patient)).status).toBe(200);
  const limits = { plan: 'enterprise', minute: MINUTE_LIMIT, day: 1_000_000 };
  const keys = await Promise.all(Array.from({ length: KEYS }, () => workers.issueKey(limits)));
  const hammering = hammer(workers.gateway, keys, CONNECTIONS, LIMITED_MS);
  await sleep(LIMITED_MS / 4);
  await restart(workers, 1);
  const observed = await hammering;
  const { violations, usedShare } = judge(observed, { capacity: MINUTE_LIMIT, windowMs: 60_000 });
  expect(violations).toEqual([]);
  expect(usedShare).toBeGreaterThanOrEqual(0.999);
  const shares = Map.groupBy(workers.logged('request'), ({ worker }) => worker);
  expect([...shares.keys()].sort()).toEqual([1, 2]);
}, 180_000);
