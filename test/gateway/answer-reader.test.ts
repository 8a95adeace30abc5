import { expect, test } from 'vitest';
import { AnswerTooLarge, readAnswer } from '../../gateway/upstream/answer.ts';
import { EndUnknown, Unreadable } from '../../gateway/upstream/faults.ts';
import { chunked, head } from '../support/answers.ts';
import { textOf } from '../support/line.ts';

/**
 * Responses of the maximum size are read. Responses that other parsers may read differently are refused, because
 * clients could receive the wrong ones. `answer-stream.test.ts` tests all other responses.
 */

const MAX_BODY = 65_536;
const MAX_HEAD = 16_384;

/** Reads a string in which each character stands for one byte. */
const read = (text: string) => readAnswer(Buffer.from(text, 'latin1'), 0, false);
/** Returns a response without a body whose head has `size` bytes, not counting the empty line at its end. */
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
    'a body that looks like a response',
    `${head('Content-Length: 38')}${head('Content-Length: 0')}`,
    head('Content-Length: 0'),
  ],
  ['a short body of all bytes', head('Content-Length: 16384') + ALL_BYTES.repeat(64), ALL_BYTES.repeat(64)],
  ['a long body of all bytes', head('Content-Length: 16640') + ALL_BYTES.repeat(65), ALL_BYTES.repeat(65)],
  ['a body of the maximum size', head(`Content-Length: ${MAX_BODY}`) + 'x'.repeat(MAX_BODY), 'x'.repeat(MAX_BODY)],
  [
    'chunks of the maximum size',
    chunked(`ffff\r\n${'x'.repeat(MAX_BODY - 1)}\r\n1\r\ny\r\n0\r\n\r\n`),
    `${'x'.repeat(MAX_BODY - 1)}y`,
  ],
  ['trailers', chunked('2\r\nab\r\n0\r\nX: a\r\nY:\r\n\r\n'), 'ab'],
];

test.for(LARGEST)('a response with %s is read completely', ([, text, body]) => {
  const framed = read(text);
  expect(framed).toMatchObject({ answer: { status: 200, isLast: false }, end: text.length });
  expect(framed && textOf(framed.answer)).toBe(body);
});

const HEADERS: [what: string, line: string, name: string, value: string][] = [
  ['an empty value', 'X:', 'X', ''],
  ['a value of whitespace only', 'X: \t ', 'X', ''],
  ['whitespace around its value', 'X: \t a \t b\t ', 'X', 'a \t b'],
  ['every visible character in its value', `X: ${VISIBLE}`, 'X', VISIBLE],
  ['every byte beyond ASCII in its value', `X: ${OBS_TEXT}`, 'X', OBS_TEXT],
  ['no-break spaces around its value, which trim() would remove', 'X: \xa0a\xa0', 'X', '\xa0a\xa0'],
  ['a colon in its value', 'X: a:b', 'X', 'a:b'],
  ['every kind of character in its name', `${TOKEN}: a`, TOKEN, 'a'],
  ['the name of another header in its value', 'X: Content-Length: 5', 'X', 'Content-Length: 5'],
  ['a name that begins with the name of another', 'Content-Length-X: 5', 'Content-Length-X', '5'],
];

test.for(HEADERS)('a header with %s is read byte for byte', ([, line, name, value]) => {
  expect(read(head(line, 'Content-Length: 0', line))?.answer.headers).toEqual([
    ...[name, value, 'Content-Length', '0', name, value],
  ]);
});

test('any number of interim responses is skipped, whatever their headers', () => {
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

test('a head that exceeds the maximum length is refused, even before its end has arrived', () => {
  const longest = headOf(MAX_HEAD);
  for (let missing = 0; missing < 10; missing++)
    expect(read(longest.slice(0, longest.length - missing)) === undefined, `${missing}`).toBe(missing > 0);
  expect(() => read(headOf(MAX_HEAD + 1))).toThrow('too long');
  expect(() => read(`HTTP/1.1 200 OK\r\nX: ${'x'.repeat(MAX_HEAD)}`)).toThrow('too long');
  expect(() => read(`HTTP/1.1 103 Early Hints\r\n\r\n${headOf(MAX_HEAD + 1)}`)).toThrow('too long');
});

test('a response without a length or chunks is refused', () => {
  expect(() => read(head())).toThrow(EndUnknown);
  expect(() => read(`${head('Content-Type: text/plain', 'Connection: close')}abc`)).toThrow(EndUnknown);
});

test('a response that is too large is refused before its body is read; the error has its length if known', () => {
  const large = head(`Content-Length: ${MAX_BODY + 1}`);
  const about = { from: large.length, head: expect.objectContaining({ length: MAX_BODY + 1 }) };
  expect(() => read(large)).toThrow(expect.objectContaining(about));
  const refused = (chunks: string) => () => read(chunked(chunks));
  for (const chunks of ['40001\r\n', 'ffffff\r\n', `3ffff\r\n${'x'.repeat(MAX_BODY - 1)}\r\n2\r\n`])
    expect(refused(chunks), chunks.slice(0, 10)).toThrow(
      expect.objectContaining({ head: expect.objectContaining({ length: undefined }) }),
    );
  expect(refused('ffffff\r\n')).toThrow(AnswerTooLarge);
  // Most of it is chunk framing.
  expect(refused('000001\r\nx\r\n'.repeat(60_000))).toThrow(AnswerTooLarge);
});

test('bytes that follow a chunked response do not count toward its size', () => {
  const behind = 'x'.repeat(4 * MAX_BODY);
  const text = chunked('1\r\na\r\n0\r\n\r\n');
  expect(read(text + behind)).toMatchObject({ answer: { body: 'a' }, end: text.length });
});

const withLine = (line: string) => `${head('Content-Length: 2', line)}ab`;
const withLength = (length: string) => `${head(`Content-Length: ${length}`)}ab`;
const withStatus = (line: string) => `${line}\r\nContent-Length: 2\r\n\r\nab`;
const withCoding = (coding: string) => `${head(`Transfer-Encoding: ${coding}`)}2\r\nab\r\n0\r\n\r\n`;
const named = (text: string) => JSON.stringify(text);

/** Control characters except the tab. */
const CONTROLS = [...Array(32).keys(), 0x7f].filter((code) => code !== 0x09).map((code) => String.fromCharCode(code));
const NOT_IN_NAMES = [...'\t "(),/;<=>?@[\\]{}\x7f\x80\xff'];

const REFUSED: Readonly<Record<string, readonly (readonly [what: string, text: string])[]>> = {
  'It is not HTTP/1.1.': [
    ...'HTTP/1.0|HTTP/2|HTTP/2.0|HTTP/1.2|HTTP/0.9|HTTP/01.1|http/1.1|Http/1.1|HTTP/1.1\t|HTTP 1.1|ICY|RTSP/1.1'
      .split('|')
      .map((version) => [named(version), withStatus(`${version} 200 OK`)] as const),
    ['CR LF before it', `\r\n${withLength('2')}`],
    ['LF before it', `\n${withLength('2')}`],
    ['a space before it', ` ${withLength('2')}`],
    ['a byte order mark before it', `\xef\xbb\xbf${withLength('2')}`],
    ['a request in its place', 'GET / HTTP/1.1\r\nHost: a\r\n\r\n'],
    ['an SSH greeting in its place', 'SSH-2.0-OpenSSH_9.6\r\n'],
    ['a stray character after an interim response', `HTTP/1.1 103 x\r\n\r\nx${withLength('2')}`],
  ],
  'Its head is malformed.': [
    ...['099', '600', '999', '000', '20', '2000', '+20', '-20', '2x0', '0xC', ' 200', '200.', '20 0', ''].map(
      (status) => [`status ${named(status)}`, withStatus(`HTTP/1.1 ${status} OK`)] as const,
    ),
    ['a status without a space before the reason', withStatus('HTTP/1.1 200OK')],
    ['a status with a tab after it', withStatus('HTTP/1.1 200\tOK')],
    ['no status', withStatus('HTTP/1.1 ')],
    ...CONTROLS.flatMap((control) => [
      [`${named(control)} in a value`, withLine(`X: a${control}b`)] as const,
      [`${named(control)} before a value`, withLine(`X:${control}b`)] as const,
      [`${named(control)} after a value`, withLine(`X: b${control}`)] as const,
      [`${named(control)} in a name`, withLine(`X${control}Y: b`)] as const,
      [`${named(control)} in the reason`, withStatus(`HTTP/1.1 200 O${control}K`)] as const,
    ]),
    ...NOT_IN_NAMES.map((character) => [`${named(character)} in a name`, withLine(`X${character}Y: b`)] as const),
    ['a folded line', withLine('X: a\r\n b')],
    ['a line folded with a tab', withLine('X: a\r\n\tb')],
    ['a folded Content-Length', head('Content-Length:\r\n 2')],
    ['a folded line after the status line', head(' X: a')],
    ['a space before a colon', withLine('X : a')],
    ['a space before the colon of Content-Length', `${head('Content-Length : 2')}ab`],
    ['a tab before a colon', withLine('X\t: a')],
    ['a header without a name', withLine(': a')],
    ['a header without a colon', withLine('X')],
    ['a line that ends in LF alone', `${head('X: a\nContent-Length: 2')}ab`],
    ['a line that ends in CR alone', `${head('X: a\rContent-Length: 2')}ab`],
    ['a line that ends in CR CR LF', `${head('X: a\r\r\nContent-Length: 2')}ab`],
    ['a status line that ends in LF alone', 'HTTP/1.1 200 OK\nContent-Length: 2\r\n\r\nab'],
    ['a head that ends in LF LF', `HTTP/1.1 200 OK\r\nContent-Length: 2\n\nab${withLength('2')}`],
    ['a head that ends in LF CR LF', `HTTP/1.1 200 OK\r\nContent-Length: 2\n\r\nab${withLength('2')}`],
    ['a malformed interim response before it', `HTTP/1.1 103 x\r\nX : a\r\n\r\n${withLength('2')}`],
  ],
  'Its length is invalid.': [
    ...'|+2|-2|-0|0x2|2 2|2, 2|2,3|2,|2.0|2e0|2;|1_0|"2"|two|\xa02|\xb2'
      .split('|')
      .map((length) => [`length ${named(length)}`, withLength(length)] as const),
    ['a length of 16 digits', withLength('0000000000000002')],
    ['a length beyond what a number can hold', withLength('9'.repeat(400))],
    ['the same length twice', `${head('Content-Length: 2', 'Content-Length: 2')}ab`],
    ['two lengths', `${head('Content-Length: 2', 'content-length: 1')}ab`],
    ['two lengths, one of them 0', `${head('Content-Length: 0', 'X: a', 'Content-Length: 2')}ab`],
  ],
  'It has both a length and chunks.': [
    ['a length and chunks', `${head('Content-Length: 2', 'Transfer-Encoding: chunked')}2\r\nab\r\n0\r\n\r\n`],
    ['chunks and a length', `${head('Transfer-Encoding: chunked', 'Content-Length: 2')}2\r\nab\r\n0\r\n\r\n`],
    ['chunks and a length of 0', `${head('Transfer-Encoding: chunked', 'Content-Length: 0')}0\r\n\r\n`],
  ],
  'It has an unknown transfer coding.': [
    ...'|identity|gzip|gzip, chunked|chunked, gzip|chunked, chunked|chunked,|,chunked|xchunked|chunkedx|chunked;q=1|"chunked"|\xa0chunked|chun ked'
      .split('|')
      .map((coding) => [`coding ${named(coding)}`, withCoding(coding)] as const),
    [
      'the same coding twice',
      `${head('Transfer-Encoding: chunked', 'Transfer-Encoding: chunked')}2\r\nab\r\n0\r\n\r\n`,
    ],
    ['a second coding', `${head('Transfer-Encoding: chunked', 'Transfer-Encoding: gzip')}2\r\nab\r\n0\r\n\r\n`],
    ['a coding and a length', `${head('Content-Length: 2', 'Transfer-Encoding: gzip')}ab`],
  ],
  'It has a malformed chunk.': [
    ...'| 2|2 |\t2|+2|-2|-1|0x2|2h|g|2\r|0000002|ffffffff|ffffffffffffffff|2.|2,|\xa02'
      .split('|')
      .map((size) => [`size ${named(size)}`, chunked(`${size}\r\nab\r\n0\r\n\r\n`)] as const),
    ...[';', ';x', ';x=y', ';x="y\r\n"', ' ;x', '\n;x'].map(
      (extension) => [`extension ${named(extension)}`, chunked(`2${extension}\r\nab\r\n0\r\n\r\n`)] as const,
    ),
    ['an extension of the last chunk', chunked('2\r\nab\r\n0;x\r\n\r\n')],
    ['a size that ends in LF alone', chunked('2\nab\r\n0\r\n\r\n')],
    ['a size without an end', chunked('00000000')],
    ['a chunk that is longer than its size', chunked('2\r\nabc\r\n0\r\n\r\n')],
    ['a chunk that is shorter than its size', chunked('3\r\nab\r\n0\r\n\r\n')],
    ['a chunk without an end', chunked('2\r\nab0\r\n\r\n')],
    ['a chunk that ends in LF alone', chunked('2\r\nab\n0\r\n\r\n')],
    ['a chunk that ends in CR alone', chunked('2\r\nab\r0\r\n\r\n')],
    ['a chunk that ends in two other bytes', chunked('2\r\nabxx0\r\n\r\n')],
    ['Content-Length as a trailer', chunked('2\r\nab\r\n0\r\nContent-Length: 2\r\n\r\n')],
    ['Transfer-Encoding as a trailer', chunked('2\r\nab\r\n0\r\ntransfer-encoding: chunked\r\n\r\n')],
    ['Connection as a trailer', chunked('2\r\nab\r\n0\r\nConnection: close\r\n\r\n')],
    ['a trailer with a control character', chunked('2\r\nab\r\n0\r\nX: \0\r\n\r\n')],
    ['a trailer without a colon', chunked('2\r\nab\r\n0\r\nX\r\n\r\n')],
    ['a folded trailer', chunked('2\r\nab\r\n0\r\nX: a\r\n b\r\n\r\n')],
    ['a trailer that ends in LF alone', chunked('2\r\nab\r\n0\r\nX: a\n\r\n\r\n')],
    ['trailers without an end', chunked(`2\r\nab\r\n0\r\n${'X: a\r\n'.repeat(4_000)}`)],
    ['another response in place of the last line end', chunked('2\r\nab\r\n0\r\nHTTP/1.1 200 OK\r\n\r\n')],
  ],
  'An interim response announces a body or the end of the connection.': [
    ['an interim response with Connection: close', `HTTP/1.1 103 x\r\nConnection: close\r\n\r\n${withLength('2')}`],
    ['an interim response with a length', `HTTP/1.1 150 x\r\nContent-Length: 2\r\n\r\n${withLength('2')}`],
    ['an interim response with a length of 0', `HTTP/1.1 103 x\r\nContent-Length: 0\r\n\r\n${withLength('2')}`],
    ['an interim response with chunks', `HTTP/1.1 150 x\r\nTransfer-Encoding: chunked\r\n\r\n${withLength('2')}`],
  ],
  'No client requested another protocol.': [
    ['101 Switching Protocols', 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n'],
    ['101 after an interim response', 'HTTP/1.1 103 x\r\n\r\nHTTP/1.1 101 x\r\n\r\n'],
  ],
};

for (const [why, cases] of Object.entries(REFUSED))
  test.for(cases)(`a response with %s is refused: ${why}`, ([, text]) => {
    expect(() => read(text)).toThrow(new Unreadable(why));
  });

test('the framing of a response is checked even if it has no body', () => {
  const two = head('Content-Length: 2', 'Content-Length: 3');
  expect(() => readAnswer(Buffer.from(two), 0, true)).toThrow(Unreadable);
  expect(() => read(two.replace('200', '304'))).toThrow(Unreadable);
});
