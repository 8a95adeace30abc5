import fc from 'fast-check';
import { expect, test } from 'vitest';
import { full, refill, ticksUntilFull, ticksUntilNextToken, ticksUntilToken } from '../../gateway/limiter/bucket.ts';

const DAY = 86_400_000_000;

const limits = fc.integer({ min: 1, max: 1_000_000_000 });
const windows = fc.oneof(fc.constantFrom(60_000_000, DAY), fc.integer({ min: 1, max: DAY }));

/** The model in model.test.ts checks refills. This file tests the times that headers report. */

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
