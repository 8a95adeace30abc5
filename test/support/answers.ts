import fc from 'fast-check';
import { type Answer, AnswerTooLarge, readAnswer } from '../../gateway/upstream/answer.ts';
import { EndUnknown, Unreadable } from '../../gateway/upstream/faults.ts';

/** Answers as a core may write them, each with the expected result of reading it. */

/** The head of a valid answer with these header lines. */
export const head = (...lines: string[]) => `${['HTTP/1.1 200 OK', ...lines].join('\r\n')}\r\n\r\n`;

/** A valid answer whose body has these chunks. */
export const chunked = (chunks: string) => head('Transfer-Encoding: chunked') + chunks;

export interface Written {
  readonly bytes: Buffer;
  readonly isHead: boolean;
  /** What the gateway must read. */
  readonly answer: Pick<Answer, 'status' | 'headers' | 'body' | 'isLast'>;
}

const character = (...ranges: [from: number, to: number][]) =>
  fc.oneof(...ranges.map(([min, max]) => fc.integer({ min, max }).map((code) => String.fromCharCode(code))));

const spelled = (name: string) =>
  fc
    .array(fc.boolean(), { minLength: name.length, maxLength: name.length })
    .map((upper) => [...name].map((letter, at) => (upper[at] ? letter.toUpperCase() : letter)).join(''));

const blanks = fc.string({ unit: fc.constantFrom(' ', '\t'), maxLength: 3 });
const text = fc.string({ unit: character([0x09, 0x09], [0x20, 0x7e], [0x80, 0xff]), maxLength: 30 });
const value = text.map((padded) => padded.replace(/^[ \t]+|[ \t]+$/g, ''));
const token = fc.string({
  unit: fc.constantFrom(..."!#$%&'*+-.^_`|~09azAZ"),
  minLength: 1,
  maxLength: 12,
});
/** A header as the gateway must read it, and the line as a core writes it. */
const field = (name: fc.Arbitrary<string>, meant: fc.Arbitrary<string>) =>
  fc.tuple(name, meant, blanks, blanks).map(([key, read, before, behind]) => ({
    read: [key, read],
    line: `${key}:${before}${read}${behind}\r\n`,
  }));
const other = field(fc.oneof(token, spelled('content-type'), spelled('etag')), value);
const connection = field(
  spelled('connection'),
  fc.constantFrom('close', 'Close', 'keep-alive', 'x, CLOSE', 'close ,keep-alive', 'closed', 'x-close'),
);
const CLOSES = new Set(['close', 'Close', 'x, CLOSE', 'close ,keep-alive']);

const interim = fc
  .tuple(fc.integer({ min: 102, max: 199 }), text, fc.array(other, { maxLength: 2 }))
  .map(([status, reason, fields]) => `HTTP/1.1 ${status} ${reason}\r\n${fields.map(({ line }) => line).join('')}\r\n`);

const body = fc.string({ unit: character([0, 255]), maxLength: 60 });

/** A chunk, with its size in upper or lower case and with leading zeros. */
const chunk = fc
  .tuple(fc.string({ unit: character([0, 255]), minLength: 1, maxLength: 40 }), fc.boolean(), fc.nat({ max: 6 }))
  .map(([data, isUpper, width]) => {
    const size = data.length.toString(16).padStart(width, '0');
    return { data, line: `${isUpper ? size.toUpperCase() : size}\r\n${data}\r\n` };
  });

/** The framing of an answer: its header, the bytes after the head, and the body in them. */
const withLength = body.chain((data) =>
  fc
    .tuple(field(spelled('content-length'), fc.constantFrom(`${data.length}`, `00${data.length}`)))
    .map(([header]) => ({ header, behind: data, data, isHead: false, isBare: false })),
);
const withChunks = fc
  .tuple(field(spelled('transfer-encoding'), spelled('chunked')), fc.array(chunk, { maxLength: 4 }))
  .map(([header, chunks]) => ({
    header,
    behind: `${chunks.map(({ line }) => line).join('')}0\r\n\r\n`,
    data: chunks.map(({ data }) => data).join(''),
    isHead: false,
    isBare: false,
  }));
const withoutBody = fc
  .tuple(
    fc.option(field(spelled('content-length'), fc.constantFrom('0', '7', '999999999')), { nil: undefined }),
    fc.boolean(),
  )
  .map(([header, isHead]) => ({ header, behind: '', data: '', isHead, isBare: !isHead }));

const FRAMING = new Set(['content-length', 'transfer-encoding', 'connection']);

/** A valid answer, possibly after interim answers. */
export const written: fc.Arbitrary<Written> = fc
  .record({
    interims: fc.array(interim, { maxLength: 2 }),
    status: fc.integer({ min: 200, max: 599 }),
    bare: fc.constantFrom(204, 304),
    reason: fc.option(text, { nil: undefined }),
    framing: fc.oneof(withLength, withChunks, withoutBody),
    others: fc.array(
      other.filter(({ read: [name = ''] }) => !FRAMING.has(name.toLowerCase())),
      { maxLength: 4 },
    ),
    connection: fc.option(connection, { nil: undefined, freq: 2 }),
    turn: fc.nat(),
  })
  .map(({ interims, status, bare, reason, framing, others, connection, turn }) => {
    const fields = [...others, ...(connection ? [connection] : [])];
    if (framing.header) fields.splice(turn % (fields.length + 1), 0, framing.header);
    // Answers with these statuses have no body, whatever the head says, so an answer with a body needs another status.
    const code = framing.isBare ? bare : !framing.isHead && (status === 204 || status === 304) ? 200 : status;
    const head = `HTTP/1.1 ${code}${reason === undefined ? '' : ` ${reason}`}\r\n${fields.map(({ line }) => line).join('')}\r\n`;
    return {
      bytes: Buffer.from(interims.join('') + head + framing.behind, 'latin1'),
      isHead: framing.isHead,
      answer: {
        status: code,
        headers: fields.flatMap(({ read }) => read),
        body: framing.data,
        isLast: CLOSES.has(connection?.read[1] ?? ''),
      },
    };
  });

/** Text that may change the meaning of an answer when it is inserted at a random position. */
const TELLING = fc.constantFrom(
  ...['\r\n', '\n', '\r', '\0', ' ', '\t', ':', ';', ',', '0', '1', 'f', '-', '+', '0x', '\x7f', '\xff', '\r\n '],
  ...[
    '\r\n\r\n',
    '0\r\n\r\n',
    'HTTP/1.1 200 OK\r\n',
    'HTTP/1.0 ',
    'HTTP/1.1 100 Continue\r\n\r\n',
    'HTTP/1.1 103 \r\n\r\n',
  ],
  ...['\r\nContent-Length: 2', '\r\ncontent-length: 0', '\r\nTransfer-Encoding: chunked', '\r\nConnection: close'],
);

/** An evenly distributed position. By default, fast-check nearly always chooses one of the ends. */
export const anyPlace = fc.noBias(fc.nat({ max: 99_999 })).map((place) => place / 100_000);

/** A change that replaces some bytes at a position with others. */
const change = fc.record({
  place: anyPlace,
  dropped: fc.oneof({ weight: 3, arbitrary: fc.constantFrom(0, 1) }, fc.nat({ max: 20 })),
  put: fc.oneof({ weight: 3, arbitrary: TELLING }, fc.constant(''), character([0, 255])),
});

/** A damaged version of a valid answer. */
export const damaged = fc.tuple(written, fc.array(change, { minLength: 1, maxLength: 2 })).map(([good, changes]) => {
  let bytes = good.bytes.toString('latin1');
  for (const { place, dropped, put } of changes) {
    const at = Math.floor(place * bytes.length);
    bytes = bytes.slice(0, at) + put + bytes.slice(at + dropped);
  }
  return { bytes: Buffer.from(bytes, 'latin1'), isHead: good.isHead };
});

/**
 * The outcome of reading an answer: the answer and its end, undefined, or the name of the fault.
 * @throws anything else
 */
export function outcomeOf(bytes: Buffer, start: number, isHead: boolean) {
  try {
    return readAnswer(bytes, start, isHead);
  } catch (fault) {
    for (const known of [Unreadable, EndUnknown, AnswerTooLarge]) if (fault instanceof known) return known.name;
    throw fault;
  }
}
