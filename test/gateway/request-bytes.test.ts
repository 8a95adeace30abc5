import type { IncomingMessage } from 'node:http';
import { expect, test } from 'vitest';
import { RequestBytes } from '../../shared/http/request-head.ts';

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
