import { expect, test } from 'vitest';
import { SharedLine } from '../../gateway/upstream/shared-line.ts';
import { cleanUp } from '../support/clean-up.ts';
import { bareCore, OK } from '../support/faulty-core.ts';

/** What a line does before there is a connection, and what it sends once there is. */

/** A line to a core that answers what it is sent once it has `count` requests, and what it was sent on each connection. */
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
  const line = new SharedLine(url, { connectTimeoutMs: 1_000, keepAliveMs: 60_000 });
  cleanUp(() => line.close());
  const ask = (target: string, ...headers: string[]) =>
    line.ask({ method: 'GET', target, headers, body: undefined }, performance.now() + 30_000);
  return { line, ask, received, ended, host: new URL(url).host };
}

const ticked = () => new Promise<void>((resolve) => process.nextTick(resolve));

test('requests that come while the line connects share the connection that it gets', async () => {
  const { ask, received, host } = await lineToBareCore(3);
  const [first, second] = [ask('/1'), ask('/2')];
  await ticked();
  const third = ask('/3');
  expect(await Promise.all([first, second, third])).toHaveLength(3);
  expect(received).toEqual([
    ['/1', '/2', '/3'].map((path) => `GET ${path} HTTP/1.1\r\nHost: ${host}\r\n\r\n`).join(''),
  ]);
});

test('each character of a header is a byte to the core', async () => {
  const { ask, received } = await lineToBareCore(1);
  const value = Array.from({ length: 128 }, (_, at) => String.fromCharCode(0x80 + at)).join('');
  await ask('/', 'X', value);
  expect(received[0]).toContain(`\r\nX: ${value}\r\n`);
});

test('a line that is closed while it connects keeps no connection', async () => {
  const { line, ask, received, ended } = await lineToBareCore(1);
  const asked = Promise.allSettled([ask('/')]);
  await ticked();
  line.close();
  expect(await asked).toMatchObject([{ status: 'rejected' }]);
  await expect.poll(() => ended).toEqual([0]);
  expect(received).toEqual(['']);
});

test('a line on which as many wait as may is not free', async () => {
  const { line, ask } = await lineToBareCore(512);
  const asked: Promise<unknown>[] = [];
  for (let count = 0; count < 512; count++) {
    expect(line.isFree).toBe(true);
    asked.push(ask('/'));
  }
  expect(line.isFree).toBe(false);
  expect(() => ask('/')).toThrow(RangeError);
  await Promise.all(asked);
  expect(line.isFree).toBe(true);
});
