import type { Socket } from 'node:net';
import { expect, test } from 'vitest';
import { LingeringClose } from '../../shared/http/lingering-close.ts';
import { beginPost, sendOn } from '../support/endless-body.ts';
import { serveHttp } from '../support/http-server.ts';

/** How a connection ends whose client still sends. */

const SILENCE_MS = 5_000;
const MEGABYTE = 1_024 * 1_024;
const MOST = 64 * MEGABYTE;

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
  const client = beginPost(url);
  client.on('data', (chunk) => {
    answer += chunk;
  });
  return { client, server: await arrived.promise, answer: () => answer };
}

test('a client that sends without an end has its answer, and is cut after 64 MB', async () => {
  const { client, server, answer } = await refused();
  sendOn(client);
  await expect.poll(() => server.destroyed).toBe(true);
  expect(answer()).toMatch(/^HTTP\/1\.1 413 /);
  expect(server.bytesRead).toBeGreaterThan(MOST);
  // A read takes up to two megabytes, and between two looks there are ten.
  expect(server.bytesRead).toBeLessThan(MOST + 24 * MEGABYTE);
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
