import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import http from 'node:http';
import net from 'node:net';
import { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import tls from 'node:tls';
import { describe, expect, test, vi } from 'vitest';
import { Clients } from '../../gateway/limiter/clients.ts';
import { createApiKey, credentialOf } from '../../gateway/limiter/credential.ts';
import { Newcomers } from '../../gateway/limiter/newcomers.ts';
import { DEFAULT_PLANS } from '../../gateway/limiter/plans.ts';
import { LoadShedder, type Slot } from '../../gateway/pipeline/overload.ts';
import { idOf } from '../support/api-key.ts';
import { createAuthority } from '../support/certificates.ts';
import { cleanUp } from '../support/clean-up.ts';
import { send } from '../support/http.ts';
import { inTurn } from '../support/in-turn.ts';
import { scrape } from '../support/metrics.ts';
import { connectRaw, type RawClient } from '../support/raw-client.ts';
import { connectionTo, ownRedis } from '../support/redis-database.ts';
import { type Stack, startStack, UNLIMITED } from '../support/stack.ts';

const request = (key?: string) =>
  `GET /v1/pets HTTP/1.1\r\nHost: a\r\n${key === undefined ? '' : `Authorization: Bearer ${key}\r\n`}\r\n`;

/** Starts a stack with its own Redis, which a test can pause. @param timeoutMs the timeout of a decision */
async function startWithRedis(timeoutMs: number) {
  const { url } = await ownRedis();
  return { redis: connectionTo(url), stack: await startStack({ REDIS_URL: url, REDIS_TIMEOUT_MS: String(timeoutMs) }) };
}

/** Sends the next request after each response on one connection, until it is closed. */
async function keepAsking(url: string, nextRequest: () => string, pipelined = 1) {
  const { socket } = await connectRaw(url);
  const result = { answers: 0, closed: once(socket, 'close'), last: '' };
  socket.allowHalfOpen = false;
  socket.on('data', (chunk) => {
    result.last = chunk.toString();
    const count = result.last.split('HTTP/1.1 ').length - 1;
    result.answers += count;
    for (let sent = 0; sent < count; sent++) socket.write(nextRequest());
  });
  for (let sent = 0; sent < pipelined; sent++) socket.write(nextRequest());
  return result;
}

test('a banned client that keeps sending loses its connection, and one that waits for Retry-After keeps it', async () => {
  const stack = await startStack();
  const key = await stack.issueKey(UNLIMITED);
  await send(`${stack.gateway}/v1/pets`, { key });
  await stack.admin('PUT', `/keys/${idOf(key)}/ban`, { seconds: 3_600 });
  const startedAt = performance.now();
  const banned = await keepAsking(stack.gateway, () => request(key));
  await banned.closed;
  const refilled = Math.ceil((performance.now() - startedAt) / 1_000);
  expect(banned.last).toMatch(/^HTTP\/1.1 429 .*Connection: close.*"code":"key_banned"/s);
  // 60 refusals are sent immediately, 100 with a delay, and one more for each second of refill.
  expect(banned.answers).toBeGreaterThanOrEqual(159);
  expect(banned.answers).toBeLessThanOrEqual(161 + refilled);
  const { status, headers } = await send(`${stack.gateway}/v1/pets`, { key });
  expect([status, Number(headers['retry-after']) > 3_000]).toEqual([429, true]);
});

test('an address that has used up its strikes has its connection closed at each refusal', async () => {
  const stack = await startStack();
  let aheadMs = 0;
  const now = Date.now.bind(Date);
  const clock = vi.spyOn(Date, 'now').mockImplementation(() => now() + aheadMs);
  cleanUp(() => clock.mockRestore());
  const agent = new http.Agent({ keepAlive: true, maxSockets: 10 });
  cleanUp(() => agent.destroy());
  /** Sends 400 requests without a key. @returns how many responses closed their connection */
  const burst = async () => {
    const answers = Array.from({ length: 400 }, () => send(`${stack.gateway}/v1/pets`, { agent }));
    return (await Promise.all(answers)).filter(({ headers }) => headers.connection === 'close').length;
  };
  expect(await burst()).toBe(0);
  // By then, 30 requests are admitted, and 240 of the 300 strikes have expired.
  aheadMs = 30_000;
  const closed = await burst();
  expect(closed).toBeGreaterThan(80);
  expect(closed).toBeLessThanOrEqual(130);
});

test('clients with made-up keys beyond their allowance cost no decision and are disconnected; verified keys still work', async () => {
  const { redis, stack } = await startWithRedis(2_000);
  const key = await stack.issueKey(UNLIMITED);
  expect((await send(`${stack.gateway}/v1/pets`, { key })).status).toBe(200);
  const calls = async () => Number(/cmdstat_evalsha:calls=(\d+)/.exec(await redis.info('commandstats'))?.[1] ?? 0);
  const flood = await keepAsking(stack.gateway, () => request(createApiKey().apiKey));
  await expect.poll(() => flood.answers).toBeGreaterThan(70);
  const before = await calls();
  await flood.closed;
  expect(flood.answers).toBeGreaterThan(150);
  expect(flood.last).toMatch(/^HTTP\/1.1 429 .*This API key was not checked/s);
  expect((await calls()) - before).toBeLessThan(10);
  expect((await send(`${stack.gateway}/v1/pets`, { key })).status).toBe(200);
});

test('concurrent requests with new keys are all decided, even if their address has few tokens left', async () => {
  const stack = await startStack();
  for (let at = 0; at < 50; at++) await send(`${stack.gateway}/v1/pets`, { key: createApiKey().apiKey });
  const keys = await Promise.all(Array.from({ length: 30 }, () => stack.issueKey(UNLIMITED)));
  const answers = await Promise.all(
    Array.from({ length: 300 }, (_, at) => send(`${stack.gateway}/v1/pets`, { key: keys[at % 30] as string })),
  );
  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
});

test('the pending decisions on unverified keys from one address never exceed its allowance', async () => {
  const newcomers = new Newcomers(new Clients(() => DEFAULT_PLANS));
  const entered = Array.from({ length: 100 }, () => newcomers.enter('a'));
  expect(entered.filter((one) => one === 'entered')).toHaveLength(60);
  for (let at = 0; at < 60; at++) {
    newcomers.refuse('a', credentialOf(String(at), ''), { outcome: 'unauthorized', reason: 'unknown' }, 0);
    newcomers.leave('a');
  }
  expect(await Promise.all(entered.slice(60))).toEqual(Array(40).fill('exhausted'));
  expect(newcomers.enter('b')).toBe('entered');
});

test('an address with too many new keys that wait for Redis gets 503 and is not charged', async () => {
  const { redis, stack } = await startWithRedis(60_000);
  const key = await stack.issueKey(UNLIMITED);
  await redis.client('PAUSE', 60_000, 'WRITE');
  const statuses: number[] = [];
  const asked = Array.from({ length: 1_200 }, async () => {
    statuses.push((await send(`${stack.gateway}/v1/pets`, { key })).status);
  });
  // Redis looks up 60 keys at once, 1,000 requests wait, and at least 140 are refused.
  await expect.poll(() => statuses.length).toBeGreaterThanOrEqual(140);
  await redis.client('UNPAUSE');
  await Promise.all(asked);
  expect(new Set(statuses)).toEqual(new Set([200, 503]));
  const { status, headers } = await send(`${stack.gateway}/v1/pets`, { key: createApiKey().apiKey });
  expect([status, headers['x-ratelimit-remaining']]).toEqual([401, '59']);
});

test('a request whose key is verified while it waits is decided even if its address has no tokens left', async () => {
  const { redis, stack } = await startWithRedis(10_000);
  const key = await stack.issueKey(UNLIMITED);
  await redis.client('PAUSE', 1_000);
  const ask = (of: string, from = '127.0.0.1') => send(`${stack.gateway}/v1/pets`, { key: of, from });
  const elsewhere = ask(key, '127.0.0.2');
  await sleep(100);
  const madeUp = Array.from({ length: 60 }, () => ask(createApiKey().apiKey));
  await sleep(300);
  const waiting = Array.from({ length: 20 }, () => ask(key));
  expect(new Set((await Promise.all(madeUp)).map(({ status }) => status))).toEqual(new Set([401]));
  expect((await elsewhere).status).toBe(200);
  expect(new Set((await Promise.all(waiting)).map(({ status }) => status))).toEqual(new Set([200]));
});

test('unverified clients, however many, get at most a quarter of the capacity', () => {
  const shedder = new LoadShedder(() => 100);
  const slots: Slot[] = [];
  const enter = () => {
    slots.push(shedder.slot());
    return slots.at(-1)?.takeUnverified(`address ${slots.length}`);
  };
  while (enter());
  expect(slots).toHaveLength(25 + 1);
  expect(shedder.hasRoomFor({ inFlight: 0 })).toBe(true);
  for (const slot of slots) slot.release();
  expect([enter(), enter()]).toEqual([true, true]);
});

test('a flood of refusals is spread over turns of the event loop, with other responses in between', async () => {
  const stack = await startStack();
  const key = await stack.issueKey(UNLIMITED);
  const flood = await Promise.all(Array.from({ length: 48 }, () => keepAsking(stack.gateway, () => request(), 16)));
  const answers = () => flood.reduce((sum, one) => sum + one.answers, 0);
  await expect.poll(answers).toBeGreaterThan(200);
  const before = answers();
  for (let at = 0; at < 10; at++) expect((await send(`${stack.gateway}/v1/pets`, { key })).status).toBe(200);
  expect((answers() - before) / 10).toBeLessThan(250);
});

/** Linux accepts all of 127.0.0.0/8, so tests can connect from several addresses. */
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

describe('a client that resets its connection does not count as outside the networks of its secret', () => {
  async function startLimited(settings = {}) {
    const stack = await startStack(settings);
    const secrets = `/keys/${idOf(await stack.issueKey(UNLIMITED))}/secrets`;
    const { json } = await stack.admin('POST', secrets, { name: 'limited', networks: ['127.0.0.0/8'] });
    return {
      stack,
      key: (json as { key: string }).key,
      to: { host: '127.0.0.1', port: Number(new URL(stack.gateway).port) },
    };
  }

  async function expectNoneElsewhere(stack: Stack) {
    const metrics = await scrape(stack.adminUrl);
    expect([
      metrics.sum('gateway_decisions_total', { outcome: 'elsewhere' }),
      metrics.sum('gateway_client_addresses_total', { network: 'public' }) ?? 0,
    ]).toEqual([0, 0]);
    expect(stack.log.filter(({ status }) => status === 401)).toEqual([]);
  }

  test('before the gateway has accepted it', async () => {
    const { stack, key, to } = await startLimited();
    const bytes = JSON.stringify(request(key));
    const reset = `const one = require('net').connect(${JSON.stringify(to)}, () => one.write(${bytes}, () => one.resetAndDestroy()));`;
    // This process, and the gateway in it, waits for the clients.
    execFileSync(process.execPath, ['-e', `for (let sent = 0; sent < 40; sent++) { ${reset} }`]);
    expect((await send(`${stack.gateway}/v1/pets`, { key })).status).toBe(200);
    await expectNoneElsewhere(stack);
  });

  test('after the TLS handshake', async () => {
    const { certFile, keyFile, caFile } = await createAuthority();
    const { stack, key, to } = await startLimited({ TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile });
    const ca = await readFile(caFile);
    for (let sent = 0; sent < 40; sent++) {
      const below = net.connect(to);
      // Only the connection below can be reset, so the encrypted one must not take over its handle.
      const socket = tls.connect({ socket: Duplex.from({ readable: below, writable: below }), host: to.host, ca });
      socket.on('error', () => {});
      await once(socket, 'secureConnect');
      socket.write(request(key), () => below.resetAndDestroy());
      await once(below, 'close');
    }
    expect((await send(`${stack.gateway}/v1/pets`, { key, ca })).status).toBe(200);
    await expectNoneElsewhere(stack);
  });
});

test('over TLS, clients that close and then reset their connections do not use up the limit of their address', async () => {
  const { certFile, keyFile, caFile } = await createAuthority();
  const settings = { TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile };
  const stack = await startStack(settings, { connectionsPerAddress: 20 });
  const key = await stack.issueKey(UNLIMITED);
  const from = '127.0.0.2';
  const ca = await readFile(caFile);
  await inTurn(Array.from({ length: 40 }), 8, async () => {
    const below = net.connect({ host: '127.0.0.1', port: Number(new URL(stack.gateway).port), localAddress: from });
    // Over the limit, the gateway closes the connection.
    const closed = new Promise<void>((resolve) => below.on('error', () => {}).once('close', () => resolve()));
    const socket = tls.connect({ socket: below, host: '127.0.0.1', ca }).on('error', () => {});
    // A reset of the connection below is preceded by a close alert.
    socket.once('secureConnect', () => {
      socket.write(request(key));
      setTimeout(() => below.resetAndDestroy(), 1);
    });
    await closed;
  });
  const status = () =>
    send(`${stack.gateway}/v1/pets`, { key, from, ca }).then(
      (answer) => answer.status,
      () => 0,
    );
  await expect.poll(status, { timeout: 3_000 }).toBe(200);
  expect(stack.log.filter(({ reason }) => reason !== undefined)).toEqual([]);
});
