import net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { startFaultProxy } from '../support/fault-proxy.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { startStack } from '../support/stack.ts';

/** An operator's client that leaves while its token is looked up. */

const { url } = await emptyDatabase();

test('a request whose body ended early during the token lookup is finished and has its log line', async () => {
  const proxy = await startFaultProxy(url);
  const stack = await startStack({ REDIS_URL: proxy.url, REDIS_TIMEOUT_MS: '2000' });
  const created = await stack.admin('POST', '/tokens', { name: 'grace', role: 'operator' });
  const { token } = created.json as { token: string };
  proxy.set({ kind: 'delay', ms: 300 });
  const client = net.connect(Number(new URL(stack.adminUrl).port), '127.0.0.1');
  const lines = ['POST /keys HTTP/1.1', 'Host: 127.0.0.1', `Authorization: Bearer ${token}`];
  client.write([...lines, 'Content-Type: application/json', 'Content-Length: 100', '', '{'].join('\r\n'));
  await sleep(100);
  client.resetAndDestroy();
  const line = { actor: 'grace', operation: 'createKey', status: 400 };
  await expect.poll(() => stack.log).toContainEqual(expect.objectContaining(line));
});
