import { expect, test } from 'vitest';

import { MAX_DEPTH } from '../../gateway/upstream/wire.ts';
import { bareCore, OK } from '../support/faulty-core.ts';
import { askOn, lineTo } from '../support/line.ts';

/** What a line does before it has a connection, and what it sends on one. */

/** A line to a core that answers after `count` requests, and what each connection received. */
async function lineToBareCore(count: number) {
  const received: string[] = [];
  const ended: number[] = [];
  const url = await bareCore((socket) => {
    const connection = received.push('') - 1;
    socket.on('close', () => ended.push(connection));
    socket.on('data', (piece) => {
      const all = (received[connection] ?? '') + piece.toString('latin1');
      received[connection] = all;
      if (all.split('\r\n\r\n').length > count) socket.write(OK.repeat(count));
    });
  });
  const line = lineTo(url);
  const ask = (target: string, ...headers: string[]) => askOn(line, { target, headers });
  return { line, ask, received, ended, host: new URL(url).host };
}

const ticked = () => new Promise<void>((resolve) => process.nextTick(resolve));

test('requests made while a connection opens share it', async () => {
  const { ask, received, host } = await lineToBareCore(3);
  const [first, second] = [ask('/1'), ask('/2')];
  await ticked();
  const third = ask('/3');
  expect(await Promise.all([first, second, third])).toHaveLength(3);
  expect(received).toEqual([
    ['/1', '/2', '/3'].map((path) => `GET ${path} HTTP/1.1\r\nHost: ${host}\r\nX-Request-Id: \r\n\r\n`).join(''),
  ]);
});

test('each character of a header is sent to the core as one byte', async () => {
  const { ask, received } = await lineToBareCore(1);
  const value = Array.from({ length: 128 }, (_, at) => String.fromCharCode(0x80 + at)).join('');
  await ask('/', 'X', value);
  expect(received[0]).toContain(`\r\nX: ${value}\r\n`);
});

test('a line that is closed while it connects leaves no connection', async () => {
  const { line, ask, received, ended } = await lineToBareCore(1);
  const asked = Promise.allSettled([ask('/')]);
  await ticked();
  line.close();
  expect(await asked).toMatchObject([{ status: 'rejected' }]);
  await expect.poll(() => ended).toEqual([0]);
  expect(received).toEqual(['']);
});

test('a connection accepts no more requests than its depth', async () => {
  const { line, ask } = await lineToBareCore(MAX_DEPTH);
  const asked = Array.from({ length: MAX_DEPTH }, () => ask('/'));
  expect(line.depth).toBe(MAX_DEPTH);
  expect(() => ask('/')).toThrow(RangeError);
  await Promise.all(asked);
  expect(line.depth).toBe(0);
});
