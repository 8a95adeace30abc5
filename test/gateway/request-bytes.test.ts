import { once } from 'node:events';
import http, { type IncomingMessage } from 'node:http';
import net, { type AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { RequestBytes } from '../../shared/http/request-head.ts';

/** Tests how the ends of requests are found in a stream of bytes, wherever the stream is split. */

const HEAD = 'POST /x HTTP/1.1\r\nHost: a\r\n';
const REQUESTS: readonly [head: string, body: string, headers: Record<string, string>][] = [
  [`${HEAD}\r\n`, '', {}],
  [`\r\n\n\r\n\r\n${HEAD}\r\n`, '', {}],
  [`${HEAD}Content-Length: 6\r\n\r\n`, '\r\n\r\n\r\n', { 'content-length': '6' }],
  ...[
    '4\r\n\r\n\r\n\r\n3;x="0"\r\nabc\r\n0\r\n\r\n',
    '00000A;ext=a\r\n0\r\n\r\n0\r\n\r\n\r\n000;b\r\nTrailer: 0\r\nX: y\r\n\r\n',
    '0\r\n\r\n',
    '0\r\nX: y\r\n\r\n',
  ].map((body): [string, string, Record<string, string>] => [
    `${HEAD}Transfer-Encoding: chunked\r\n\r\n`,
    body,
    { 'transfer-encoding': 'chunked' },
  ]),
];

/** Returns the heads and bodies that are found in these pieces. `complete` is set as the parser would set it. */
function partsOf(pieces: readonly string[], requests: typeof REQUESTS): string[] {
  const bytes = new RequestBytes();
  const parts: string[] = [''];
  const wanted = requests.flatMap(([head, body, headers]) =>
    body === ''
      ? [{ text: head, headers, isLast: true }]
      : [
          { text: head, headers },
          { text: body, headers, isLast: true },
        ],
  );
  for (const piece of pieces) {
    const buffer = Buffer.from(piece, 'latin1');
    for (let at = 0; at < buffer.length; ) {
      const end = bytes.endOfPart(buffer, at);
      if (typeof end !== 'number') expect.fail(end.code);
      parts[parts.length - 1] += buffer.toString('latin1', at, end);
      const { text, headers, isLast } = wanted[parts.length - 1] ?? {};
      const isWhole = parts.at(-1) === text;
      bytes.follow({ complete: isWhole && isLast === true, headers } as unknown as IncomingMessage);
      if (isWhole) parts.push('');
      at = end;
    }
  }
  return parts.slice(0, -1);
}

test('every request is divided into its head and its body, wherever a read ends', () => {
  const wanted = REQUESTS.flatMap(([head, body]) => (body === '' ? [head] : [head, body]));
  const all = REQUESTS.map(([head, body]) => head + body).join('');
  expect(partsOf([all], REQUESTS)).toEqual(wanted);
  expect(partsOf([...all], REQUESTS)).toEqual(wanted);
  for (let at = 1; at < all.length; at++) {
    expect([at, partsOf([all.slice(0, at), all.slice(at)], REQUESTS)]).toEqual([at, wanted]);
    const next = at + 1 + (at % 5);
    expect([at, partsOf([all.slice(0, at), all.slice(at, next), all.slice(next)], REQUESTS)]).toEqual([at, wanted]);
  }
});

test("Node's parser ends each body at the same byte", async () => {
  const ended: string[] = [];
  const server = http.createServer({ requireHostHeader: false }, (request, response) => {
    request.resume().once('end', () => ended.push(request.url ?? ''));
    response.end();
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const socket = net.connect((server.address() as AddressInfo).port, '127.0.0.1');
  for (const [at, [head, body]] of REQUESTS.entries()) {
    const bytes = (head + body).replace('/x', `/${at}`);
    socket.write(bytes.slice(0, -1), 'latin1');
    await sleep(50);
    expect(ended).toHaveLength(at);
    socket.write(bytes.slice(-1), 'latin1');
    await expect.poll(() => ended).toHaveLength(at + 1);
  }
  socket.destroy();
  server.close();
});

test('each of many consecutive long heads is converted to text only once', () => {
  const heads = 50;
  const head = `GET /${'x'.repeat(1_100)} HTTP/1.1\r\nHost: a\r\n\r\n`;
  const buffer = Buffer.from(head.repeat(heads), 'latin1');
  let read = 0;
  buffer.toString = (encoding, from = 0, to = buffer.length) => {
    read += Math.min(to, buffer.length) - from;
    return Buffer.prototype.toString.call(buffer, encoding, from, to);
  };
  const bytes = new RequestBytes();
  const ends: number[] = [];
  for (let at = 0; at < buffer.length; ) {
    const end = bytes.endOfPart(buffer, at);
    if (typeof end !== 'number') expect.fail(end.code);
    bytes.follow({ complete: true } as IncomingMessage);
    ends.push(end);
    at = end;
  }
  expect(ends).toEqual(Array.from({ length: heads }, (_, at) => (at + 1) * head.length));
  expect(read).toBeLessThanOrEqual(2 * buffer.length);
});
