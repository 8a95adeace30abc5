import { createCipheriv } from 'node:crypto';
import type { RequestListener } from 'node:http';
import https from 'node:https';
import type { AddressInfo } from 'node:net';
import { parentPort, workerData } from 'node:worker_threads';

/** A core whose large responses can be compared byte by byte. In a worker thread, it serves over TLS. */

const made = new Map<string, Buffer>();

/** Returns pseudo-random bytes that depend on the seed. They are cached, so the core answers fast. */
export function bytesOf(seed: number, length: number): Buffer {
  const key = Buffer.alloc(16, seed);
  const bytes = made.get(`${seed} ${length}`) ?? createCipheriv('aes-128-ctr', key, key).update(Buffer.alloc(length));
  made.set(`${seed} ${length}`, bytes);
  return bytes;
}

/** Answers `?seed=…&length=…` with those bytes, in chunks for `&chunked`, and anything else with an empty list. */
export const answerBySeed: RequestListener = (request, response) => {
  const { searchParams: query } = new URL(request.url ?? '', 'http://core');
  response.setHeader('X-Request-Id', String(request.headers['x-request-id']));
  if (!query.has('seed')) return void response.end('[]');
  const length = Number(query.get('length'));
  if (!query.has('chunked')) response.setHeader('Content-Length', length);
  response.flushHeaders();
  response.end(bytesOf(Number(query.get('seed')), length));
};

if (parentPort !== null) {
  const server = https.createServer(workerData, answerBySeed).listen(0, '127.0.0.1', () => {
    parentPort?.postMessage(`https://127.0.0.1:${(server.address() as AddressInfo).port}`);
  });
}
