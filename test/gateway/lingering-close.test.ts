import type { Socket } from 'node:net';
import net from 'node:net';
import { expect, test } from 'vitest';
import { LingeringClose } from '../../shared/http/lingering-close.ts';
import { cleanUp } from '../support/clean-up.ts';
import { serveHttp } from '../support/http-server.ts';

/** How a connection ends whose client still sends. */

const MOST = 64 * 1_024 * 1_024;
const SILENCE_MS = 5_000;
const POST = 'POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n';
const CHUNK = Buffer.from(`100000\r\n${'x'.repeat(0x100000)}\r\n`);

/** A client whose request is refused at once, and the other end of its connection. */
async function refused(): Promise<{ client: Socket; server: Socket; answer: () => string }> {
  const lingering = new LingeringClose();
  const arrived = Promise.withResolvers<Socket>();
  const url = await serveHttp((request, response) => {
    lingering.prepare(request);
    response.shouldKeepAlive = false;
    response.writeHead(413).end('no');
    arrived.resolve(request.socket);
  });
  let answer = '';
  const client = net.connect({ port: Number(new URL(url).port), host: '127.0.0.1', allowHalfOpen: true });
  cleanUp(() => client.destroy());
  client.on('error', () => {});
  client.on('data', (chunk) => {
    answer += chunk;
  });
  client.write(POST);
  return { client, server: await arrived.promise, answer: () => answer };
}

test('a client that sends without an end has its answer, and is cut after 64 MB', async () => {
  const { client, server, answer } = await refused();
  const more = () => void (client.writable && client.write(CHUNK, more));
  more();
  await expect.poll(() => server.destroyed).toBe(true);
  expect(answer()).toMatch(/^HTTP\/1\.1 413 /);
  expect(server.bytesRead).toBeGreaterThan(MOST);
  // A read takes up to two megabytes, and between two looks there are ten.
  expect(server.bytesRead).toBeLessThan(MOST + 24 * CHUNK.length);
});

test('a client that neither sends nor closes is cut after five seconds of silence', async () => {
  const { server, answer } = await refused();
  const startedAt = performance.now();
  await expect.poll(() => server.destroyed, { timeout: 60_000 }).toBe(true);
  expect(answer()).toMatch(/^HTTP\/1\.1 413 /);
  const waited = performance.now() - startedAt;
  expect(waited).toBeGreaterThan(SILENCE_MS - 100);
  // A client that sends a little now and then has 30 s.
  expect(waited).toBeLessThan(25_000);
});
