import { type Case, CHUNKED, chunk, HIDDEN, head, LAST_CHUNK, one, withBody } from './parts.ts';

/** Byte streams with other bytes before or after a request, protocol switches, and streams that end early. */

const BODY = '{"a":1}';
const GOOD = head([]);
const CUT = [
  ['in the method', 'PO'],
  ['in the head', GOOD.slice(0, 40)],
  ['after the head', head([`Content-Length: ${BODY.length}`])],
  ['in the body', head([`Content-Length: ${BODY.length}`]) + BODY.slice(0, 3)],
  ['in a size', `${head([CHUNKED])}7`],
  ['in a chunk', `${head([CHUNKED])}7\r\n{"a`],
  ['before the last chunk', head([CHUNKED]) + chunk(BODY)],
  ['in the trailers', `${head([CHUNKED]) + chunk(BODY)}0\r\nX: a`],
  ['after a request', withBody(BODY)],
  ['in the second of two', withBody(BODY) + GOOD.slice(0, 40)],
] as const;

const cuts: Case[] = CUT.flatMap(([name, bytes]): Case[] => [
  { name: `cut ${name}`, writes: [bytes], cut: true },
  { name: `silent ${name}`, writes: [bytes.slice(0, -1), bytes.slice(-1)] },
]);

const pipelines: Case[] = [
  one('two at once', withBody(BODY).repeat(2)),
  one('twenty at once', withBody(BODY).repeat(20)),
  one('one with a key, one without', withBody(BODY) + HIDDEN),
  one('one without a key, one with', HIDDEN + withBody(BODY)),
  one('empty lines between', `${withBody(BODY)}\r\n\r\n${withBody(BODY)}`),
  one('line feeds between', `${withBody(BODY)}\n\n${withBody(BODY)}`),
  one('nonsense after', `${withBody(BODY)}nonsense\r\n\r\n${HIDDEN}`),
  one('nonsense in front', `nonsense\r\n\r\n${withBody(BODY)}`),
  one('one after a close', head(['Connection: close']) + withBody(BODY)),
  one('one after HTTP/1.0', head([], '{method} /v1/pets HTTP/1.0') + withBody(BODY)),
  one('one after a body that is too large', withBody('a'.repeat(70_000)) + withBody(BODY)),
  one('one after a refused target', head([], '{method} /v1/../pets HTTP/1.1') + withBody(BODY)),
  one('one after half a chunk', `${head([CHUNKED])}ff\r\n${withBody(BODY)}`),
  one('alternating chunks and lengths', (head([CHUNKED]) + chunk(BODY) + LAST_CHUNK + withBody(BODY)).repeat(3)),
  { name: 'a head in small pieces', writes: withBody(BODY).match(/.{1,24}/gs) ?? [] },
  { name: 'a line break in two pieces', writes: [GOOD.slice(0, -3), GOOD.slice(-3)] },
  { name: 'a body a moment later', writes: [head([CHUNKED]), chunk(BODY), LAST_CHUNK + HIDDEN] },
];

const EXPECTATIONS = ['100-continue', '100-Continue', '100-continue, 100-continue', 'banana', '', '101-switch'];

const expectations: Case[] = EXPECTATIONS.flatMap((expectation): Case[] => {
  const waiting = head([`Expect: ${expectation}`, `Content-Length: ${HIDDEN.length}`]);
  return [
    { name: `Expect: ${expectation}, and the body later`, writes: [waiting, HIDDEN] },
    one(`Expect: ${expectation}, and the body at once`, waiting + HIDDEN),
    one(`Expect: ${expectation}, with chunks`, head([`Expect: ${expectation}`, CHUNKED]) + chunk(HIDDEN) + LAST_CHUNK),
    one(`Expect: ${expectation}, without a body`, head([`Expect: ${expectation}`]) + HIDDEN),
    one(`Expect: ${expectation}, and a claim`, head([`Expect: ${expectation}`, 'X-Caller-Id: admin'])),
  ];
});

const UPGRADES = [
  ['h2c', ['Connection: Upgrade, HTTP2-Settings', 'Upgrade: h2c', 'HTTP2-Settings: AAMAAABkAAQAAP__']],
  ['websocket', ['Connection: Upgrade', 'Upgrade: websocket', 'Sec-WebSocket-Key: eA==', 'Sec-WebSocket-Version: 13']],
  ['TLS', ['Connection: Upgrade', 'Upgrade: TLS/1.2']],
  ['h2c without Connection', ['Upgrade: h2c']],
  ['nothing', ['Connection: Upgrade', 'Upgrade:']],
] as const;

const upgrades: Case[] = UPGRADES.flatMap(([name, headers]): Case[] => [
  one(`an upgrade to ${name}`, head(headers)),
  one(`an upgrade to ${name}, and a request after`, head(headers) + HIDDEN),
  one(`an upgrade to ${name}, with a body`, head([...headers, `Content-Length: ${HIDDEN.length}`]) + HIDDEN),
  one(`an upgrade to ${name}, with chunks`, head([...headers, CHUNKED]) + chunk(HIDDEN) + LAST_CHUNK),
  { name: `an upgrade to ${name}, and frames later`, writes: [head(headers), 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'] },
]);

const others: Case[] = [
  one('the HTTP/2 preface', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00'),
  one('an SMTP greeting', 'EHLO a\r\n'),
  one('a Redis command', '*1\r\n$4\r\nPING\r\n'),
  one('a PROXY line in front', `PROXY TCP4 6.6.6.6 7.7.7.7 1 2\r\n${GOOD}`),
  one('nothing but NUL', '\0'.repeat(4_096)),
  one('nothing but line breaks', '\r\n'.repeat(20_000)),
  one('nothing', ''),
];

export const CONNECTIONS: readonly Case[] = [...cuts, ...pipelines, ...expectations, ...upgrades, ...others];
