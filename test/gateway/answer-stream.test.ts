import fc from 'fast-check';
import { Client, type Dispatcher } from 'undici';
import { expect, test } from 'vitest';
import { BodyReader, readAnswer } from '../../gateway/upstream/answer.ts';
import { Unreadable } from '../../gateway/upstream/faults.ts';
import { anyPlace, damaged, outcomeOf, type Written, written } from '../support/answers.ts';
import { cleanUp } from '../support/clean-up.ts';
import { bareCore } from '../support/faulty-core.ts';
import { thoroughly } from '../support/thorough.ts';

/** Tests how consecutive responses are read from a stream that is split at random positions. */

const numRuns = thoroughly(600, 300);
const places = fc.array(anyPlace, { maxLength: 20 });

/** Returns lengths at which the stream is cut: at these fractions, and around the end of each response. */
const lengths = (total: number, some: readonly number[], ends: readonly number[]) =>
  [...some.map((part) => Math.floor(part * total)), ...ends.flatMap((end) => [end - 2, end - 1, end, end + 1])]
    .filter((length) => length >= 0 && length <= total)
    .sort((a, b) => a - b);

test('consecutive responses are read as written, wherever their stream is split', () => {
  fc.assert(
    fc.property(fc.array(written, { minLength: 1, maxLength: 5 }), places, (answers, cuts) => {
      const stream = Buffer.concat(answers.map(({ bytes }) => bytes));
      const ends = answers.map((_, at) => answers.slice(0, at + 1).reduce((sum, { bytes }) => sum + bytes.length, 0));
      let start = 0;
      for (const [at, { isHead, answer }] of answers.entries()) {
        const end = ends[at] as number;
        for (const length of lengths(stream.length, cuts, ends).filter((there) => there >= start)) {
          const read = readAnswer(stream.subarray(0, length), start, isHead);
          if (length < end) expect(read).toBeUndefined();
          else expect(read).toMatchObject({ answer, end });
        }
        start = end;
      }
    }),
    { numRuns },
  );
});

test('a damaged response is read completely, considered incomplete, or refused with a known error', () => {
  const seen = new Map<string, number>();
  fc.assert(
    fc.property(fc.array(damaged, { minLength: 1, maxLength: 3 }), (answers) => {
      const stream = Buffer.concat(answers.map(({ bytes }) => bytes));
      for (let at = 0, turn = 0; at < stream.length; turn++) {
        const read = outcomeOf(stream, at, answers[turn % answers.length]?.isHead === true);
        const what = typeof read === 'object' ? 'read' : (read ?? 'waited for');
        seen.set(what, (seen.get(what) ?? 0) + 1);
        if (typeof read !== 'object') break;
        expect(read.end).toBeGreaterThan(at);
        expect(read.end).toBeLessThanOrEqual(stream.length);
        at = read.end;
      }
    }),
    { numRuns: numRuns * 4 },
  );
  for (const what of ['read', 'waited for', 'Unreadable', 'EndUnknown'])
    expect(seen.get(what), what).toBeGreaterThan(0);
});

test('how a damaged response is read does not depend on how many of its bytes have arrived', () => {
  fc.assert(
    fc.property(damaged, places, ({ bytes, isHead }, cuts) => {
      const whole = outcomeOf(bytes, 0, isHead);
      const ends = typeof whole === 'object' ? [whole.end] : [];
      for (const length of lengths(bytes.length, cuts, ends)) {
        const part = outcomeOf(bytes.subarray(0, length), 0, isHead);
        if (part !== undefined) expect(part).toEqual(whole);
      }
    }),
    { numRuns: numRuns * 2 },
  );
});

/** Reads a body that arrives in pieces of these sizes. */
function readBody(bytes: string, length: number | undefined, sizes: readonly number[]) {
  const body = new BodyReader(length);
  const read: string[] = [];
  let ended = 0;
  for (let at = 0, piece = 0; at < bytes.length && !body.isComplete; piece++) {
    const size = sizes[piece % sizes.length] as number;
    const from = Buffer.from(bytes.slice(at, at + size), 'latin1');
    ended = at + body.read(from, 0, (part) => read.push(part.toString('latin1')));
    at += size;
  }
  return { read: read.join(''), ended, isComplete: body.isComplete };
}

const sizes = fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 8 });
const parts = fc.array(fc.string({ minLength: 1, maxLength: 60, unit: 'binary-ascii', size: 'max' }), { maxLength: 6 });
const trailers = fc.constantFrom('', 'X: a\r\n', 'X: a\r\nContent-Length: 9\r\n');

test('a streamed body is read completely and no further, wherever it is split', () => {
  fc.assert(
    fc.property(parts, trailers, sizes, fc.string(), (parts, trailers, sizes, behind) => {
      const body = parts.join('');
      const chunks = parts.map((part) => `${part.length.toString(16)}\r\n${part}\r\n`).join('');
      const chunked = `${chunks}0\r\n${trailers}\r\n`;
      expect(readBody(chunked + behind, undefined, sizes)).toEqual({
        read: body,
        ended: chunked.length,
        isComplete: true,
      });
      expect(readBody(chunked.slice(0, -1), undefined, sizes)).toMatchObject({ isComplete: false });
      if (body === '') return;
      expect(readBody(body + behind, body.length, sizes)).toEqual({ read: body, ended: body.length, isComplete: true });
      expect(readBody(body.slice(0, -1), body.length, sizes)).toMatchObject({ isComplete: false });
    }),
    { numRuns },
  );
});

test.for([
  ['no size', '\r\n'],
  ['a sign', '-1\r\n'],
  ['a prefix', '0x1\r\n'],
  ['a size that is too long', '1000000000000\r\n'],
  ['LF alone', '1\na\r\n'],
  ['an extension', '1;a=b\r\na\r\n'],
  ['more bytes than its size', '1\r\nab\r\n0\r\n\r\n'],
  ['fewer bytes than its size', '3\r\nab\r\n0\r\n\r\n'],
  ['a size without an end', '0'.repeat(20_000)],
  ['trailers without an end', `0\r\n${'X: a\r\n'.repeat(4_000)}`],
] as const)('a streamed chunk with %s is refused', ([, bytes]) => {
  for (const sizes of [[1], [100_000]]) expect(() => readBody(bytes, undefined, sizes)).toThrow(Unreadable);
});

/** Returns a client of a server that answers each request with exactly the given bytes, and what the client reads. */
async function parrot(): Promise<(bytes: Buffer, isHead: boolean) => Promise<ReadByUndici>> {
  let said = Buffer.alloc(0);
  const url = await bareCore((socket) => void socket.on('data', () => void socket.write(said)));
  // A client that considers a response longer than the gateway does waits for more bytes, so it must time out soon.
  const client = new Client(url, { headersTimeout: 1_000, bodyTimeout: 1_000 });
  cleanUp(() => client.destroy());
  return (bytes, isHead) => {
    said = Buffer.from(bytes);
    return answerOf(client, isHead ? 'HEAD' : 'GET');
  };
}

type ReadByUndici = Pick<Written['answer'], 'status' | 'headers' | 'body'>;

function answerOf(client: Client, method: Dispatcher.HttpMethod): Promise<ReadByUndici> {
  const { promise, resolve, reject } = Promise.withResolvers<ReadByUndici>();
  let [status, headers, body] = [0, [] as string[], ''];
  client.dispatch(
    { method, path: '/' },
    {
      onRequestStart() {},
      onResponseStart(controller, code) {
        if (code < 200) return;
        status = code;
        // Blanks after a value are not part of it (RFC 9110 §5.5); undici leaves them in.
        headers = (controller.rawHeaders as Buffer[]).map((text) => text.toString('latin1').replace(/[\t ]+$/, ''));
      },
      onResponseData(_controller, chunk) {
        body += chunk.toString('latin1');
      },
      onResponseEnd: () => resolve({ status, headers, body }),
      onResponseError: (_controller, fault) => reject(fault),
    },
  );
  return promise;
}

/**
 * Removes whitespace after a length or a coding. llhttp refuses it or overlooks the chunks, contrary to RFC 9110 §5.5.
 */
const tidy = (bytes: Buffer): Buffer =>
  Buffer.from(bytes.toString('latin1').replaceAll(/((?:-length|-encoding):[^\r]*?)[\t ]+\r\n/gi, '$1\r\n'), 'latin1');

test('undici reads valid responses, and damaged ones that the gateway accepts, as the gateway does', async () => {
  const answerTo = await parrot();
  let reads = 0;
  await fc.assert(
    fc.asyncProperty(fc.oneof(written, damaged, damaged, damaged), async ({ bytes: untidy, isHead }) => {
      const bytes = tidy(untidy);
      const ours = outcomeOf(bytes, 0, isHead);
      // undici rejects a 100 (Continue), which a client may ignore (RFC 9110 §15.2).
      if (typeof ours !== 'object' || /^HTTP\/1\.1 100 /m.test(bytes.toString('latin1'))) return;
      reads += 1;
      const { status, headers, body } = ours.answer;
      expect(await answerTo(bytes.subarray(0, ours.end), isHead)).toEqual({ status, headers, body });
    }),
    { numRuns: thoroughly(1_500, 600) },
  );
  expect(reads).toBeGreaterThan(100);
});
