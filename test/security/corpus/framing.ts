import { type Case, CHUNKED, chunk, HIDDEN, head, LAST_CHUNK, length, one, withBody } from './parts.ts';

/**
 * All ways to state where a body ends, alone and in conflict. Where two parsers would disagree, a request is hidden.
 */

type Named<T> = readonly [name: string, value: T];

/** Headers for a body of n bytes, correct or not. */
const LENGTHS: readonly Named<(n: number) => readonly string[]>[] = [
  ['no length', () => []],
  ['a length', (n) => [`Content-Length: ${n}`]],
  ['a length of 0', () => ['Content-Length: 0']],
  ['a length twice', (n) => [`Content-Length: ${n}`, `Content-Length: ${n}`]],
  ['two lengths', (n) => [`Content-Length: ${n}`, 'Content-Length: 0']],
  ['two lengths, oddly cased', (n) => ['content-length: 0', `CONTENT-LENGTH: ${n}`]],
  ['a list of one length', (n) => [`Content-Length: ${n}, ${n}`]],
  ['a list of lengths', (n) => [`Content-Length: 0, ${n}`]],
  ['a length with a sign', (n) => [`Content-Length: +${n}`]],
  ['a negative length', (n) => [`Content-Length: -${n}`]],
  ['a length in hexadecimal', (n) => [`Content-Length: 0x${n.toString(16)}`]],
  ['a length with a space', (n) => [`Content-Length: ${n} 0`]],
  ['a length with a fraction', (n) => [`Content-Length: ${n}.0`]],
  ['a length after a vertical tab', (n) => [`Content-Length: \v${n}`]],
  ['a length beyond 2^64', (n) => [`Content-Length: ${18446744073709551616n + BigInt(n)}`]],
  ['an empty length', () => ['Content-Length:']],
  ['a length with an underscore', (n) => [`Content_Length: ${n}`]],
];

const CODINGS: readonly Named<readonly string[]>[] = [
  ['no coding', []],
  ['chunks', [CHUNKED]],
  ['chunks, oddly cased', ['tRANSFER-eNCODING: ChUnKeD']],
  ['chunks twice', [CHUNKED, CHUNKED]],
  ['a list of chunks', ['Transfer-Encoding: chunked, chunked']],
  ['chunks after a comma', ['Transfer-Encoding: ,chunked']],
  ['chunks before a comma', ['Transfer-Encoding: chunked,']],
  ['gzip, then chunks', ['Transfer-Encoding: gzip, chunked']],
  ['chunks, then identity', ['Transfer-Encoding: chunked, identity']],
  ['identity', ['Transfer-Encoding: identity']],
  ['chunks with a parameter', ['Transfer-Encoding: chunked;a=b']],
  ['chunks in quotes', ['Transfer-Encoding: "chunked"']],
  ['chunks after a vertical tab', ['Transfer-Encoding: \vchunked']],
  ['chunks after a tab', ['Transfer-Encoding:\tchunked']],
  ['xchunked', ['Transfer-Encoding: xchunked']],
  ['an empty coding', ['Transfer-Encoding:']],
  ['chunks with a space before the colon', ['Transfer-Encoding : chunked']],
  ['chunks in a folded line', ['Transfer-Encoding:', ' chunked']],
  ['chunks after a bare line feed', ['X: x\nTransfer-Encoding: chunked']],
  ['chunks after a bare carriage return', ['X: x\rTransfer-Encoding: chunked']],
  ['chunks with an underscore', ['Transfer_Encoding: chunked']],
];

/**
 * Parsers that use the length see the hidden request as part of the body, and those that use chunks see it after the
 * body, or the other way round.
 */
const BODIES: readonly Named<{ readonly text: string; readonly length: number }>[] = [
  ['hidden from lengths', { text: LAST_CHUNK + HIDDEN, length: LAST_CHUNK.length + HIDDEN.length }],
  ['hidden from chunks', { text: chunk(HIDDEN) + LAST_CHUNK, length: `${HIDDEN.length.toString(16)}\r\n`.length }],
];

const contradictions: Case[] = LENGTHS.flatMap(([lengthName, lengthOf]) =>
  CODINGS.flatMap(([codingName, coding]) =>
    BODIES.flatMap(([bodyName, { text, length }]) => {
      const name = `${lengthName} and ${codingName}, ${bodyName}`;
      const lengths = lengthOf(length);
      const lengthFirst = one(name, head([...lengths, ...coding]) + text);
      if (lengths.length === 0 || coding.length === 0) return [lengthFirst];
      return [lengthFirst, one(`${name}, coding first`, head([...coding, ...lengths]) + text)];
    }),
  ),
);

const chunkSyntax: Case[] = (
  [
    ['with an extension', `5;a=b\r\n{"a":\r\n2\r\n1}\r\n${LAST_CHUNK}`],
    ['with an extension in quotes', `7;a="\r\n"\r\n{"a":1}\r\n${LAST_CHUNK}`],
    ['with a line feed in an extension', `7;a\nb\r\n{"a":1}\r\n${LAST_CHUNK}`],
    ['with an extension of 20 kB', `7;${'a'.repeat(20_000)}\r\n{"a":1}\r\n${LAST_CHUNK}`],
    ['with 2,000 extensions', `${'1;a=b\r\na\r\n'.repeat(2_000)}${LAST_CHUNK}`],
    ['with a bare line feed after a size', `7\n{"a":1}\r\n${LAST_CHUNK}`],
    ['with a bare line feed after data', `7\r\n{"a":1}\n${LAST_CHUNK}`],
    ['with a bare carriage return after a size', `7\r{"a":1}\r\n${LAST_CHUNK}`],
    ['without a line end after data', `7\r\n{"a":1}${LAST_CHUNK}`],
    ['with a size of 0x7', `0x7\r\n{"a":1}\r\n${LAST_CHUNK}`],
    ['with a size of +7', `+7\r\n{"a":1}\r\n${LAST_CHUNK}`],
    ['with a size of -7', `-7\r\n{"a":1}\r\n${LAST_CHUNK}`],
    ['with a size of 17 digits', `00000000000000007\r\n{"a":1}\r\n${LAST_CHUNK}`],
    ['with a size beyond 2^64', `10000000000000007\r\n{"a":1}\r\n${LAST_CHUNK}`],
    ['with an empty size', `\r\n{"a":1}\r\n${LAST_CHUNK}`],
    ['with a size after a space', ` 7\r\n{"a":1}\r\n${LAST_CHUNK}`],
    ['with a space after a size', `7 \r\n{"a":1}\r\n${LAST_CHUNK}`],
    ['with a size that is too small', `3\r\n${HIDDEN}\r\n${LAST_CHUNK}`],
    ['with a size that is too large', `ff\r\n{"a":1}\r\n${LAST_CHUNK}${HIDDEN}`],
    ['without a last chunk', chunk('{"a":1}')],
    ['with a last chunk of 000', `${chunk('{"a":1}')}000\r\n\r\n`],
    ['with an extension of the last chunk', `${chunk('{"a":1}')}0;${HIDDEN.slice(0, 16)}\r\n\r\n`],
    ['ending in bare line feeds', `${chunk('{"a":1}')}0\n\n`],
    ['of one byte each', [...'{"a":1}'].map(chunk).join('') + LAST_CHUNK],
  ] as const
).map(([name, body]) => one(`chunks ${name}`, head([CHUNKED]) + body + HIDDEN));

const trailers: Case[] = (
  [
    ['Authorization', 'Authorization: Bearer x'],
    ['Content-Length', 'Content-Length: 99'],
    ['Transfer-Encoding', 'Transfer-Encoding: chunked'],
    ['Host', 'Host: b'],
    ['X-Caller-Id', 'X-Caller-Id: admin'],
    ['a request', HIDDEN.trimEnd()],
    ['no header', 'nonsense'],
    ['a folded line', 'X: a\r\n b'],
    ['a bare line feed', 'X: a\nY: b'],
    ['20 kB', `X: ${'a'.repeat(20_000)}`],
    ['2,000 headers', 'X: a\r\n'.repeat(2_000).trimEnd()],
  ] as const
).map(([name, trailer]) =>
  one(`a trailer: ${name}`, `${head(['Trailer: X', CHUNKED])}${chunk('{"a":1}')}0\r\n${trailer}\r\n\r\n`),
);

const bodies: Case[] = [
  one('a body with its length', withBody('{"a":1}')),
  one('a body that is a request', withBody(HIDDEN)),
  one('a body longer than its length', head(['Content-Length: 3']) + HIDDEN),
  one('a body of 65,537 bytes', withBody('a'.repeat(65_537))),
  one('a body of 65,537 bytes in chunks', head([CHUNKED]) + chunk('a'.repeat(65_537)) + LAST_CHUNK),
  one('a length of 10 GB', `${head(['Content-Length: 10000000000'])}{"a":1}`),
  one('a compressed body', withBody('\x1f\x8b\x08', ['Content-Encoding: gzip'])),
  one('a body compressed twice', withBody('\x1f\x8b\x08', ['Content-Encoding: identity', 'Content-Encoding: gzip'])),
  one('chunks in HTTP/1.0', head([CHUNKED], '{method} /v1/pets HTTP/1.0') + chunk(HIDDEN) + LAST_CHUNK),
  one('a length in HTTP/1.0', head([length(HIDDEN)], '{method} /v1/pets HTTP/1.0') + HIDDEN),
  one('a body that ends with the connection', head(['Connection: close']) + HIDDEN),
];

export const FRAMING: readonly Case[] = [...contradictions, ...chunkSyntax, ...trailers, ...bodies];
