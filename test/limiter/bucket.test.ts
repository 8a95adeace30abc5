import fc from 'fast-check';
import { expect, test } from 'vitest';
import { full, refill, ticksUntilFull, ticksUntilNextToken, ticksUntilToken } from '../../gateway/limiter/bucket.ts';

const DAY = 86_400_000_000;

const limits = fc.integer({ min: 1, max: 1_000_000_000 });
const windows = fc.oneof(fc.constantFrom(60_000_000, DAY), fc.integer({ min: 1, max: DAY }));

/** A level as an exact number of fractions of a token. */
const inParts = ({ tokens, fraction }: { tokens: number; fraction: number }, window: number) =>
  BigInt(tokens) * BigInt(window) + BigInt(fraction);

test('a refill is exact for every limit, window and time', () => {
  const cases = fc.tuple(
    limits,
    windows,
    fc.double({ min: 0, max: 1, noNaN: true }),
    fc.double({ min: 0, max: 1, noNaN: true }),
    fc.integer({ min: 0, max: 2 * DAY }),
  );
  fc.assert(
    fc.property(cases, ([limit, window, tokenShare, partShare, elapsed]) => {
      const level = { tokens: Math.floor(tokenShare * limit), fraction: Math.floor(partShare * (window - 1)) };
      const refilled = inParts(refill(level, limit, window, elapsed), window);
      const sum = inParts(level, window) + BigInt(elapsed) * BigInt(limit);
      const capacity = BigInt(limit) * BigInt(window);
      expect(refilled).toBe(sum < capacity ? sum : capacity);
    }),
    { numRuns: 5_000 },
  );
});

test('a refill after a period equals two refills after its parts', () => {
  const cases = fc.tuple(limits, windows, fc.integer({ min: 0, max: DAY }), fc.integer({ min: 0, max: DAY }));
  fc.assert(
    fc.property(cases, ([limit, window, first, second]) => {
      const empty = { tokens: 0, fraction: 0 };
      const inTwo = refill(refill(empty, limit, window, first), limit, window, second);
      expect(inTwo).toEqual(refill(empty, limit, window, first + second));
    }),
    { numRuns: 5_000 },
  );
});

test('the computed times of the next token and of the full bucket are the earliest possible', () => {
  const cases = fc.tuple(limits, windows, fc.double({ min: 0, max: 1, noNaN: true }));
  fc.assert(
    fc.property(cases, ([limit, window, share]) => {
      const level = { tokens: 0, fraction: Math.floor(share * (window - 1)) };
      const wait = ticksUntilToken(level, limit, window);
      expect(refill(level, limit, window, wait).tokens).toBeGreaterThanOrEqual(1);
      expect(refill(level, limit, window, wait - 1).tokens).toBe(0);
      const untilFull = ticksUntilFull(level, limit, window);
      expect(refill(level, limit, window, untilFull)).toEqual(full(limit));
      expect(refill(level, limit, window, untilFull - 1)).not.toEqual(full(limit));
    }),
    { numRuns: 5_000 },
  );
});

test('a full bucket has no wait', () => {
  expect(ticksUntilToken(full(3), 3, DAY)).toBe(0);
  expect(ticksUntilNextToken(full(3), 3, DAY)).toBe(0);
  expect(ticksUntilFull(full(3), 3, DAY)).toBe(0);
});

test('a level above a lowered limit is clamped to it', () => {
  expect(refill({ tokens: 60, fraction: 1 }, 10, DAY, 0)).toEqual(full(10));
});
