import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { judge } from '../support/allowance-checker.ts';
import { faultyCore, OK } from '../support/faulty-core.ts';
import { send } from '../support/http.ts';
import { hammer, readAndWrite } from '../support/load.ts';
import { connectRaw } from '../support/raw-client.ts';
import { startWorkers, type Workers } from '../support/workers.ts';

const RESTARTS = 2;
const CONNECTIONS = 16;
/** The pause between requests leaves connections idle. A faulty stop would cut them. */
const PAUSE_MS = 60;
/** Less than the second for which a stopping gateway still accepts connections. */
const NOTICED_AFTER_MS = 400;
/** Enough for two starts and two stops while other tests run. */
const RESTARTED_WITHIN_MS = 120_000;

const MINUTE_LIMIT = 40;
const KEYS = 50;
const LIMITED_MS = 5_000;

async function restart({ child, logged }: Workers): Promise<void> {
  const before = logged('rolling restart done').length;
  child.kill('SIGHUP');
  await expect.poll(() => logged('rolling restart done').length, { timeout: RESTARTED_WITHIN_MS }).toBe(before + 1);
}

/** Two workers for the first two tests. The second one stops them. */
const workers = await startWorkers();

test('each key gets exactly its allowance during a rolling restart of two workers', async () => {
  // The clients must not be banned.
  expect((await workers.change('PATCH', '/plans/enterprise', { ban_after: 1_000_000_000 })).status).toBe(200);
  const limits = { plan: 'enterprise', minute: MINUTE_LIMIT, day: 1_000_000 };
  const keys = await Promise.all(Array.from({ length: KEYS }, () => workers.issueKey(limits)));
  const hammering = hammer(workers.gateway, keys, CONNECTIONS, LIMITED_MS);
  await sleep(LIMITED_MS / 4);
  await restart(workers);
  const observed = await hammering;
  const { violations, usedShare } = judge(observed, { capacity: MINUTE_LIMIT, windowMs: 60_000 });
  expect(violations).toEqual([]);
  expect(usedShare).toBeGreaterThanOrEqual(0.999);
  const shares = Map.groupBy(workers.logged('request'), ({ worker }) => worker);
  expect([...shares.keys()].sort()).toEqual([1, 2]);
});

test(`${RESTARTS} rolling restarts under load and a final stop cause no failed request`, async () => {
  const [served, exits] = [workers.logged('worker is serving').length, workers.logged('worker stopped').length];
  const load = readAndWrite(workers.gateway, await workers.issueKey(), CONNECTIONS, PAUSE_MS);
  for (let count = 0; count < RESTARTS; count++) await restart(workers);
  expect(new Set(workers.logged('worker is serving').map(({ pid }) => pid)).size).toBe(served + 2 * RESTARTS);
  expect(workers.logged('worker stopped').map(({ code }) => code)).toEqual(Array(exits + 2 * RESTARTS).fill(0));
  expect(workers.logged('worker exited')).toEqual([]);

  // A load balancer sends requests until it has noticed the stop.
  workers.child.kill('SIGTERM');
  while ((await send(`${workers.adminUrl}/readyz`)).status === 200) await sleep(20);
  await sleep(NOTICED_AFTER_MS);
  await load.end();
  expect((await workers.ended).code).toBe(0);
  process.stdout.write(`${RESTARTS} rolling restarts: ${JSON.stringify(Object.fromEntries(load.outcomes))}\n`);
  expect([...load.outcomes.keys()].sort()).toEqual(['GET 200', 'POST 200']);
}, 600_000);

/** Less than the limits for a request and for its head, which count from its first byte. */
const UPLOADED_WITHIN_MS = 24_000;
const HEAD_WITHIN_MS = 8_000;
const ANSWERED_AFTER_MS = 20_000;

const slowly = Promise.withResolvers<void>();
/** A core that never answers reads of orders, and answers some requests slowly. */
const core = await faultyCore((socket, head) => {
  const isSlow = head.includes('Slow');
  if (isSlow) slowly.resolve();
  if (!head.includes('/orders')) setTimeout(() => socket.write(OK), isSlow ? ANSWERED_AFTER_MS : 0);
});
/** One worker for the last two tests. */
const lone = await startWorkers({ WORKERS: '1', REDIS_URL: '', CORE_URL: core, CORE_TIMEOUT_MS: '600000' });

/** Begins a rolling restart, and waits until the new worker serves. */
async function renew(): Promise<void> {
  const [before] = lone.pids();
  lone.child.kill('SIGHUP');
  await expect.poll(() => lone.pids()[0], { timeout: RESTARTED_WITHIN_MS }).not.toBe(before);
}

test('a replaced worker still serves slow clients and waits for slow responses from the core', async () => {
  const key = await lone.issueKey();
  const head = (line: string, length: number) =>
    `${line} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${key}\r\nContent-Type: application/json\r\nContent-Length: ${length}\r\n\r\n`;
  const body = '{"name":"Rex","categoryId":1}';
  const begunAt = performance.now();
  const within = (ms: number) => begunAt + ms - performance.now();
  const [upload, slowHead, slowAnswer] = await Promise.all([1, 2, 3].map(() => connectRaw(lone.gateway)));
  upload?.socket.write(head('POST /v1/pets', body.length) + body.slice(0, 9));
  slowHead?.socket.write('GET /v1/pets HT');
  slowAnswer?.socket.write(head('POST /v1/pets', body.length + 1) + body.replace('Rex', 'Slow'));
  await slowly.promise;
  await renew();

  const rest = head('GET /v1/pets', 0).slice('GET /v1/pets HT'.length);
  setTimeout(() => slowHead?.socket.write(rest), within(HEAD_WITHIN_MS));
  setTimeout(() => upload?.socket.write(body.slice(9)), within(UPLOADED_WITHIN_MS));
  const clients = [upload, slowHead, slowAnswer];
  await Promise.all(clients.map((client) => client?.closed));
  for (const client of clients) expect(client?.received()).toMatch(/^HTTP\/1\.1 200 .*\r\nConnection: close\r\n/s);
  await expect.poll(() => lone.logged('worker stopped')).toMatchObject([{ code: 0 }]);
});

test('a stop does not wait the full time that a recently replaced worker may take', async () => {
  const lost = send(`${lone.gateway}/v1/store/orders`, { key: await lone.issueKey() }).catch(({ code }) => code);
  await sleep(NOTICED_AFTER_MS);
  await renew();
  const before = performance.now();
  lone.child.kill('SIGTERM');
  expect((await lone.ended).code).toBe(0);
  expect(performance.now() - before).toBeLessThan(30_000);
  expect(await lost).toBe('ECONNRESET');
});
