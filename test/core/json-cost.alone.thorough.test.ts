import { expect, test } from 'vitest';
import { MAX_VALUES, readBody } from '../../shared/http/body.ts';
import { startServer } from '../../shared/http/server.ts';
import { JsonError, parseJson } from '../../shared/schemas/json.ts';
import { NewPet } from '../../shared/schemas/pet.ts';
import { cleanUp } from '../support/clean-up.ts';
import { connectRaw } from '../support/raw-client.ts';
import { TIMED } from '../support/timed.ts';

/** The most expensive shapes of a 64 kB JSON body, out of about sixty that were measured. */

const BYTES = 65_536;
const MOST_MS = 5;
const TIMES = 15;

/** A value that is nested as deeply as 64 kB allows. */
const nested = (open: string, inner: string, close: string): string => {
  const depth = Math.floor((BYTES - inner.length) / (open.length + close.length));
  return open.repeat(depth) + inner + close.repeat(depth);
};
const list = (item: string, last: string): string =>
  `[${item.repeat(Math.floor((BYTES - last.length - 2) / item.length))}${last}]`;
const members = (nameOf: (at: number) => string, last = '1'): string => {
  let text = '{';
  for (let at = 0; text.length < BYTES - 64; at++) text += `"${nameOf(at)}":1,`;
  return `${text}"last":${last}}`;
};
function objects(): string {
  let text = '{';
  for (let at = 0; text.length < BYTES - 64; at++)
    text += `"${at.toString(36)}":1e1${at % 2_000 === 1_999 ? '},{' : ','}`;
  return `${text}"last":1}`;
}
let named = 0;
/** Nested objects in which each member has a unique name. */
function nestedAnew(levels: number, membersEach: number, value: string): string {
  const name = () => `"${(1_000_000_000 + named++).toString(36)}":`;
  let text = '';
  for (let level = 0; level < levels; level++)
    text += `{${Array.from({ length: membersEach - 1 }, () => `${name()}${value},`).join('')}${name()}`;
  return `${text}${value}${'}'.repeat(levels)}`;
}
/** A list of objects, each with new member names. */
function listAnew(item: () => string): string {
  let text = '[';
  for (let next = item(); text.length + next.length < BYTES - 8; next = item()) text += `${next},`;
  return `${text}${'1,'.repeat((BYTES - 8 - text.length) >> 1)}1]`;
}
const pyramid = `${'['.repeat(31)}${']'.repeat(31)},`;

/** Functions return a different string on each call. */
const SHAPES: readonly [name: string, text: string | (() => string)][] = [
  ['arrays in arrays', nested('[', '1e5', ']')],
  ['objects in objects', nested('{"":', '1e5', '}')],
  ['alternating objects and arrays', nested('{"a":[', '1e5', ']}')],
  ['lists 32 levels deep, side by side', list(pyramid, '1e5')],
  ['integers, and one number in exponent notation', list('1,', '1e1')],
  ['zeros, and one number in exponent notation', list('0,', '1e1')],
  ['empty strings, and one number in exponent notation', list('"",', '1e1')],
  ['empty objects, and one number in exponent notation', list('{},', '1e1')],
  ['small objects, and one number in exponent notation', list('{"":1},', '1e1')],
  ['exponents', list('1e5,', '1')],
  ['negative exponents', list('1e-9,', '1')],
  ['fractions with exponents', list('0.1e1,', '1')],
  ['integers of 16 digits', list('1234567890123456,', '1')],
  ['one long number', '1'.repeat(BYTES)],
  ['zeros between two digits', `1${'0'.repeat(BYTES - 2)}1`],
  ['many members', members((at) => at.toString(36), '1e5')],
  ['many members with escaped names', members((at) => `\\n${at.toString(36)}`)],
  ['many members with numbers for names', members((at) => String((at * 1_000_003) % 4_294_967_291))],
  ['objects of 2,000 members', `[${objects()}]`],
  ...[1, 3, 4, 8].map((each): [string, () => string] => [
    `objects 30 levels deep with ${each} new names each`,
    () => listAnew(() => nestedAnew(30, each, '1e18')),
  ]),
  ...[1, 3, 16].map((each): [string, () => string] => [
    `small objects with ${each} new names each`,
    () => listAnew(() => nestedAnew(1, each, '1e18')),
  ]),
  ['a duplicate at the end', members((at) => (at === 0 ? 'last' : at.toString(36)))],
  ['backslashes', `"${'\\\\'.repeat(BYTES / 2 - 1)}"`],
  ['escaped quotes', `"${'\\"'.repeat(BYTES / 2 - 1)}"`],
  ['strings of backslashes', list('"\\\\",', '""')],
  ['white space', `${' '.repeat(BYTES - 1)}1`],
  ['white space before a colon', `{"a"${' '.repeat(BYTES - 6)}:1}`],
  ['a list with an invalid end', list('1e5,', 'x')],
];

function milliseconds(bytes: Buffer): number {
  const before = process.threadCpuUsage();
  try {
    NewPet.safeParse(parseJson(bytes, MAX_VALUES));
  } catch (fault) {
    if (!(fault instanceof JsonError)) throw fault;
  }
  return spentSince(before);
}

function spentSince(before: NodeJS.CpuUsage): number {
  const { user, system } = process.threadCpuUsage(before);
  return (user + system) / 1_000;
}

test.for(SHAPES)('a body with 64 kB of %s is parsed in at most 5 ms', TIMED, ([, text]) => {
  const texts = Array.from({ length: TIMES }, () => Buffer.from(typeof text === 'string' ? text : text()));
  for (const { length } of texts) expect(length).toBeGreaterThan(BYTES - 256);
  const took = texts.map(milliseconds).sort((a, b) => a - b);
  expect(took[Math.floor(TIMES / 2)]).toBeLessThan(MOST_MS);
});

test.for(['a', '\u{1f600}'])('a name of 64 kB of %s costs no more to refuse than to parse', TIMED, (character) => {
  const bytes = Buffer.from(JSON.stringify({ name: character.repeat(BYTES / Buffer.byteLength(character)) }));
  const cost = (times: number, act: () => void): number => {
    const before = process.threadCpuUsage();
    for (let time = 0; time < times; time++) act();
    return spentSince(before);
  };
  const values = Array.from({ length: 200 }, () => parseJson(bytes));
  const parsing = cost(values.length, () => parseJson(bytes));
  expect(cost(values.length, () => NewPet.safeParse(values.pop()))).toBeLessThan(parsing);
});

const PET = '{"name":"a","categoryId":1}';
const chunk = (text: string): string => `${text.length.toString(16)}\r\n${text}\r\n`;
const chunksOf = (text: string): string =>
  chunk(PET) + chunk(text).repeat((BYTES - PET.length) / text.length) + chunk('');

test.for([
  ['one chunk', chunk(PET.padEnd(BYTES)) + chunk('')],
  ['one chunk of empty lines', chunk(PET.padEnd(BYTES, '\r\n')) + chunk('')],
  ['chunks of a byte', chunksOf(' ')],
  ['chunks of an empty line', chunksOf('\r\n\r\n')],
  ['chunks of two bytes, each with an extension', chunksOf('  ').replaceAll('\r\n  ', ';a\r\n  ')],
  ['chunks of 128 bytes', chunksOf(' '.repeat(128))],
])('a body of 64 kB in %s is read in at most 5 ms', TIMED, async ([, body]) => {
  const server = await startServer({
    host: '127.0.0.1',
    port: 0,
    async onRequest(request, response) {
      await readBody(NewPet, request, response, BYTES).catch(() => {});
      response.shouldKeepAlive = false;
      response.end();
    },
  });
  cleanUp(() => server.stop({ graceMs: 0 }));
  const head = 'POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n';
  const took: number[] = [];
  for (let time = 0; time < TIMES; time++) {
    const { socket, closed } = await connectRaw(server.url);
    // The client's time is included.
    const before = process.threadCpuUsage();
    socket.end(head + body);
    await closed;
    took.push(spentSince(before));
  }
  expect(took.sort((a, b) => a - b)[Math.floor(TIMES / 2)]).toBeLessThan(MOST_MS);
});
