import fc from 'fast-check';
import { expect, test } from 'vitest';
import { AnswerTooLarge } from '../../gateway/upstream/answer.ts';
import { ConnectionLost } from '../../gateway/upstream/faults.ts';
import { answer, lineUnderTest, sendInPieces } from '../support/line.ts';

/** Only the order tells which request an answer belongs to, so the order must hold in every case. */

const LARGE = 'HTTP/1.1 '.repeat(40_000);
const paths = (count: number) => Array.from({ length: count }, (_, at) => `/${at}`);

test('each answer goes to its request, however the stream is cut', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.string({ maxLength: 200, unit: 'binary-ascii' }), { minLength: 1, maxLength: 10 }),
      fc.array(fc.integer({ min: 1, max: 120 }), { minLength: 1, maxLength: 10 }),
      async (bodies, sizes) => {
        let asked = 0;
        const { ask, connections } = await lineUnderTest((socket) => {
          asked += 1;
          if (asked === bodies.length) void sendInPieces(socket, bodies.map((body) => answer(body)).join(''), sizes);
        });
        expect(await Promise.all(paths(bodies.length).map((path) => ask(path)))).toEqual(bodies);
        expect(connections).toHaveLength(1);
      },
    ),
    { numRuns: 40 },
  );
});

test('an answer that takes many reads goes to its request', async () => {
  const { ask, connections } = await lineUnderTest((socket, path) => void socket.write(answer(path.repeat(20_000))));
  const answers = await Promise.all(paths(100).map((path) => ask(path)));
  expect(answers.map((body, at) => body === `/${at}`.repeat(20_000))).toEqual(Array(100).fill(true));
  expect(connections).toHaveLength(1);
});

test('an answer that is too large is skipped, and those around it are correct on the same connection', async () => {
  for (const sizes of [[1_000_000], [100_000, 1, 30_000], [50_000, 65_536]]) {
    const { ask, connections } = await lineUnderTest((socket, path) => {
      if (path !== '/9') return;
      const bodies = paths(10).map((body) => (body === '/4' || body === '/5' ? LARGE : body));
      void sendInPieces(socket, bodies.map((body) => answer(body)).join(''), sizes);
    });
    const settled = await Promise.allSettled(paths(10).map((path) => ask(path)));
    const expected = paths(10).map((body) =>
      body === '/4' || body === '/5'
        ? { status: 'rejected', reason: expect.any(AnswerTooLarge) }
        : { status: 'fulfilled', value: body },
    );
    expect(settled).toEqual(expected);
    expect(connections).toHaveLength(1);
  }
});

test('while the rest of an answer that is too large arrives, requests after it are blocked', async () => {
  const text = answer(LARGE);
  let sendRest = () => {};
  const { ask, line, connections } = await lineUnderTest((socket, path) => {
    if (path !== '/large') return void socket.write(answer(path));
    socket.write(text.slice(0, 1_000));
    sendRest = () => socket.write(text.slice(1_000));
  });
  await expect(ask('/large')).rejects.toThrow(AnswerTooLarge);
  expect(line.stalledMs(performance.now() + 100)).toBeGreaterThanOrEqual(100);
  const next = ask('/next');
  expect([line.front, line.blocked.length]).toEqual([undefined, 1]);
  sendRest();
  expect(await next).toBe('/next');
  expect(line.stalledMs(performance.now() + 100)).toBe(0);
  expect(connections).toHaveLength(1);
});

test('no request waits behind an answer of many megabytes, because its connection is closed and others use a new one', async () => {
  const { ask } = await lineUnderTest((socket, path) => {
    if (path === '/0') socket.write('HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n');
  });
  const settled = await Promise.allSettled(paths(3).map((path) => ask(path)));
  const faults = settled.map((one) => (one.status === 'rejected' ? one.reason : undefined));
  expect(faults[0]).toBeInstanceOf(AnswerTooLarge);
  expect(faults.slice(1)).toEqual([expect.any(ConnectionLost), expect.any(ConnectionLost)]);
});
