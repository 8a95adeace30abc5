import { expect, test } from 'vitest';
import { AnswerTooLarge, readAnswer } from '../../gateway/upstream/answer.ts';
import { EndUnknown, Unreadable } from '../../gateway/upstream/faults.ts';
import { chunked, head } from '../support/answers.ts';
import { textOf } from '../support/line.ts';

/**
 * Valid and invalid answers, case by case. If we read a core's bytes differently than it meant them, clients get wrong
 * answers.
 */

const MAX_BODY = 65_536;
const MAX_HEAD = 16_384;

/** Each character is a byte. */
const read = (text: string, isHead = false) => readAnswer(Buffer.from(text, 'latin1'), 0, isHead);
/** An empty answer whose head, without its end, has `size` bytes. */
const headOf = (size: number) => {
  const rest = head('Content-Length: 0', 'X: ').length - 4;
  return head('Content-Length: 0', `X: ${'x'.repeat(size - rest)}`);
};

const OBS_TEXT = Array.from({ length: 128 }, (_, at) => String.fromCharCode(0x80 + at)).join('');
const ALL_BYTES = Array.from({ length: 256 }, (_, at) => String.fromCharCode(at)).join('');
const VISIBLE = ALL_BYTES.slice(0x21, 0x7f);
const TOKEN = "!#$%&'*+-.^_`|~09AZaz";

const LENGTHS: [what: string, text: string, body: string][] = [
  ['a length', `${head('Content-Length: 2')}ab`, 'ab'],
  ['a length of nothing', head('Content-Length: 0'), ''],
  ['a length with zeros in front', `${head('Content-Length: 0002')}ab`, 'ab'],
  ['a length in any letters', `${head('cONTENT-lENGTH: 2')}ab`, 'ab'],
  ['a length without a blank before it', `${head('Content-Length:2')}ab`, 'ab'],
  ['a length with blanks around it', `${head('Content-Length: \t 2 \t ')}ab`, 'ab'],
  ['another answer behind it', `${head('Content-Length: 2')}abHTTP/1.1`, 'ab'],
  ['every byte there is', head('Content-Length: 256') + ALL_BYTES, ALL_BYTES],
  [
    'a body that looks like an answer',
    `${head('Content-Length: 38')}${head('Content-Length: 0')}`,
    head('Content-Length: 0'),
  ],
  ['a short body of all bytes', head('Content-Length: 16384') + ALL_BYTES.repeat(64), ALL_BYTES.repeat(64)],
  ['a long body of all bytes', head('Content-Length: 16640') + ALL_BYTES.repeat(65), ALL_BYTES.repeat(65)],
  ['a body as large as may be', head(`Content-Length: ${MAX_BODY}`) + 'x'.repeat(MAX_BODY), 'x'.repeat(MAX_BODY)],
  ['chunks', chunked('2\r\nab\r\n1\r\nc\r\n0\r\n\r\n'), 'abc'],
  ['no chunk but the last', chunked('0\r\n\r\n'), ''],
  ['a last chunk of several zeros', chunked('1\r\na\r\n000\r\n\r\n'), 'a'],
  [
    'chunk sizes in either case',
    chunked(`a\r\n${'x'.repeat(10)}\r\nB\r\n${'y'.repeat(11)}\r\n0\r\n\r\n`),
    'x'.repeat(10) + 'y'.repeat(11),
  ],
  ['a chunk size with zeros in front', chunked('000002\r\nab\r\n0\r\n\r\n'), 'ab'],
  ['ends of lines in a chunk', chunked('6\r\n\r\n0\r\n\r\r\n0\r\n\r\n'), '\r\n0\r\n\r'],
  ['every byte in a chunk', chunked(`100\r\n${ALL_BYTES}\r\n0\r\n\r\n`), ALL_BYTES],
  ['chunks in any letters', `${head('tRANSFER-eNCODING: CHUNKED')}1\r\na\r\n0\r\n\r\n`, 'a'],
  ['chunks and another answer behind them', chunked('1\r\na\r\n0\r\n\r\nHTTP/1.1'), 'a'],
  [
    'chunks that are as large as may be',
    chunked(`ffff\r\n${'x'.repeat(MAX_BODY - 1)}\r\n1\r\ny\r\n0\r\n\r\n`),
    `${'x'.repeat(MAX_BODY - 1)}y`,
  ],
];

test.for(LENGTHS)('an answer with %s is read completely and not a byte further', ([, text, body]) => {
  const end = text.endsWith('HTTP/1.1') ? text.length - 'HTTP/1.1'.length : text.length;
  const framed = read(text);
  expect(framed).toMatchObject({ answer: { status: 200, isLast: false }, end });
  expect(framed && textOf(framed.answer)).toBe(body);
});

const ASKED_WITH_HEAD = true;
const WITHOUT_BODY: [what: string, text: string, isHead: boolean][] = [
  ['204', 'HTTP/1.1 204 No Content\r\n\r\n', false],
  ['204 with a length', 'HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n', false],
  ['304', 'HTTP/1.1 304 Not Modified\r\n\r\n', false],
  ['304 with a length', 'HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n', false],
  ['304 with chunks', 'HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n', false],
  ['an answer to HEAD', head(), ASKED_WITH_HEAD],
  ['an answer to HEAD with a length', head('Content-Length: 5'), ASKED_WITH_HEAD],
  ['an answer to HEAD with a length beyond what is taken whole', head('Content-Length: 999999999'), ASKED_WITH_HEAD],
  ['an answer to HEAD with chunks', head('Transfer-Encoding: chunked'), ASKED_WITH_HEAD],
];

test.for(WITHOUT_BODY)('%s is read without a body, whatever its headers say', ([, text, isHead]) => {
  expect(read(`${text}HTTP/1.1 200 OK`, isHead)).toMatchObject({ answer: { body: '' }, end: text.length });
});

const STATUS_LINES: [line: string, status: number][] = [
  ['HTTP/1.1 200 OK', 200],
  ['HTTP/1.1 200', 200],
  ['HTTP/1.1 200 ', 200],
  ['HTTP/1.1 200  two words\t', 200],
  ['HTTP/1.1 404 nicht gef\xfcnden', 404],
  ['HTTP/1.1 299 200', 299],
  ['HTTP/1.1 599 x', 599],
];

test.for(STATUS_LINES)('%j is read as status %d', ([line, status]) => {
  expect(read(`${line}\r\nContent-Length: 0\r\n\r\n`)).toMatchObject({ answer: { status } });
});

const HEADERS: [what: string, line: string, name: string, value: string][] = [
  ['nothing in it', 'X:', 'X', ''],
  ['only blanks in it', 'X: \t ', 'X', ''],
  ['blanks around it', 'X: \t a \t b\t ', 'X', 'a \t b'],
  ['every visible character', `X: ${VISIBLE}`, 'X', VISIBLE],
  ['every byte beyond ASCII', `X: ${OBS_TEXT}`, 'X', OBS_TEXT],
  ['what trim() would take for a blank around it', 'X: \xa0a\xa0', 'X', '\xa0a\xa0'],
  ['a colon in it', 'X: a:b', 'X', 'a:b'],
  ['every kind of character in its name', `${TOKEN}: a`, TOKEN, 'a'],
  ['the name of another in its value', 'X: Content-Length: 5', 'X', 'Content-Length: 5'],
  ['a name that begins like another', 'Content-Length-X: 5', 'Content-Length-X', '5'],
];

test.for(HEADERS)('a header with %s is read byte for byte', ([, line, name, value]) => {
  expect(read(head(line, 'Content-Length: 0', line))?.answer.headers).toEqual([
    ...[name, value, 'Content-Length', '0', name, value],
  ]);
});

test.for([
  ['close', true],
  ['CLOSE', true],
  ['keep-alive,close', true],
  ['x , close , y', true],
  ['keep-alive', false],
  ['closed', false],
  ['x close', false],
] as const)('whether an answer with Connection: %s is the last of its connection: %s', ([value, isLast]) => {
  expect(read(head('Content-Length: 0', `Connection: ${value}`))).toMatchObject({ answer: { isLast } });
  expect(read(head('Connection: x', `connection: ${value}`, 'Connection: y', 'Content-Length: 0'))).toMatchObject({
    answer: { isLast },
  });
});

test('any number of interim answers is skipped, whatever they contain', () => {
  const hints = 'HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 102\r\nX:\r\nConnection: keep-alive\r\n\r\n';
  for (const count of [1, 2, 1_000]) {
    const text = `${hints.repeat(count)}${head('Content-Length: 1')}a`;
    expect(read(text)).toMatchObject({
      answer: { status: 200, headers: ['Content-Length', '1'], body: 'a', isLast: false },
      end: text.length,
    });
  }
  expect(read(hints)).toBeUndefined();
});

test('an answer begins where the previous one ended', () => {
  const [first, second] = [`${head('Content-Length: 1')}a`, `${head('Content-Length: 1')}b`];
  const bytes = Buffer.from(first + second, 'latin1');
  expect(readAnswer(bytes, first.length, false)).toMatchObject({ answer: { body: 'b' }, end: bytes.length });
  expect(readAnswer(bytes, bytes.length, false)).toBeUndefined();
});

test('a head is read only up to the maximum length, even before its end has arrived', () => {
  const longest = headOf(MAX_HEAD);
  for (let missing = 0; missing < 10; missing++)
    expect(read(longest.slice(0, longest.length - missing)) === undefined, `${missing}`).toBe(missing > 0);
  expect(() => read(headOf(MAX_HEAD + 1))).toThrow('too long');
  expect(() => read(`HTTP/1.1 200 OK\r\nX: ${'x'.repeat(MAX_HEAD)}`)).toThrow('too long');
  expect(() => read(`HTTP/1.1 103 Early Hints\r\n\r\n${headOf(MAX_HEAD + 1)}`)).toThrow('too long');
});

test('an answer without length or chunks is refused', () => {
  expect(() => read(head())).toThrow(EndUnknown);
  expect(() => read(`${head('Content-Type: text/plain', 'Connection: close')}abc`)).toThrow(EndUnknown);
});

test('an answer that is too large is refused as soon as possible, with its length if known', () => {
  const large = head(`Content-Length: ${MAX_BODY + 1}`);
  const about = { from: large.length, length: MAX_BODY + 1 };
  expect(() => read(large)).toThrow(expect.objectContaining(about));
  const refused = (chunks: string) => () => read(chunked(chunks));
  for (const chunks of ['40001\r\n', 'ffffff\r\n', `3ffff\r\n${'x'.repeat(MAX_BODY - 1)}\r\n2\r\n`])
    expect(refused(chunks), chunks.slice(0, 10)).toThrow(expect.objectContaining({ length: undefined }));
  expect(refused('ffffff\r\n')).toThrow(AnswerTooLarge);
  // Most of it is chunk framing.
  expect(refused('000001\r\nx\r\n'.repeat(60_000))).toThrow(AnswerTooLarge);
});

test('the size of a chunked answer is that of its own bytes, not of all received bytes', () => {
  const behind = 'x'.repeat(4 * MAX_BODY);
  const text = chunked('1\r\na\r\n0\r\n\r\n');
  expect(read(text + behind)).toMatchObject({ answer: { body: 'a' }, end: text.length });
});

test('an unreadable answer is reported as unreadable', () => {
  expect(() => read('SSH-2.0-OpenSSH_9.6\r\n')).toThrow(Unreadable);
});
