import { expect, test } from 'vitest';
import { bareCore, faultyCore, listeningCore } from '../support/faulty-core.ts';
import { post } from '../support/http.ts';
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

test('if one of several cores does not answer its probes, it is reported as not ready', async () => {
  const [silent, { url: good }] = [await bareCore(() => {}), await listeningCore()];
  const stack = await startStack({ CORE_URL: `${silent},${good}` });
  await eventuallyScraped(stack.adminUrl, (metrics) =>
    [silent, good].map((core) => metrics.sum('gateway_upstream_ready', { core })),
  ).toEqual([0, 1]);
});
