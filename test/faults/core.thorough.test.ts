import { expect, test } from 'vitest';
import { bareCore } from '../support/faulty-core.ts';
import { misbehavingStack } from '../support/misbehaving-core.ts';
import { stackBefore } from '../support/stack-before.ts';
import { fact, TIMED } from '../support/timed.ts';
import { unreachableServer } from '../support/unreachable-server.ts';

/** What clients receive when a core misbehaves. */

const CORE_TIMEOUT_MS = 400;
const timeout = { CORE_TIMEOUT_MS: String(CORE_TIMEOUT_MS) };

/** The statuses of a GET and a POST, and how often the GET is sent: twice if its connection fails. */
const misbehaviours: [does: string, query: string, get: number, post: number, asked: number][] = [
  ['closes the connection', 'fault=closes', 502, 502, 2],
  ['resets the connection', 'fault=resets', 502, 502, 2],
  ['resets the connection shortly before the timeout', 'fault=resets-late&at=260', 504, 502, 2],
  ['is silent', 'fault=stalls', 504, 504, 1],
  ['stops in the head', 'fault=stalls&at=40', 504, 504, 1],
  ['stops after the head', 'fault=stalls&at=123', 504, 504, 1],
  ['stops in the body', 'fault=stalls&at=152', 504, 504, 1],
  ['stops in a chunk', 'fault=stalls&at=162&framing=chunked', 504, 504, 1],
  ['answers too late', 'fault=late&at=600', 504, 504, 1],
  ['answers just in time', 'fault=late&at=100', 200, 200, 1],
  ['speaks another protocol', 'fault=garbage', 502, 502, 2],
  ['sends a length and chunks', 'fault=both-framings', 502, 502, 2],
  ['sends two lengths', 'fault=two-lengths', 502, 502, 2],
  ['sends neither length nor chunks', 'fault=no-framing', 502, 502, 1],
  ['sends a head of 20 kB', 'fault=long-head', 502, 502, 2],
  ['sends more bytes than its Content-Length', 'fault=too-long', 200, 200, 1],
  ['sends a second response after the first', 'fault=too-long-by-an-answer', 200, 200, 1],
  ['sends 100 Continue unasked', 'fault=continue', 200, 200, 1],
  ['sends 103 Early Hints first', 'fault=early-hints', 200, 200, 1],
  ['switches protocols', 'fault=switching-protocols', 502, 502, 2],
];

const cases = misbehaviours.flatMap(([does, query, get, post, asked]) => [
  { does, query, method: 'GET', seen: get, attempts: asked },
  { does, query, method: 'POST', seen: post, attempts: 1 },
]);

test.for(cases)(
  'when a core $does, a $method gets $seen, and the next request is unaffected',
  TIMED,
  async ({ query, method, seen, attempts }) => {
    const { ask: sent, stack } = await misbehavingStack(timeout);
    /** Sends a request, and checks, even on a slow machine, that the response belongs to it. */
    const ask = async (...how: Parameters<typeof sent>) => {
      const outcome = await sent(...how);
      await fact(() => expect(outcome.isOwn).toBe(outcome.seen === 200));
      return outcome;
    };
    expect(await ask(method)).toMatchObject({ seen: 200 });
    const outcome = await ask(method, query);
    expect(outcome).toMatchObject({ seen, asked: Array(attempts).fill(0) });
    if (seen === 504) expect(outcome.ms).toBeLessThan(CORE_TIMEOUT_MS + 300);
    expect(outcome.answer?.headers['x-ratelimit-limit']).toBe('1000000');
    for (const next of ['GET', 'POST', method]) expect(await ask(next)).toMatchObject({ seen: 200 });
    expect(stack.log.filter(({ level }) => level >= 50)).toEqual([]);
  },
);

test('requests to a core that refuses connections get 502 immediately', TIMED, async () => {
  const { get, post } = await stackBefore('http://127.0.0.1:1');
  const times: number[] = [];
  for (let sent = 0; sent < 21; sent++) {
    const before = performance.now();
    const answer = await (sent % 2 === 0 ? get() : post());
    times.push(performance.now() - before);
    await fact(() => expect([answer.status, answer.json]).toMatchObject([502, { code: 'bad_gateway' }]));
  }
  expect(times.sort((a, b) => a - b)[10]).toBeLessThan(50);
});

test('requests to a core that does not accept connections get 504 within the timeout', TIMED, async () => {
  const { get, post } = await stackBefore(await unreachableServer(), { CORE_TIMEOUT_MS: '10000' });
  const before = performance.now();
  const answers = await Promise.all([...Array.from({ length: 100 }, () => get()), post()]);
  const ms = performance.now() - before;
  await fact(() => expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([504])));
  expect(ms).toBeLessThan(8_000);
});

test('a response that arrives before the body is sent is forwarded, and its connection is not reused', async () => {
  const early = JSON.stringify({ code: 'payload_too_large', message: 'No.', status: 413 });
  const connections: string[] = [];
  const core = await bareCore((socket) => {
    socket.once('data', (chunk) => {
      connections.push(chunk.toString('latin1').split(' ', 1)[0] ?? '');
      socket.pause();
      socket.end(
        `HTTP/1.1 413 Payload Too Large\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: ${early.length}\r\n\r\n${early}`,
      );
      setTimeout(() => socket.destroy(), 20);
    });
  });
  const { post } = await stackBefore(core, { BODY_LIMIT_BYTES: '8000000' });
  for (let sent = 0; sent < 10; sent++) {
    const answer = await post('', 'x'.repeat(5_000_000));
    expect([answer.status, answer.text]).toEqual([413, early]);
  }
  expect(connections).toEqual(Array(10).fill('POST'));
});

test.for(['closes', 'resets&at=50', 'garbage', 'both-framings', 'long-head'])(
  'with two cores, a failed read is retried once on the other core, and a failed write is not retried: %s',
  async (fault) => {
    const { ask } = await misbehavingStack(timeout, 2);
    const others = [
      [0, 1],
      [1, 0],
    ];
    for (let sent = 0; sent < 4; sent++) {
      for (const method of ['GET', 'HEAD']) {
        const healed = await ask(method, `fault=${fault}&times=1`);
        expect(healed).toMatchObject({ seen: 200, isOwn: true });
        expect(others).toContainEqual(healed.asked);
        const failed = await ask(method, `fault=${fault}`);
        expect(failed.seen).toBe(502);
        expect(others).toContainEqual(failed.asked);
      }
      const write = await ask('POST', `fault=${fault}&times=1`);
      expect([write.seen, write.asked.length]).toEqual([502, 1]);
    }
  },
);
