import { once } from 'node:events';
import type { IncomingMessage, RequestListener } from 'node:http';
import net, { type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test, vi } from 'vitest';
import { startServer } from '../../shared/http/server.ts';
import { cleanUp } from '../support/clean-up.ts';
import { beginPost, sendOn } from '../support/endless-body.ts';
import { sum } from '../support/statistics.ts';

/** Tests how a connection is closed while its client is still sending. */

const LINGER_MS = 30_000;
const SILENCE_MS = 5_000;
const MEGABYTE = 1_024 * 1_024;

async function serve(onRequest: RequestListener): Promise<string> {
  const server = await startServer({
    host: '127.0.0.1',
    port: 0,
    onRequest,
  });
  cleanUp(() => server.stop({ graceMs: 0 }));
  return server.url;
}

/** Starts a server that refuses each request immediately. @returns a function that connects to it */
async function refusing() {
  let arrived = Promise.withResolvers<Socket>();
  const url = await serve((request, response) => {
    response.shouldKeepAlive = false;
    response.writeHead(413).end('no');
    arrived.resolve(request.socket);
  });
  /** Sends a request. @returns its client, and the other end of its connection */
  return async (): Promise<{ client: Socket; server: Socket; answer: () => string }> => {
    arrived = Promise.withResolvers<Socket>();
    let answer = '';
    const client = beginPost(url);
    client.on('data', (chunk) => {
      answer += chunk;
    });
    return { client, server: await arrived.promise, answer: () => answer };
  };
}

test('a client that sends endlessly gets its response and is disconnected after 30 seconds', async () => {
  let now = performance.now();
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => now);
  cleanUp(() => clock.mockRestore());
  const { client, server, answer } = await (await refusing())();
  const readMore = () => expect.poll(() => server.bytesRead).toBeGreaterThan(server.bytesRead);
  sendOn(client);
  await readMore();
  now += LINGER_MS;
  await readMore();
  expect(server.destroyed).toBe(false);
  now += 1;
  await expect.poll(() => server.destroyed).toBe(true);
  expect(answer()).toMatch(/^HTTP\/1\.1 413 /);
});

test('bytes that clients send after refusals are read at 8 MB a second, over all connections together', async () => {
  const refused = await refusing();
  const refusals = [await refused(), await refused(), await refused(), await refused()];
  const bytesRead = () => sum(refusals.map(({ server }) => server.bytesRead));
  for (const { client } of refusals) sendOn(client);
  await expect.poll(bytesRead).toBeGreaterThan(MEGABYTE);
  const begun = { at: performance.now(), bytes: bytesRead() };
  await sleep(1_000);
  const seconds = (performance.now() - begun.at) / 1_000;
  expect((bytesRead() - begun.bytes) / seconds).toBeLessThan(9 * MEGABYTE);
  expect(bytesRead() - begun.bytes).toBeGreaterThan(MEGABYTE);
  for (const { answer } of refusals) expect(answer()).toMatch(/^HTTP\/1\.1 413 /);
});

test('a client that neither sends nor closes is disconnected after five seconds of silence', async () => {
  const { server, answer } = await (await refusing())();
  const startedAt = performance.now();
  await expect.poll(() => server.destroyed, { timeout: 60_000 }).toBe(true);
  expect(answer()).toMatch(/^HTTP\/1\.1 413 /);
  const waited = performance.now() - startedAt;
  expect(waited).toBeGreaterThan(SILENCE_MS - 100);
  // Clients that send now and then are disconnected only after 30 s.
  expect(waited).toBeLessThan(25_000);
});

/** Opens a connection on which many requests are refused, each before its short body arrives. */
async function refusedOften(times: number): Promise<{ server: Socket; requests: WeakRef<IncomingMessage>[] }> {
  const requests: WeakRef<IncomingMessage>[] = [];
  const sockets = new Set<Socket>();
  const url = await serve((request, response) => {
    request.resume();
    response.writeHead(401, { 'Content-Length': 2 }).end('no');
    requests.push(new WeakRef(request));
    sockets.add(request.socket);
  });
  const client = net.connect({
    port: Number(new URL(url).port),
    host: '127.0.0.1',
    allowHalfOpen: true,
    noDelay: true,
  });
  cleanUp(() => client.destroy());
  for (let refused = 0; refused < times; refused++) {
    client.write('POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n');
    await once(client, 'data');
    client.write('body');
  }
  const [server] = sockets;
  expect([sockets.size, requests.length]).toEqual([1, times]);
  return { server: server as Socket, requests };
}

test('refusals on one connection keep only the last request in memory', async () => {
  setFlagsFromString('--expose-gc');
  const collectGarbage = runInNewContext('gc') as () => void;
  setFlagsFromString('--no-expose-gc');
  const { server, requests } = await refusedOften(50);
  // Node itself keeps one or two for an open connection.
  await expect
    .poll(() => {
      collectGarbage();
      return requests.filter((request) => request.deref() !== undefined).length;
    })
    .toBeLessThan(4);
  expect(server.destroyed).toBe(false);
});

test('after many refusals on one connection, its first close lingers and the second is immediate', async () => {
  const { server } = await refusedOften(50);
  let closes = 0;
  for (; !server.destroyed; closes++) {
    server.destroySoon();
    await sleep(20);
  }
  expect(closes).toBe(2);
});
