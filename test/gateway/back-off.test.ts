import { expect, test } from 'vitest';
import { nextWait } from '../../gateway/primary/workers.ts';

test('the wait before a worker restarts doubles up to half a minute, and resets after a healthy period', () => {
  let last = 0;
  const waits = (count: number, servedMs: number) =>
    Array.from({ length: count }, () => {
      last = nextWait(last, servedMs);
      return last;
    });
  expect(waits(11, 0)).toEqual([100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000]);
  expect(waits(2, 29_999)).toEqual([30_000, 30_000]);
  expect(waits(1, 30_000)).toEqual([100]);
  expect(waits(2, 5)).toEqual([200, 400]);
});
