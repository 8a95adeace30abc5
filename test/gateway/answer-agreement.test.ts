import { once } from 'node:events';
import net, { type AddressInfo, type Socket } from 'node:net';
import fc from 'fast-check';
import { Client, type Dispatcher } from 'undici';
import { expect, test } from 'vitest';
import type { Answer } from '../../gateway/upstream/answer.ts';
import { damaged, outcomeOf, written } from '../support/answers.ts';
import { cleanUp } from '../support/clean-up.ts';
import { thoroughly } from '../support/thorough.ts';

/** Compares our answer reader with undici's parser, which is widely used. Ours may be stricter, never laxer. */

/** Answers each request with exactly the given bytes, and nothing after them. */
async function parrot() {
  let bytes: Buffer = Buffer.alloc(0);
  let connections = 0;
  const sockets = new Set<Socket>();
  const server = net.createServer((socket) => {
    connections += 1;
    sockets.add(socket);
    socket.on('error', () => {});
    socket.on('data', () => void socket.write(bytes));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  // If it waits for more bytes, it reads the answer as longer than we do.
  const timeouts = { headersTimeout: 1_000, bodyTimeout: 1_000 };
  const client = new Client(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, timeouts);
  cleanUp(async () => {
    await client.destroy();
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return {
    says(said: Buffer, isHead: boolean): Promise<Answer> {
      bytes = said;
      return answerOf(client, isHead ? 'HEAD' : 'GET');
    },
    get connections() {
      return connections;
    },
  };
}

function answerOf(client: Client, method: Dispatcher.HttpMethod): Promise<Answer> {
  const { promise, resolve, reject } = Promise.withResolvers<Answer>();
  let [status, headers, body] = [0, [] as string[], ''];
  client.dispatch(
    { method, path: '/' },
    {
      onRequestStart() {},
      onResponseStart(controller, code) {
        if (code < 200) return;
        status = code;
        // Blanks after a value are not part of it (RFC 9110 §5.5); undici leaves them in.
        headers = (controller.rawHeaders as Buffer[]).map((text) => text.toString('latin1').replace(/[\t ]+$/, ''));
      },
      onResponseData(_controller, chunk) {
        body += chunk.toString('latin1');
      },
      onResponseEnd: () => resolve({ status, headers, body, isLast: false }),
      onResponseError: (_controller, fault) => reject(fault),
    },
  );
  return promise;
}

/** llhttp ignores RFC 9110 §5.5 for blanks after a length or a coding: it refuses them, or does not see the chunks. */
const tidy = (bytes: Buffer): Buffer =>
  Buffer.from(bytes.toString('latin1').replaceAll(/((?:-length|-encoding):[^\r]*?)[\t ]+\r\n/gi, '$1\r\n'), 'latin1');

test('undici reads valid answers, and damaged ones that we accept, exactly as we do', async () => {
  const core = await parrot();
  let reads = 0;
  await fc.assert(
    fc.asyncProperty(fc.oneof(written, damaged, damaged, damaged), async ({ bytes: untidy, isHead }) => {
      const bytes = tidy(untidy);
      const ours = outcomeOf(bytes, 0, isHead);
      if (typeof ours !== 'object') return;
      reads += 1;
      expect(await core.says(bytes.subarray(0, ours.end), isHead)).toEqual({ ...ours.answer, isLast: false });
    }),
    { numRuns: thoroughly(5_000, 600) },
  );
  expect(reads).toBeGreaterThan(100);
});
