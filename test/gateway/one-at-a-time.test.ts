import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { dice } from '../support/fuzz.ts';
import type { LogLine } from '../support/log.ts';
import { connectRaw } from '../support/raw-client.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { startStack } from '../support/stack.ts';
import { thoroughly } from '../support/thorough.ts';

/**
 * The next request of a connection begins when the answer before it has ended, and nothing follows an answer that
 * closes. So whatever a client sends, and however its bytes are cut: what was executed was charged and answered.
 */

const stack = await startStack({ REDIS_URL: (await emptyDatabase()).url });
const key = await stack.issueKey({ plan: 'enterprise', minute: 1_000_000, day: 10_000_000 });
const PET = '{"name":"Rex","categoryId":1}';
const chunked = (text: string): string => `${text.length.toString(16)}\r\n${text}\r\n0\r\n\r\n`;

interface Kind {
  /** The head behind its id, and the body. */
  readonly text: string;
  /** Whether the core gets it. */
  readonly isForwarded?: boolean;
  /** Whether its answer must close the connection. Others may. */
  readonly closes?: boolean;
}

const of = (line: string, headers = '', body = ''): string =>
  `${line}\r\nHost: a\r\n${headers}Authorization: Bearer KEY\r\nX-Request-Id: ID\r\n\r\n${body}`;
const POST = 'POST /v1/pets HTTP/1.1';
const JSON_TYPE = 'Content-Type: application/json\r\n';
const IN_CHUNKS = 'Transfer-Encoding: chunked\r\n';

const KINDS: Readonly<Record<string, Kind>> = {
  read: { text: of('GET /v1/pets?limit=1 HTTP/1.1'), isForwarded: true },
  'HEAD with a length': { text: of('HEAD /v1/pets HTTP/1.1', 'Content-Length: 0\r\n'), isForwarded: true },
  'write with a length': {
    text: of(POST, `${JSON_TYPE}Content-Length: ${PET.length}\r\n`, PET),
    isForwarded: true,
  },
  'write in chunks': { text: of(POST, JSON_TYPE + IN_CHUNKS, chunked(PET)), isForwarded: true },
  'upgrade that is ignored': {
    text: of('GET /v1/pets?limit=1 HTTP/1.1', 'Connection: Upgrade\r\nUpgrade: h2c\r\n'),
    isForwarded: true,
  },
  limits: { text: of('GET /v1/limits HTTP/1.1') },
  'unknown path': { text: of('GET /v1/nothing HTTP/1.1') },
  'wrong key': { text: of('GET /v1/pets HTTP/1.1').replace('KEY', 'wrong') },
  'short body with a wrong key': {
    text: of(POST, `${JSON_TYPE}Content-Length: ${PET.length}\r\n`, PET).replace('KEY', 'wrong'),
  },
  'chunks with a wrong key': { text: of(POST, JSON_TYPE + IN_CHUNKS, chunked(PET)).replace('KEY', 'wrong') },
  'OPTIONS in chunks': { text: of('OPTIONS /v1/pets HTTP/1.1', IN_CHUNKS, chunked('x')) },
  'last read': { text: of('GET /v1/pets?limit=1 HTTP/1.1', 'Connection: close\r\n'), isForwarded: true, closes: true },
  'read in HTTP/1.0': { text: of('GET /v1/pets?limit=1 HTTP/1.0'), isForwarded: true, closes: true },
  'two hosts': { text: of(POST, 'Host: b\r\n'), closes: true },
  'unknown expectation': { text: of(POST, 'Expect: banana\r\n'), closes: true },
  'another coding': { text: of(POST, 'Transfer-Encoding: gzip, chunked\r\n', chunked(PET)), closes: true },
  'dot segments': { text: of('GET /v1/../v1/pets HTTP/1.1'), closes: true },
  'body that is too long': {
    text: of(POST, `${JSON_TYPE}Content-Length: 70000\r\n`, 'x'.repeat(70_000)),
  },
  'chunks that are too long': { text: of(POST, JSON_TYPE + IN_CHUNKS, chunked('x'.repeat(70_000))) },
  'headers that are too large': { text: of('GET /v1/pets HTTP/1.1', `X: ${'x'.repeat(20_000)}\r\n`), closes: true },
};

/** The final answers, in their order. */
function answers(received: string) {
  const heads = received.match(/HTTP\/1\.1 [2-5]\d\d [\s\S]*?\r\n\r\n/g) ?? [];
  return heads.map((head) => ({
    id: /^x-request-id: (.*?)\r$/im.exec(head)?.[1] ?? '',
    status: Number(head.slice(9, 12)),
    closes: /^connection: close\r$/im.test(head),
  }));
}

/** What the gateway and the core logged of a connection's requests. */
function logged(run: string) {
  const own = (line: LogLine) => String(line.requestId).startsWith(`${run}-`);
  const idOf = (line: LogLine) => String(line.requestId).split('.', 1)[0] as string;
  const lines = stack.log.filter((line) => line.msg === 'request' && own(line));
  return {
    finished: lines.filter(({ status }) => status !== 499).map(idOf),
    left: lines.filter(({ status }) => status === 499).map(idOf),
    charged: lines.filter(({ outcome }) => outcome === 'admitted').map(idOf),
    executed: stack.coreLog.filter((line) => line.msg === 'request' && own(line)).map(idOf),
  };
}

/** Sends the bytes in pieces that end anywhere. */
async function sendCut(write: (piece: string) => void, bytes: string, roll: (below: number) => number): Promise<void> {
  for (let at = 0; at < bytes.length; ) {
    const piece = roll(3) === 0 ? bytes.length : 1 + roll(roll(2) === 0 ? 200 : 20_000);
    write(bytes.slice(at, at + piece));
    at += piece;
    if (roll(2) === 0) await sleep(roll(3));
  }
}

async function connection(seed: number): Promise<void> {
  const roll = dice(seed);
  const run = `run${seed}`;
  const names = Object.keys(KINDS);
  const kinds = Array.from({ length: 2 + roll(14) }, () => {
    // Half of all requests are good writes, so that there is something to lose.
    return KINDS[roll(2) === 0 ? 'write with a length' : (names[roll(names.length)] as string)] as Kind;
  });
  const ids = kinds.map((_, at) => `${run}-${at}`);
  const texts = kinds.map(({ text }, at) => text.replace('KEY', key).replace('ID', ids[at] as string));
  const { socket, received, closed } = await connectRaw(stack.gateway);
  const ending = ['end', 'wait', 'reset'][roll(3)] as string;
  const bytes = texts.join('');
  const isReset = ending === 'reset';
  const sent = isReset ? bytes.slice(0, roll(bytes.length)) : bytes;
  await sendCut((piece) => socket.write(piece, 'latin1'), sent, roll);
  if (isReset) {
    await sleep(roll(10));
    socket.resetAndDestroy();
    await expect.poll(() => isSettled(run), { message: `${run} has settled` }).toBe(true);
  } else {
    if (ending === 'end') socket.end();
    const isOver = () => answers(received()).length === ids.length || answers(received()).at(-1)?.closes === true;
    await expect.poll(isOver, { message: `${run} has its answers` }).toBe(true);
    if (ending === 'end' || answers(received()).at(-1)?.closes) await closed;
    socket.destroy();
  }

  const { finished, left, charged, executed } = logged(run);
  const forwarded = (id: string) => kinds[ids.indexOf(id)]?.isForwarded === true;
  expect(left.length, 'at most one was begun before the reset was seen').toBeLessThanOrEqual(isReset ? 1 : 0);
  // The one that was left may have reached the core or not.
  const known = (list: readonly string[]) => list.filter((id) => !left.includes(id)).sort();
  expect(known(executed)).toEqual(finished.filter(forwarded).sort());
  expect(known(charged.filter(forwarded))).toEqual(finished.filter(forwarded).sort());
  if (!isReset) {
    const got = answers(received());
    expect(got.map(({ id }) => id)).toEqual(finished);
    expect(got.slice(0, -1).filter(({ closes }) => closes)).toEqual([]);
    for (const { id, status, closes } of got) {
      if (forwarded(id)) expect(status).toBeLessThan(300);
      if (kinds[ids.indexOf(id)]?.closes) expect(closes).toBe(true);
    }
  }
}

/** Whether the requests that began are the first ones of a connection, and each has its line. */
function isSettled(run: string): boolean {
  const { finished, left, executed } = logged(run);
  const begun = [...finished, ...left];
  return begun.every((_, at) => begun.includes(`${run}-${at}`)) && executed.every((id) => begun.includes(id));
}

test('whatever is pipelined and however it is cut, what was executed was charged and answered', async () => {
  const count = thoroughly(1_000, 120);
  for (let seed = 1; seed <= count; seed += 8) {
    await Promise.all(Array.from({ length: Math.min(8, count - seed + 1) }, (_, at) => connection(seed + at)));
  }
});

const write = (id: string, ownKey: string): string =>
  `${POST}\r\nHost: a\r\n${JSON_TYPE}Content-Length: ${PET.length}\r\nAuthorization: Bearer ${ownKey}\r\nX-Request-Id: ${id}\r\n\r\n${PET}`;
/** The ids of the requests that the core has executed. */
const executedOf = ({ coreLog }: Pick<typeof stack, 'coreLog'>): string[] =>
  coreLog.filter(({ msg }) => msg === 'request').map(({ requestId }) => String(requestId).split('.', 1)[0] as string);

test('a stop closes behind an answer, and what waits behind that is not executed', async () => {
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

test('a client that goes on after refusals is closed, and what waits behind that is not executed', async () => {
  const own = await startStack();
  const ownKey = await own.issueKey();
  const { socket, received, closed } = await connectRaw(own.gateway);
  const wrong = of('GET /v1/pets HTTP/1.1').replace('KEY', 'wrong').replace('ID', 'wrong');
  socket.write(wrong.repeat(300) + write('behind', ownKey));
  await closed;
  const got = answers(received());
  // The first 60 refusals of a minute do not wait.
  expect(got.length).toBeGreaterThan(100);
  expect(got.length).toBeLessThan(200);
  expect([got.at(-1)?.closes, executedOf(own)]).toEqual([true, []]);
});

test.for<[what: string, rest: string, status: number]>([
  ['a head that does not end', 'GET /v1/pets HTTP/1.1\r\nHost: a\r\n', 408],
  ['a head that is too large', `GET /v1/pets HTTP/1.1\r\nHost: a\r\nX: ${'x'.repeat(50_000)}\r\n\r\n`, 431],
  ['a line that is too long', `GET /${'x'.repeat(50_000)} HTTP/1.1\r\nHost: a\r\n\r\n`, 431],
])('%s is refused behind the answer before it, and nothing follows', async ([, rest, status]) => {
  const own = await startStack({}, { headersMs: 300, checkEveryMs: 100 });
  const ownKey = await own.issueKey();
  const { socket, received, closed } = await connectRaw(own.gateway);
  socket.write(write('first', ownKey) + rest);
  await expect.poll(() => answers(received()).length).toBe(2);
  socket.write(write('behind', ownKey));
  await closed;
  expect(answers(received()).map((answer) => answer.status)).toEqual([201, status]);
  expect(executedOf(own)).toEqual(['first']);
});

test('an idle connection is closed, and what comes then is not executed', async () => {
  const own = await startStack({}, { keepAliveMs: 200, checkEveryMs: 100 });
  const ownKey = await own.issueKey();
  const connections = await Promise.all(Array.from({ length: 20 }, () => connectRaw(own.gateway)));
  const executed = connections.map(async ({ socket, received }: { socket: Socket; received(): string }, at) => {
    socket.write(write(`first-${at}`, ownKey));
    await expect.poll(() => answers(received()).length).toBe(1);
    // Node waits for a second more than it announces.
    await sleep(1_150 + 10 * at);
    socket.write(write(`second-${at}`, ownKey));
    await sleep(200);
    return answers(received()).map(({ id }) => id);
  });
  expect((await Promise.all(executed)).flat().sort()).toEqual(executedOf(own).sort());
});
