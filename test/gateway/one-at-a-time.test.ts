import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type { ErrorCode } from '../../shared/http/errors.ts';
import { dice } from '../support/fuzz.ts';
import { type Listener, startListeners } from '../support/listeners.ts';
import type { LogLine } from '../support/log.ts';
import { connectRaw } from '../support/raw-client.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { ADMIN_TOKEN, type Stack, startStack } from '../support/stack.ts';
import { thoroughly } from '../support/thorough.ts';

/**
 * The next request on a connection begins once the previous response is complete, and none begins after a response that
 * closes the connection. So every executed request is charged and answered, whatever a client sends and however the
 * bytes are split.
 */

const { ca, listeners } = await startListeners('Rex', { REDIS_URL: (await emptyDatabase()).url });
const PET = '{"name":"Rex","categoryId":1}';

const chunked = (text: string): string => `${text.length.toString(16)}\r\n${text}\r\n0\r\n\r\n`;

interface Kind {
  /** READ, WRITE, BODY and LENGTH are replaced by those of the listener, and KEY and ID by those of the request. */
  readonly text: string;
  /** Whether it succeeds, which includes forwarding by a listener that forwards requests. */
  readonly isGood?: boolean;
  /** Whether its response must close the connection. Other responses may close it. */
  readonly closes?: boolean;
  /** Whether it is invalid. An invalid request is refused without its id and never begins. */
  readonly isNone?: boolean;
}

const of = (line: string, headers = '', body = ''): string =>
  `${line}\r\nHost: HOST\r\n${headers}Authorization: Bearer KEY\r\nX-Request-Id: ID\r\n\r\n${body}`;
const GET = 'GET READ HTTP/1.1';
const POST = 'POST WRITE HTTP/1.1';
const JSON_TYPE = 'Content-Type: application/json\r\n';
const IN_CHUNKS = 'Transfer-Encoding: chunked\r\n';
const H2C = 'Connection: Upgrade\r\nUpgrade: h2c\r\n';
const WRITE = of(POST, `${JSON_TYPE}Content-Length: LENGTH\r\n`, 'BODY');

const KINDS: Readonly<Record<string, Kind>> = {
  read: { text: of(GET), isGood: true },
  'HEAD with a length': { text: of('HEAD READ HTTP/1.1', 'Content-Length: 0\r\n'), isGood: true },
  'write with a length': { text: WRITE, isGood: true },
  'write in chunks': { text: of(POST, JSON_TYPE + IN_CHUNKS, 'CHUNKS'), isGood: true },
  'upgrade that is ignored': { text: of(GET, H2C), isGood: true },
  'upgrade with a body': { text: of(POST, `${H2C}${JSON_TYPE}Content-Length: LENGTH\r\n`, 'BODY'), isGood: true },
  'upgrade with chunks': { text: of(POST, H2C + JSON_TYPE + IN_CHUNKS, 'CHUNKS'), isGood: true },
  'read after line breaks': { text: `\r\n\n\r\n\r\n${of(GET)}`, isGood: true },
  'unknown path': { text: of('GET /v1/nothing HTTP/1.1') },
  'wrong key': { text: of(GET).replace('KEY', 'wrong') },
  'short body with a wrong key': { text: WRITE.replace('KEY', 'wrong') },
  'chunks with a wrong key': { text: of(POST, JSON_TYPE + IN_CHUNKS, 'CHUNKS').replace('KEY', 'wrong') },
  'OPTIONS in chunks': { text: of('OPTIONS WRITE HTTP/1.1', IN_CHUNKS, chunked('x')) },
  'last read': { text: of(GET, 'Connection: close\r\n'), isGood: true, closes: true },
  'read in HTTP/1.0': { text: of('GET READ HTTP/1.0'), isGood: true, closes: true },
  'two hosts': { text: of(POST, 'Host: b\r\n'), closes: true },
  'unknown expectation': { text: of(POST, 'Expect: banana\r\n'), closes: true },
  'unsupported coding': { text: of(POST, 'Transfer-Encoding: gzip, chunked\r\n', 'CHUNKS'), closes: true },
  'body that is too long': {
    text: of(POST, `${JSON_TYPE}Content-Length: 70000\r\n`, 'x'.repeat(70_000)),
  },
  'chunks that are too long': { text: of(POST, JSON_TYPE + IN_CHUNKS, chunked('x'.repeat(70_000))) },
  'invalid chunk size': { text: of(POST, JSON_TYPE + IN_CHUNKS, '3\r\n{"n\r\nzz\r\n\r\n'), closes: true },
  'chunk without its end': { text: of(POST, JSON_TYPE + IN_CHUNKS, '3\r\n{"name\r\n0\r\n\r\n'), closes: true },
  'two spaces before the target': { text: of('GET  READ HTTP/1.1'), closes: true, isNone: true },
  'two spaces after the target': { text: of('GET READ  HTTP/1.1'), closes: true, isNone: true },
  'write with two spaces': { text: WRITE.replace(' ', '  '), closes: true, isNone: true },
  CONNECT: { text: of('CONNECT a:1 HTTP/1.1'), closes: true, isNone: true },
  'unknown method': { text: of('BREW READ HTTP/1.1'), closes: true, isNone: true },
  'two lengths': { text: of(POST, 'Content-Length: 1\r\nContent-Length: 2\r\n'), closes: true, isNone: true },
  nonsense: { text: 'nonsense\r\n\r\n', closes: true, isNone: true },
};

/**
 * Requests that are sent only to the listener for clients. The other listeners answer with 404 and may keep the
 * connection open.
 */
const FOR_CLIENTS: Readonly<Record<string, Kind>> = {
  limits: { text: of('GET /v1/limits HTTP/1.1') },
  'dot segments': { text: of('GET /v1/../v1/pets HTTP/1.1'), closes: true },
  'headers that are too large': { text: of(GET, `X: ${'x'.repeat(20_000)}\r\n`), closes: true },
};

/** Returns the final responses in order. */
function answers(received: string) {
  const heads = received.match(/HTTP\/1\.1 [2-5]\d\d [\s\S]*?\r\n\r\n/g) ?? [];
  return heads.map((head) => ({
    id: /^x-request-id: (.*?)\r$/im.exec(head)?.[1] ?? '',
    status: Number(head.slice(9, 12)),
    closes: /^connection: close\r$/im.test(head),
  }));
}

/** Returns what a listener and its core logged about a connection's requests. */
function logged({ log, coreLog = [] }: Listener, run: string) {
  const own = (line: LogLine) => String(line.requestId).startsWith(`${run}-`) && String(line.msg).endsWith('request');
  const idOf = (line: LogLine) => String(line.requestId).split('.', 1)[0] as string;
  const lines = log.filter(own);
  return {
    finished: lines.filter(({ status }) => status !== 499).map(idOf),
    left: lines.filter(({ status }) => status === 499).map(idOf),
    charged: lines.filter(({ outcome }) => outcome === 'admitted').map(idOf),
    executed: coreLog.filter(own).map(idOf),
  };
}

/** Sends the bytes in pieces of random lengths. */
async function sendCut(write: (piece: string) => void, bytes: string, roll: (below: number) => number): Promise<void> {
  for (let at = 0; at < bytes.length; ) {
    const piece = roll(3) === 0 ? bytes.length : 1 + roll(roll(2) === 0 ? 200 : 20_000);
    write(bytes.slice(at, at + piece));
    at += piece;
    if (roll(2) === 0) await sleep(roll(3));
  }
}

async function connection(to: Listener, seed: number): Promise<void> {
  const roll = dice(seed);
  const run = `${to.name.replaceAll(' ', '_')}${seed}`;
  const all = Object.values(to.coreLog === undefined ? KINDS : { ...KINDS, ...FOR_CLIENTS })
    // A wrong token for the admin API slows down the following requests.
    .filter(({ text }) => to.key !== ADMIN_TOKEN || !text.includes('wrong'));
  const kinds = Array.from({ length: 2 + roll(14) }, () => {
    // Half of all requests are valid writes, which must not be lost.
    return (roll(2) === 0 ? KINDS['write with a length'] : all[roll(all.length)]) as Kind;
  });
  const ids = kinds.map((_, at) => `${run}-${at}`);
  const texts = kinds.map(({ text }, at) =>
    text
      .replace('ID', ids[at] as string)
      .replace('HOST', new URL(to.url).host)
      .replace('READ', to.read)
      .replace('WRITE', to.write)
      .replace('LENGTH', String(to.body.length))
      .replace('CHUNKS', chunked(to.body))
      .replace('BODY', to.body)
      // Last, because a random key may contain one of these words.
      .replace('KEY', to.key ?? 'none'),
  );
  const isGood = (id: string) => kinds[ids.indexOf(id)]?.isGood === true;
  const { socket, received, closed } = await connectRaw(to.url, { ca });
  // After a reset, only the gateway logs which request the client abandoned.
  const endings = to === listeners[0] ? ['end', 'wait', 'reset'] : ['end', 'wait'];
  const ending = endings[roll(endings.length)] as string;
  const bytes = texts.join('');
  const isReset = ending === 'reset';
  const sent = isReset ? bytes.slice(0, roll(bytes.length)) : bytes;
  await sendCut((piece) => socket.write(piece, 'latin1'), sent, roll);
  if (isReset) {
    await sleep(roll(10));
    socket.resetAndDestroy();
    await expect.poll(() => isSettled(to, run, isGood), { message: `${run} has settled` }).toBe(true);
  } else {
    if (ending === 'end') socket.end();
    const isOver = () => answers(received()).length === ids.length || answers(received()).at(-1)?.closes === true;
    await expect.poll(isOver, { message: `${run} has its responses`, timeout: 20_000 }).toBe(true);
    if (ending === 'end' || answers(received()).at(-1)?.closes) await closed;
    socket.destroy();
  }

  const { finished, left, charged, executed } = logged(to, run);
  expect(left.length, 'at most one request was in progress at the reset').toBeLessThanOrEqual(isReset ? 1 : 0);
  // The abandoned request may have reached the core.
  const known = (list: readonly string[]) => list.filter((id) => !left.includes(id)).sort();
  // A read that the core answers late is sent twice, but a write never is.
  const isWrite = (id: string) => texts[ids.indexOf(id)]?.startsWith('POST') === true;
  const once = executed.filter((id, at) => isWrite(id) || executed.indexOf(id) === at);
  if (to.coreLog !== undefined) {
    expect(known(once)).toEqual(finished.filter(isGood).sort());
    expect(known(charged.filter(isGood))).toEqual(finished.filter(isGood).sort());
  }
  if (!isReset) {
    const got = answers(received());
    const begun = got.filter(({ id }) => ids.includes(id));
    expect(begun.map(({ id }) => id)).toEqual(ids.slice(0, begun.length));
    expect([...finished].sort()).toEqual(begun.map(({ id }) => id).sort());
    // The response to an invalid request has a new id and is the last one.
    const none = got.slice(begun.length);
    expect(
      none.map(({ status }) => status < 500),
      `${run}: ${received().slice(-600)}`,
    ).toEqual(kinds[begun.length]?.isNone && !begun.at(-1)?.closes ? [true] : []);
    expect(got.slice(0, -1).filter(({ closes }) => closes)).toEqual([]);
    for (const [at, { status, closes }] of got.entries()) {
      if (kinds[at]?.isGood) expect(status).toBeLessThan(300);
      if (kinds[at]?.closes) expect(closes).toBe(true);
    }
  }
}

/** Whether the requests that have begun are the first on their connection, and each has its log lines. */
function isSettled(to: Listener, run: string, isGood: (id: string) => boolean): boolean {
  const { finished, left, executed } = logged(to, run);
  const begun = [...finished, ...left];
  return (
    begun.every((_, at) => begun.includes(`${run}-${at}`)) &&
    executed.every((id) => begun.includes(id)) &&
    finished.filter(isGood).every((id) => executed.includes(id))
  );
}

test.for(listeners)(
  '$name: every executed request is charged and answered, however its pipeline is split',
  async (to) => {
    const count = thoroughly(160, 24);
    for (let seed = 1; seed <= count; seed += 8) {
      await Promise.all(Array.from({ length: Math.min(8, count - seed + 1) }, (_, at) => connection(to, seed + at)));
    }
  },
);

const write = (id: string, ownKey: string): string =>
  `POST /v1/pets HTTP/1.1\r\nHost: a\r\n${JSON_TYPE}Content-Length: ${PET.length}\r\nAuthorization: Bearer ${ownKey}\r\nX-Request-Id: ${id}\r\n\r\n${PET}`;
/** Returns the ids of the requests that the core has executed. */
const executedOf = ({ coreLog }: Stack): string[] =>
  coreLog.filter(({ msg }) => msg === 'request').map(({ requestId }) => String(requestId).split('.', 1)[0] as string);

test('a stopping gateway closes each connection after a response and executes no further requests on it', async () => {
  const own = await startStack();
  const ownKey = await own.issueKey({ plan: 'enterprise', minute: 1_000, day: 10_000 });
  const { socket, received, closed } = await connectRaw(own.gateway);
  const ids = Array.from({ length: 400 }, (_, at) => `stop-${at}`);
  socket.write(ids.map((id) => write(id, ownKey)).join(''));
  await expect.poll(() => executedOf(own).length).toBeGreaterThan(5);
  await own.stop();
  await closed;
  const got = answers(received());
  expect(got.length).toBeLessThan(ids.length);
  expect(got.map(({ id }) => id)).toEqual(executedOf(own));
  expect(got.filter(({ closes }) => closes)).toEqual([got.at(-1)]);
});

test('a client that keeps sending after refusals is disconnected, and its waiting requests are not executed', async () => {
  const own = await startStack();
  const ownKey = await own.issueKey();
  const { socket, received, closed } = await connectRaw(own.gateway);
  const wrong = of('GET /v1/pets HTTP/1.1').replace('KEY', 'wrong').replace('ID', 'wrong');
  socket.write(wrong.repeat(300) + write('behind', ownKey));
  await closed;
  const got = answers(received());
  // Only the first 60 refusals of a minute are sent without a delay.
  expect(got.length).toBeGreaterThan(100);
  expect(got.length).toBeLessThan(200);
  expect([got.at(-1)?.closes, executedOf(own)]).toEqual([true, []]);
});

test.for<[what: string, rest: string, status: number, code: ErrorCode]>([
  ['a head without an end', 'GET /v1/pets HTTP/1.1\r\nHost: a\r\n', 408, 'request_timeout'],
  [
    'a head that is too large',
    `GET /v1/pets HTTP/1.1\r\nHost: a\r\nX: ${'x'.repeat(50_000)}\r\n\r\n`,
    431,
    'headers_too_large',
  ],
  ['a line that is too long', `GET /${'x'.repeat(50_000)} HTTP/1.1\r\nHost: a\r\n\r\n`, 431, 'headers_too_large'],
])('%s is refused after the previous response, and nothing after it is executed', async ([, rest, status, code]) => {
  const own = await startStack({}, { headersMs: 300, checkEveryMs: 100 });
  const ownKey = await own.issueKey();
  const { socket, received, closed } = await connectRaw(own.gateway);
  socket.write(write('first', ownKey) + rest);
  await expect.poll(() => answers(received()).length).toBe(2);
  socket.write(write('behind', ownKey));
  await closed;
  expect(answers(received()).map((answer) => answer.status)).toEqual([201, status]);
  expect(received()).toContain(`"code":"${code}"`);
  expect(executedOf(own)).toEqual(['first']);
});

test('an idle connection is closed, and later requests on it are not executed', async () => {
  const own = await startStack({}, { keepAliveMs: 200, checkEveryMs: 100 });
  const ownKey = await own.issueKey();
  const connections = await Promise.all(Array.from({ length: 20 }, () => connectRaw(own.gateway)));
  const executed = connections.map(async ({ socket, received }: { socket: Socket; received(): string }, at) => {
    socket.write(write(`first-${at}`, ownKey));
    await expect.poll(() => answers(received()).length).toBe(1);
    // Node waits a second longer than it announces.
    await sleep(1_150 + 10 * at);
    socket.write(write(`second-${at}`, ownKey));
    await sleep(200);
    return answers(received()).map(({ id }) => id);
  });
  expect((await Promise.all(executed)).flat().sort()).toEqual(executedOf(own).sort());
});

test('empty lines do not keep an idle connection open, and a request after one is answered', async () => {
  const own = await startStack({}, { keepAliveMs: 200, checkEveryMs: 100 });
  const ownKey = await own.issueKey();
  const { socket, received, closed } = await connectRaw(own.gateway);
  let isClosed = false;
  void closed.then(() => {
    isClosed = true;
  });
  for (const id of ['first', 'second']) {
    socket.write(`\r\n${write(id, ownKey)}`);
    await expect.poll(() => answers(received()).length).toBe(id === 'first' ? 1 : 2);
    socket.write('\r\n');
    await sleep(300);
  }
  for (let sent = 0; sent < 20 && !isClosed; sent++) {
    socket.write('\r\n');
    await sleep(300);
  }
  expect(isClosed).toBe(true);
  expect(executedOf(own)).toEqual(['first', 'second']);
});
