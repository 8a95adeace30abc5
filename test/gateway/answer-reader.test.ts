import { expect, test } from 'vitest';
import { AnswerTooLarge, readAnswer } from '../../gateway/upstream/answer.ts';
import { EndUnknown, Unreadable } from '../../gateway/upstream/faults.ts';
import { chunked, head } from '../support/answers.ts';
import { textOf } from '../support/line.ts';

/**
 * Answers at the bounds of what is read. `answer-stream.test.ts` has answers of every other kind: if we read a core's bytes
 * differently than it meant them, clients get wrong answers.
 */

const MAX_BODY = 65_536;
const MAX_HEAD = 16_384;

/** Each character is a byte. */
const read = (text: string) => readAnswer(Buffer.from(text, 'latin1'), 0, false);
/** An empty answer whose head, without its end, has `size` bytes. */
const headOf = (size: number) => {
  const rest = head('Content-Length: 0', 'X: ').length - 4;
  return head('Content-Length: 0', `X: ${'x'.repeat(size - rest)}`);
};

const OBS_TEXT = Array.from({ length: 128 }, (_, at) => String.fromCharCode(0x80 + at)).join('');
const ALL_BYTES = Array.from({ length: 256 }, (_, at) => String.fromCharCode(at)).join('');
const VISIBLE = ALL_BYTES.slice(0x21, 0x7f);
const TOKEN = "!#$%&'*+-.^_`|~09AZaz";

const LARGEST: [what: string, text: string, body: string][] = [
  [
    'a body that looks like an answer',
    `${head('Content-Length: 38')}${head('Content-Length: 0')}`,
    head('Content-Length: 0'),
  ],
  ['a short body of all bytes', head('Content-Length: 16384') + ALL_BYTES.repeat(64), ALL_BYTES.repeat(64)],
  ['a long body of all bytes', head('Content-Length: 16640') + ALL_BYTES.repeat(65), ALL_BYTES.repeat(65)],
  ['a body as large as may be', head(`Content-Length: ${MAX_BODY}`) + 'x'.repeat(MAX_BODY), 'x'.repeat(MAX_BODY)],
  [
    'chunks that are as large as may be',
    chunked(`ffff\r\n${'x'.repeat(MAX_BODY - 1)}\r\n1\r\ny\r\n0\r\n\r\n`),
    `${'x'.repeat(MAX_BODY - 1)}y`,
  ],
];

test.for(LARGEST)('an answer with %s is read completely', ([, text, body]) => {
  const framed = read(text);
  expect(framed).toMatchObject({ answer: { status: 200, isLast: false }, end: text.length });
  expect(framed && textOf(framed.answer)).toBe(body);
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

test('any number of interim answers is skipped, whatever they contain', () => {
  const hints =
    'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 102\r\nX:\r\nConnection: keep-alive\r\n\r\n';
  for (const count of [1, 2, 1_000]) {
    const text = `${hints.repeat(count)}${head('Content-Length: 1')}a`;
    expect(read(text)).toMatchObject({
      answer: { status: 200, headers: ['Content-Length', '1'], body: 'a', isLast: false },
      end: text.length,
    });
  }
  expect(read(hints)).toBeUndefined();
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
