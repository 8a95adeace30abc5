import { once } from 'node:events';
import net, { type AddressInfo } from 'node:net';
import { networkInterfaces } from 'node:os';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { AnswerTooLarge } from '../../gateway/upstream/answer.ts';
import { ConnectionLost, NotConnected, WrongAnswer } from '../../gateway/upstream/faults.ts';
import { isRepeatable, writeRequest } from '../../gateway/upstream/headers.ts';
import { MAX_DEPTH } from '../../gateway/upstream/wire.ts';
import { cleanUp } from '../support/clean-up.ts';
import { bareCore, OK } from '../support/faulty-core.ts';
import { answer, askOn, lineTo, lineUnderTest, NOT_STREAMED, requestFor, sendInPieces } from '../support/line.ts';
import { freePort } from '../support/port.ts';

/**
 * Tests the connection to the core that reads share: what is sent on it, which response a request gets, and when it
 * closes.
 */

const withHeader = (name: string, value: string) =>
  requestFor({ target: '/v1/pets?limit=1', headers: ['X', '1', name, value] });

test('a request to the core consists of exactly its request line, host, headers and id', () => {
  const value = 'a\tb \x80\xff!~';
  expect(writeRequest(withHeader('Y-z', value), 'a.1', 'core:7001')).toBe(
    `GET /v1/pets?limit=1 HTTP/1.1\r\nHost: core:7001\r\nX: 1\r\nY-z: ${value}\r\nX-Request-Id: a.1\r\n\r\n`,
  );
});

const CODES = [...Array(32).keys(), 0x7f, 0x100, 0x10a, 0x10d, 0x2028, 0xffff].filter((code) => code !== 0x09);

test.for(CODES)('a header value with the character code %i is never written', (code) => {
  const character = String.fromCharCode(code);
  for (const value of [character, `a${character}`, `${character}b`, `a${character}b`])
    expect(() => writeRequest(withHeader('Y', value), 'a.1', 'core'), JSON.stringify(value)).toThrow('The header Y');
});

test.for([
  ['GET', undefined, true],
  ['HEAD', undefined, true],
  ['GET', Buffer.from('a'), false],
  ['POST', undefined, false],
  ['DELETE', undefined, false],
  ['OPTIONS', undefined, false],
] as const)('a %s with the body %j may share a connection: %j', ([method, body, expected]) => {
  expect(isRepeatable(requestFor({ method, body }))).toBe(expected);
});

test('a request that cannot be written does not affect those before and after it', async () => {
  const heads: string[] = [];
  const { ask, line, connections } = await lineUnderTest((socket, path) => {
    heads.push(path);
    socket.write(answer(path));
  });
  const first = ask('/first');
  const smuggled = withHeader('Y', 'a\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: core');
  expect(() => askOn(line, smuggled)).toThrow('cannot be sent');
  const second = ask('/second');
  expect(await Promise.all([first, second])).toEqual(['/first', '/second']);
  expect(heads).toEqual(['/first', '/second']);
  expect(connections).toHaveLength(1);
});

/** Returns a Wire to a core that answers once it has `count` requests, and what each connection received. */
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

test('requests that are made while a connection opens share it', async () => {
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

test('closing a Wire while it connects leaves no connection open', async () => {
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

const LARGE = 'HTTP/1.1 '.repeat(40_000);
const paths = (count: number) => Array.from({ length: count }, (_, at) => `/${at}`);

test('each request gets its own response, however the stream is split', async () => {
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

test('a response that is too large is skipped, and all others on its connection match their requests', async () => {
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

test('requests after a response that is too large are blocked until the rest of it has arrived', async () => {
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

test('a response of many megabytes closes its connection, and the requests behind it can be retried', async () => {
  const { ask } = await lineUnderTest((socket, path) => {
    if (path === '/0') socket.write('HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n');
  });
  const settled = await Promise.allSettled(paths(3).map((path) => ask(path)));
  const faults = settled.map((one) => (one.status === 'rejected' ? one.reason : undefined));
  expect(faults[0]).toBeInstanceOf(AnswerTooLarge);
  expect(faults.slice(1)).toEqual([expect.any(ConnectionLost), expect.any(ConnectionLost)]);
});

const silence = { ...NOT_STREAMED, answered() {}, failed() {} };
const lost = { status: 'rejected', reason: expect.any(ConnectionLost) };

test('an idle connection is closed after its timeout, and the next request gets a new one', async () => {
  const { ask, connections } = await lineUnderTest((socket, path) => void socket.write(answer(path)), 100);
  expect(await ask('/first')).toBe('/first');
  await expect.poll(() => connections[0]?.destroyed).toBe(true);
  expect(await ask('/second')).toBe('/second');
  expect(connections).toHaveLength(2);
});

test('a connection with a pending response is not idle', async () => {
  const { ask, connections } = await lineUnderTest((socket, path) => {
    setTimeout(() => socket.write(answer(path)), 300);
  }, 50);
  expect(await ask('/late')).toBe('/late');
  expect(connections).toHaveLength(1);
});

test('after a response with Connection: close, no other is read, and all waiting requests fail', async () => {
  const { ask, connections } = await lineUnderTest((socket, path, connection) => {
    if (connection > 0) socket.write(answer(path));
    // The core sends all responses in one piece and does not close the connection itself.
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

test('a request that could not be sent is not sent later with the next one', async () => {
  const port = await freePort();
  const line = lineTo(`http://127.0.0.1:${port}`);
  const ask = (target: string) => askOn(line, { target });
  await expect(ask('/first')).rejects.toThrow(NotConnected);
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

test('a connection is closed once all of its requests are abandoned, and the next request gets a new one', async () => {
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
])('a response %s closes the connection and reaches no client', async ([, header]) => {
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

test('on a shared connection, even the first response needs an id', async () => {
  const { line } = await lineUnderTest((socket) => void socket.write(answer('0')), 60_000, true);
  const asked = [0, 1].map((id) => askOn(line, { target: `/${id}`, id: String(id) }));
  expect(await Promise.allSettled(asked)).toEqual([{ status: 'rejected', reason: expect.any(WrongAnswer) }, lost]);
});

test('interim responses are buffered only up to a limit', async () => {
  const hint = `HTTP/1.1 103 Early Hints\r\nLink: <${'x'.repeat(10_000)}>\r\n\r\n`;
  const { ask } = await lineUnderTest((socket) => void socket.write(hint.repeat(120)));
  await expect(ask('/')).rejects.toThrow(ConnectionLost);
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
