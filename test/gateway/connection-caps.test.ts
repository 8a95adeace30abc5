import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { send } from '../support/http.ts';
import { scrape } from '../support/metrics.ts';
import { connectRaw, type RawClient } from '../support/raw-client.ts';
import { type Stack, startStack } from '../support/stack.ts';

/**
 * Opens a connection without requests. Linux accepts all of 127.0.0.0/8, so tests can connect from several addresses.
 */
const connect = (url: string, from: string): Promise<RawClient> => connectRaw(url, { from });

const isClosedAtOnce = ({ closed }: RawClient): Promise<boolean> =>
  Promise.race([closed.then(() => true), sleep(500).then(() => false)]);

const refused = async ({ adminUrl }: Stack, limit: string) =>
  (await scrape(adminUrl)).sum('gateway_connections_refused_total', { limit }) ?? 0;

test("a connection over its address's limit is closed immediately and counted, and affects no others", async () => {
  const stack = await startStack({}, { connectionsPerAddress: 3 });
  const held = await Promise.all(Array.from({ length: 3 }, () => connect(stack.gateway, '127.0.0.2')));
  const over = await Promise.all(Array.from({ length: 2 }, () => connect(stack.gateway, '127.0.0.2')));
  expect(await Promise.all(over.map(isClosedAtOnce))).toEqual([true, true]);
  expect((await send(`${stack.gateway}/v1/pets`, { from: '127.0.0.3' })).status).toBe(401);
  expect(await refused(stack, 'address')).toBe(2);
  expect(stack.log.filter(({ msg }) => msg === 'too many connections')).toEqual([
    expect.objectContaining({ level: 40, limit: 'address' }),
  ]);
  held[0]?.socket.destroy();
  await expect
    .poll(() =>
      send(`${stack.gateway}/v1/pets`, { from: '127.0.0.2' }).then(
        ({ status }) => status,
        () => 0,
      ),
    )
    .toBe(401);
});

test('connections of trusted proxies and of this machine count only toward the total', async () => {
  const stack = await startStack({ TRUSTED_PROXIES: '127.0.0.2/32' }, { connectionsPerAddress: 1, connections: 6 });
  for (const from of ['127.0.0.2', '127.0.0.1']) {
    const sockets = await Promise.all(Array.from({ length: 3 }, () => connect(stack.gateway, from)));
    expect(await Promise.all(sockets.map(isClosedAtOnce))).toEqual([false, false, false]);
  }
  expect(await isClosedAtOnce(await connect(stack.gateway, '127.0.0.3'))).toBe(true);
  expect(await refused(stack, 'total')).toBe(1);
  expect(await refused(stack, 'address')).toBe(0);
});
