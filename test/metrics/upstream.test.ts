import type { Socket } from 'node:net';
import { expect, test, vi } from 'vitest';
import { readCoreSettings } from '../../core/config.ts';
import { startCore } from '../../core/core.ts';
import { cleanUp } from '../support/clean-up.ts';
import { bareCore, faultyCore, listeningCore, OK } from '../support/faulty-core.ts';
import { post, send } from '../support/http.ts';
import { readableLog } from '../support/log.ts';
import { eventuallyScraped, scrape } from '../support/metrics.ts';
import { freePort } from '../support/port.ts';
import { startStack } from '../support/stack.ts';

test('core failures are counted by kind, and readiness is reported', async () => {
  const unreachable = `http://127.0.0.1:${await freePort()}`;
  const broken = await faultyCore((socket) => socket.destroy());
  const silent = await bareCore(() => {});
  const strict = await faultyCore((socket) => socket.write('HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n'));
  for (const [CORE_URL, kind, ready] of [
    [unreachable, 'unreachable', 0],
    [broken, 'broken', 1],
    [silent, 'timeout', 1],
    [strict, 'token', 1],
  ] as const) {
    const stack = await startStack({ CORE_URL, CORE_TIMEOUT_MS: '300' });
    const { status } = await post(`${stack.gateway}/v1/pets`, {}, { key: await stack.issueKey() });
    expect([kind, status]).toEqual([kind, kind === 'timeout' ? 504 : 502]);
    const metrics = await scrape(stack.adminUrl);
    const failed = metrics.series('gateway_upstream_errors_total').filter(({ value }) => value > 0);
    expect(failed).toEqual([{ name: 'gateway_upstream_errors_total', labels: { core: CORE_URL, kind }, value: 1 }]);
    expect([kind, metrics.sum('gateway_upstream_ready', { core: CORE_URL })]).toEqual([kind, ready]);
  }
});

test('an unreachable core is ready again from its first answer', async () => {
  const port = String(await freePort());
  const stack = await startStack({ CORE_URL: `http://127.0.0.1:${port}` });
  const key = await stack.issueKey();
  const ask = async () => {
    const { status } = await send(`${stack.gateway}/v1/pets`, { key });
    return [status, (await scrape(stack.adminUrl)).sum('gateway_upstream_ready')];
  };
  expect(await ask()).toEqual([502, 0]);
  const settings = readCoreSettings({ PORT: port, DATABASE_URL: `sqlite:${stack.directory}/other.db` });
  const core = await startCore(settings, readableLog().logger);
  cleanUp(() => core.stop(0));
  expect(await ask()).toEqual([200, 1]);
});

test('requests in progress, limit and duration are reported for each core', async () => {
  const waiting: Socket[] = [];
  const slow = await faultyCore((socket) => void waiting.push(socket));
  const stack = await startStack({ CORE_URL: slow });
  const key = await stack.issueKey();
  const answers = Promise.all(Array.from({ length: 5 }, () => send(`${stack.gateway}/v1/pets`, { key })));
  await eventuallyScraped(stack.adminUrl, (metrics) => metrics.sum('gateway_upstream_in_flight', { core: slow })).toBe(
    5,
  );
  expect((await scrape(stack.adminUrl)).sum('gateway_upstream_limit', { core: slow })).toBe(2_048);
  await vi.waitFor(() => expect(waiting).toHaveLength(5), { timeout: 30_000 });
  for (const socket of waiting) socket.write(OK);
  expect((await answers).map(({ status }) => status)).toEqual(Array(5).fill(200));
  await eventuallyScraped(stack.adminUrl, (metrics) => metrics.sum('gateway_upstream_in_flight', { core: slow })).toBe(
    0,
  );
  const metrics = await scrape(stack.adminUrl);
  expect(metrics.sum('gateway_upstream_duration_seconds_count', { core: slow })).toBe(5);
  expect(metrics.sum('gateway_upstream_duration_seconds_sum', { core: slow })).toBeGreaterThan(0);
});

test('one of several cores that does not answer its probes is reported as not ready', async () => {
  const [silent, { url: good }] = [await bareCore(() => {}), await listeningCore()];
  const stack = await startStack({ CORE_URL: `${silent},${good}` });
  await eventuallyScraped(stack.adminUrl, (metrics) =>
    [silent, good].map((core) => metrics.sum('gateway_upstream_ready', { core })),
  ).toEqual([0, 1]);
});
