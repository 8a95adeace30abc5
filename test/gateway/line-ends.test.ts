import { once } from 'node:events';
import net, { type AddressInfo } from 'node:net';
import { networkInterfaces } from 'node:os';
import { expect, test } from 'vitest';
import { ConnectionLost, Unreadable, WrongAnswer } from '../../gateway/upstream/faults.ts';
import { cleanUp } from '../support/clean-up.ts';
import { OK } from '../support/faulty-core.ts';
import { answer, askOn, lineTo, lineUnderTest, NOT_STREAMED, requestFor } from '../support/line.ts';
import { freePort } from '../support/port.ts';

/** When a line closes its connection, and that nothing of it is left for the next one. */

const paths = (count: number) => Array.from({ length: count }, (_, at) => `/${at}`);
const silence = { ...NOT_STREAMED, answered() {}, failed() {} };
const lost = { status: 'rejected', reason: expect.any(ConnectionLost) };

test('an unused connection is closed after its idle time, and the next request gets a new one', async () => {
  const { ask, connections } = await lineUnderTest((socket, path) => void socket.write(answer(path)), 100);
  expect(await ask('/first')).toBe('/first');
  await expect.poll(() => connections[0]?.destroyed).toBe(true);
  expect(await ask('/second')).toBe('/second');
  expect(connections).toHaveLength(2);
});

test('a connection with a pending answer is not closed for being idle', async () => {
  const { ask, connections } = await lineUnderTest((socket, path) => {
    setTimeout(() => socket.write(answer(path)), 300);
  }, 50);
  expect(await ask('/late')).toBe('/late');
  expect(connections).toHaveLength(1);
});

test('after the last answer of a connection no other is read, and all waiting requests fail at once', async () => {
  const { ask, connections } = await lineUnderTest((socket, path, connection) => {
    if (connection > 0) socket.write(answer(path));
    // All answers in one piece and then nothing: the core leaves the connection for us to close.
    else if (path === '/9')
      socket.write(
        paths(10)
          .map((body) => answer(body, ...(body === '/3' ? ['Connection: close'] : [])))
          .join(''),
      );
  });
  const settled = await Promise.allSettled(paths(10).map((path) => ask(path)));
  expect(settled.slice(0, 4)).toEqual(paths(4).map((value) => ({ status: 'fulfilled', value })));
  expect(settled.slice(4)).toEqual(Array(6).fill(lost));
  await expect.poll(() => connections[0]?.destroyed).toBe(true);
  expect(await ask('/next')).toBe('/next');
  expect(connections).toHaveLength(2);
});

test('an unreadable answer fails its own request, and later requests learn that the connection is lost', async () => {
  const { ask } = await lineUnderTest((socket, path, connection) => {
    if (connection > 0) socket.write(answer(path));
    else if (path === '/4') socket.write(`${answer('/0')}${answer('/1')}HTTP/1.0 200 OK\r\n\r\n${answer('/3')}`);
  });
  expect(await Promise.allSettled(paths(5).map((path) => ask(path)))).toEqual([
    { status: 'fulfilled', value: '/0' },
    { status: 'fulfilled', value: '/1' },
    { status: 'rejected', reason: expect.any(Unreadable) },
    lost,
    lost,
  ]);
  expect(await ask('/next')).toBe('/next');
});

test.for([
  ['half a head', answer('x').slice(0, 30)],
  ['half a body', answer('x'.repeat(9)).slice(0, -4)],
  ['half an answer that is too large', answer('x'.repeat(300_000)).slice(0, 1_000)],
] as const)('a connection that breaks after %s leaves nothing behind', async ([, text]) => {
  const { ask, connections } = await lineUnderTest((socket, path, connection) => {
    if (connection === 0) socket.end(text);
    else socket.write(answer(path));
  });
  await expect(ask('/first')).rejects.toThrow();
  await expect.poll(() => connections[0]?.destroyed).toBe(true);
  expect(await Promise.all(paths(5).map((path) => ask(path)))).toEqual(paths(5));
});

test('a request that could not be sent is not sent later with the next one', async () => {
  const port = await freePort();
  const line = lineTo(`http://127.0.0.1:${port}`);
  const ask = (target: string) => askOn(line, { target });
  await expect(ask('/first')).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  let received = '';
  const server = net.createServer((socket) => {
    socket.on('data', (chunk) => {
      received += chunk;
      socket.write(OK);
    });
  });
  server.listen(port, '127.0.0.1');
  cleanUp(() => void server.close());
  await once(server, 'listening');
  expect((await ask('/second')).body).toBe('[]');
  expect(received).toMatch(/^GET \/second HTTP\/1\.1\r\nHost: 127\.0\.0\.1:\d+\r\nX-Request-Id: \r\n\r\n$/);
});

test('a connection without waiting requests is closed, and the next request gets a new one', async () => {
  const { ask, line, connections } = await lineUnderTest((socket, path) => {
    if (path !== '/silent') socket.write(answer(path));
  });
  const asked = { ...silence, request: requestFor({ target: '/silent' }), id: '', isWanted: true };
  line.send(asked, performance.now());
  await expect.poll(() => connections.length).toBe(1);
  line.endUnwanted();
  expect(line.depth).toBe(1);
  asked.isWanted = false;
  line.endUnwanted();
  expect(line.depth).toBe(0);
  expect(await Promise.all(paths(5).map((path) => ask(path)))).toEqual(paths(5));
  expect(connections).toHaveLength(2);
});

test.for([
  ['with another id', 'X-Request-Id: 9'],
  ['with two ids', 'X-Request-Id: 1\r\nX-Request-Id: 2'],
  ['without an id', 'X: 1'],
])('an answer %s closes the connection and reaches nobody', async ([, header]) => {
  const { line } = await lineUnderTest(
    (socket, path) => {
      if (path === '/3')
        socket.write(
          `${answer('0', 'x-request-id: 0')}${answer('1', header as string)}${answer('2', 'x-request-id: 2')}`,
        );
    },
    60_000,
    true,
  );
  const asked = [0, 1, 2, 3].map((id) => askOn(line, { target: `/${id}`, id: String(id) }));
  expect(await Promise.allSettled(asked)).toEqual([
    { status: 'fulfilled', value: expect.objectContaining({ body: '0' }) },
    { status: 'rejected', reason: expect.any(WrongAnswer) },
    lost,
    lost,
  ]);
});

test('endless interim answers are not buffered without limit', async () => {
  const hint = `HTTP/1.1 103 Early Hints\r\nLink: <${'x'.repeat(10_000)}>\r\n\r\n`;
  const { ask } = await lineUnderTest((socket) => void socket.write(hint.repeat(120)));
  await expect(ask('/')).rejects.toThrow(ConnectionLost);
});

test('closing a line fails all waiting requests and closes its connection', async () => {
  const { ask, line, connections } = await lineUnderTest((socket, path) => {
    if (path === '/first') socket.write(answer(path));
  });
  await ask('/first');
  const waiting = Promise.allSettled([ask('/1'), ask('/2')]);
  line.close();
  expect(await waiting).toEqual([lost, lost]);
  await expect.poll(() => connections[0]?.destroyed).toBe(true);
});

const hasIpv6 = Object.values(networkInterfaces()).some((addresses) =>
  addresses?.some(({ address }) => address === '::1'),
);

test.runIf(hasIpv6)('a core can have an IPv6 address', async () => {
  const server = net.createServer((socket) => void socket.on('data', () => void socket.end(OK)));
  server.listen(0, '::1');
  cleanUp(() => void server.close());
  await once(server, 'listening');
  const origin = `http://[::1]:${(server.address() as AddressInfo).port}`;
  expect(await askOn(lineTo(origin), { target: '/' })).toMatchObject({ status: 200, body: '[]' });
});
