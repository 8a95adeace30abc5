import fc from 'fast-check';
import { expect, test } from 'vitest';
import { readAnswer } from '../../gateway/upstream/answer.ts';
import { anyPlace, damaged, outcomeOf, written } from '../support/answers.ts';
import { thoroughly } from '../support/thorough.ts';

/** Consecutive answers in a stream that is cut into pieces anywhere. */

const numRuns = thoroughly(2_000, 300);
const places = fc.array(anyPlace, { maxLength: 20 });

/** Some stream lengths, and those around the end of an answer. */
const lengths = (total: number, some: readonly number[], ends: readonly number[]) =>
  [...some.map((part) => Math.floor(part * total)), ...ends.flatMap((end) => [end - 2, end - 1, end, end + 1])]
    .filter((length) => length >= 0 && length <= total)
    .sort((a, b) => a - b);

test('consecutive answers are read back as written, wherever their stream is cut', () => {
  fc.assert(
    fc.property(fc.array(written, { minLength: 1, maxLength: 5 }), places, (answers, cuts) => {
      const stream = Buffer.concat(answers.map(({ bytes }) => bytes));
      const ends = answers.map((_, at) => answers.slice(0, at + 1).reduce((sum, { bytes }) => sum + bytes.length, 0));
      let start = 0;
      for (const [at, { isHead, answer, isLast }] of answers.entries()) {
        const end = ends[at] as number;
        for (const length of lengths(stream.length, cuts, ends).filter((there) => there >= start)) {
          const read = readAnswer(stream.subarray(0, length), start, isHead);
          expect(read).toEqual(length < end ? undefined : { answer, end, isLast });
        }
        start = end;
      }
    }),
    { numRuns },
  );
});

test('an incomplete answer is undefined at each of its bytes', () => {
  fc.assert(
    fc.property(written, ({ bytes, isHead, answer, isLast }) => {
      for (let length = 0; length < bytes.length; length++)
        expect(readAnswer(bytes.subarray(0, length), 0, isHead)).toBeUndefined();
      expect(readAnswer(bytes, 0, isHead)).toEqual({ answer, end: bytes.length, isLast });
    }),
    { numRuns: numRuns / 4 },
  );
});

test('damaged answers are read to their end, or refused in one of three ways', () => {
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

test('the result for a damaged answer does not depend on how much has arrived', () => {
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
