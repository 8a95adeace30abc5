import net from 'node:net';
import { expect, test } from 'vitest';
import { startStack } from '../support/stack.ts';
import { thoroughly } from '../support/thorough.ts';

/**
 * A client that sends its whole body before it reads, as most do. Returns what it read, and how its connection ended.
 */
function sendAll(url: string, head: string, bytes: number): Promise<{ answer: string; fault: string | undefined }> {
  const { promise, resolve } = Promise.withResolvers<{ answer: string; fault: string | undefined }>();
  const socket = net.connect(Number(new URL(url).port), '127.0.0.1');
  let answer = '';
  let fault: string | undefined;
  socket.on('error', ({ code }: NodeJS.ErrnoException) => {
    fault = code;
  });
  socket.on('data', (chunk) => {
    answer += chunk;
  });
  socket.pause();
  socket.write(head);
  socket.write(Buffer.alloc(bytes, 'a'), () => socket.resume());
  socket.once('close', () => resolve({ answer, fault }));
  return promise;
}

/** More than the kernel buffers. */
const BYTES = 8_000_000;
/** Each takes a second: what follows a refusal is read at 8 MB a second. */
const TIMES = thoroughly(10, 3);

test.for([
  ['without a key', 401, ''],
  ['that is too large', 413, 'key'],
] as const)('the client of an 8 MB POST %s always gets its %i', async ([, status, with_]) => {
  const stack = await startStack();
  const key = await stack.issueKey();
  const authorization = with_ === 'key' ? `Authorization: Bearer ${key}\r\n` : '';
  const head = `POST /v1/pets HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n${authorization}Content-Length: ${BYTES}\r\n\r\n`;
  for (let round = 0; round < TIMES; round++) {
    const { answer, fault } = await sendAll(stack.gateway, head, BYTES);
    expect([answer.slice(0, 12), fault]).toEqual([`HTTP/1.1 ${status}`, undefined]);
  }
});
