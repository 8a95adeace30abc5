import { expect, test } from 'vitest';
import { WebSocket } from 'ws';
import { idOf } from '../support/api-key.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { opened, startLive } from './web-socket.ts';
import { webSocketCore } from './web-socket-core.ts';

const { url: redisUrl } = await emptyDatabase();

test.for([
  ['the embedded limiter', {}],
  ['Redis', { REDIS_URL: redisUrl, REDIS_TIMEOUT_MS: '2000' }],
] as const)('with %s, a WebSocket is closed when the secret that opened it expires', async ([, environment]) => {
  const core = await webSocketCore();
  const stack = await startLive({ ...environment, CORE_URL: core.url });
  const leaked = await stack.issueKey();
  const tunnel = await opened(stack, leaked);
  const rotated = await stack.admin('POST', `/keys/${idOf(leaked)}/rotate`, { graceSeconds: 2 });
  const fresh = await opened(stack, (rotated.json as { key: string }).key);
  const rotatedAt = performance.now();
  expect(await tunnel.closed).toBe(1_008);
  expect(performance.now() - rotatedAt).toBeGreaterThan(1_500);
  expect(fresh.webSocket.readyState).toBe(WebSocket.OPEN);
  await stack.admin('POST', `/keys/${idOf(leaked)}/rotate`, { graceSeconds: 0 });
  const before = performance.now();
  expect(await fresh.closed).toBe(1_008);
  expect(performance.now() - before).toBeLessThan(1_500);
});
