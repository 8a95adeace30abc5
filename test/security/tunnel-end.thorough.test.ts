import net from 'node:net';
import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { WebSocket } from 'ws';
import type { ServerLimits } from '../../shared/http/server.ts';
import { idOf } from '../support/api-key.ts';
import { cleanUp } from '../support/clean-up.ts';
import { startFaultProxy } from '../support/fault-proxy.ts';
import { send, sendBytes } from '../support/http.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { bothStacks } from '../support/stack.ts';
import { fact, TIMED } from '../support/timed.ts';
import { headOf, open, opened, PATH, SLOW, startLive } from './web-socket.ts';
import { type OnUpgrade, switching, webSocketCore } from './web-socket-core.ts';

const { url: redisUrl, redis } = await emptyDatabase();

/** Starts a core for WebSockets and a gateway in front of it, with a key. */
async function live(settings: Record<string, string> = {}, limits: Partial<ServerLimits> = {}, onUpgrade?: OnUpgrade) {
  const core = await webSocketCore(onUpgrade);
  const stack = await startLive({ CORE_URL: core.url, ...settings }, limits);
  return { core, stack, key: await stack.issueKey() };
}

test('when one end of a WebSocket closes, the other is closed too', async () => {
  const { core, stack, key } = await live();
  const [first, second] = [await opened(stack, key), await opened(stack, key)];
  core.sockets[0]?.terminate();
  expect(await first.closed).toBe(1_006);
  second.webSocket.terminate();
  await expect.poll(() => core.closeCodes).toEqual([1_006, 1_006]);
});

test('a stop during a WebSocket handshake also closes the connection to the core', TIMED, async () => {
  const ended = Promise.withResolvers<void>();
  const onUpgrade = (socket: Duplex) => void socket.resume().once('end', () => ended.resolve());
  const { core, stack, key } = await live({}, {}, onUpgrade);
  const received = sendBytes(stack.gateway, headOf(key), 10_000);
  await expect.poll(() => core.handshakes.length).toBe(1);
  const before = performance.now();
  await Promise.all([stack.stop(), received, ended.promise]);
  const stopMs = performance.now() - before;
  await fact(() => expect(stack.log.filter(({ msg }) => msg === 'request')).toMatchObject([{ status: 499 }]));
  expect(stopMs).toBeLessThan(3_000);
});

test('an idle WebSocket is closed, and one with pings is not', TIMED, async () => {
  const { core, stack, key } = await live({}, { webSocketIdleMs: 1_500 });
  const [idle, busy] = [await opened(stack, key), await opened(stack, key)];
  const pinging = setInterval(() => busy.webSocket.ping(), 200);
  cleanUp(() => clearInterval(pinging));
  expect(await idle.closed).toBe(1_001);
  await expect.poll(() => core.closeCodes).toEqual([1_001]);
  await sleep(1_000);
  expect(busy.webSocket.readyState).toBe(WebSocket.OPEN);
  expect(stack.log.find(({ status }) => status === 101)?.reason).toContain('idle');
});

test('a stop closes WebSockets at once with code 1001 at both ends, and new ones are refused', async () => {
  const { core, stack, key } = await live();
  const tunnel = await opened(stack, key);
  const stopping = stack.stop(1_500);
  expect(await tunnel.closed).toBe(1_001);
  expect(await open(stack, key)).toBe(503);
  expect((await send(`${stack.gateway}/v1/pets`, { key })).status).toBe(200);
  await stopping;
  expect(core.closeCodes).toEqual([1_001]);
  expect(stack.log.find(({ status }) => status === 101)?.reason).toContain('stopping');
});

test('an unfinished WebSocket frame is not followed by a close frame', async () => {
  const half = Buffer.from([0x82, 10, 1, 2, 3]);
  const { core, stack, key } = await live({}, {}, (socket, request) => {
    socket.write(switching(request));
    socket.write(half);
    socket.resume();
  });
  const received = sendBytes(stack.gateway, headOf(key), 10_000);
  await expect.poll(() => core.handshakes.length).toBe(1);
  await sleep(300);
  await stack.stop();
  const [, frames] = (await received).split('\r\n\r\n');
  expect(frames).toBe(half.toString('latin1'));
});

test.for(bothStacks(redisUrl))(
  'with %s, the WebSocket of a revoked key is closed, and those of other keys stay open',
  async ([, environment]) => {
    const { stack } = await live(environment);
    const [revoked, kept] = [await stack.issueKey(SLOW), await stack.issueKey(SLOW)];
    const tunnels = await Promise.all([revoked, revoked, kept].map((key) => opened(stack, key)));
    await sleep(1_200);
    expect(tunnels.map(({ webSocket }) => webSocket.readyState)).toEqual(Array(3).fill(WebSocket.OPEN));
    const charged = (await send(`${stack.gateway}/v1/pets`, { key: kept })).headers['x-ratelimit-remaining'];
    expect(charged).toBe('1');

    await stack.admin('DELETE', `/keys/${idOf(revoked)}`);
    const before = performance.now();
    expect(await Promise.all(tunnels.slice(0, 2).map(({ closed }) => closed))).toEqual([1_008, 1_008]);
    expect(performance.now() - before).toBeLessThan(1_500);
    await sleep(700);
    const logged = stack.log.flatMap(({ status, reason }) => (status === 101 ? [reason] : []));
    expect(logged).toEqual(Array(2).fill(expect.stringContaining('no longer valid')));
    expect(tunnels[2]?.webSocket.readyState).toBe(WebSocket.OPEN);
  },
);

test('the WebSocket of a disabled or expired key is closed', async () => {
  const { stack } = await live({ REDIS_URL: redisUrl, REDIS_TIMEOUT_MS: '2000' });
  for (const edit of [{ disabled: '1' }, { expires_at: '1700000000' }]) {
    const key = await stack.issueKey();
    const { closed } = await opened(stack, key);
    await redis.hset(`gateway:key:{${idOf(key)}}`, edit);
    expect(await closed).toBe(1_008);
  }
});

test.for(bothStacks(redisUrl))(
  'with %s, the WebSocket of a banned key, or of a secret that its address may no longer use, is closed',
  async ([, environment]) => {
    const { stack } = await live(environment);
    for (const [method, path, body] of [
      ['PUT', '/ban', { seconds: 60, reason: 'test' }],
      ['PATCH', '/secrets/first', { networks: ['10.0.0.0/8'] }],
    ] as const) {
      const key = await stack.issueKey();
      const { secrets } = (await stack.admin('GET', `/keys/${idOf(key)}`)).json as { secrets: { id: string }[] };
      const { closed } = await opened(stack, key);
      const at = `/keys/${idOf(key)}${path.replace('first', secrets[0]?.id ?? '')}`;
      expect((await stack.admin(method, at, body)).status).toBe(200);
      expect([path, await closed]).toEqual([path, 1_008]);
    }
  },
);

test('a WebSocket counts as a connection of its address', async () => {
  const { stack, key } = await live({}, { connectionsPerAddress: 2 });
  const from = { localAddress: '127.0.0.2' };
  const [first] = [await opened(stack, key, PATH, from), await opened(stack, key, PATH, from)];
  const ask = () =>
    send(`${stack.gateway}/v1/pets`, { key, from: '127.0.0.2' }).then(
      ({ status }) => status,
      () => 'cut',
    );
  expect(await ask()).toBe('cut');
  first?.webSocket.close();
  await expect.poll(ask).toBe(200);
});

test('the core receives no handshake from a client that disconnected before the decision', async () => {
  const proxy = await startFaultProxy(redisUrl);
  const { core, stack, key } = await live({ REDIS_URL: proxy.url, REDIS_TIMEOUT_MS: '2000' });
  proxy.set({ kind: 'delay', ms: 300 });
  const client = net.connect(Number(new URL(stack.gateway).port), '127.0.0.1');
  client.write(headOf(key));
  await sleep(100);
  client.resetAndDestroy();
  await expect.poll(() => stack.log.filter(({ msg }) => msg === 'request')).toMatchObject([{ status: 499 }]);
  // Replies arrive in order, so the decision on the first handshake has been made.
  await opened(stack, key);
  expect(core.handshakes.length).toBe(1);
});
