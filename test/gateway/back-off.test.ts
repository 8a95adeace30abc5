import { expect, test } from 'vitest';
import { BackOff } from '../../gateway/primary/workers.ts';

const waits = (backOff: BackOff, count: number, servedMs: number) =>
  Array.from({ length: count }, () => backOff.next(servedMs));

test('the wait before a worker restarts doubles up to half a minute and starts over after a healthy one', () => {
  const backOff = new BackOff();
  expect(waits(backOff, 11, 0)).toEqual([100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000]);
  expect(waits(backOff, 2, 29_999)).toEqual([30_000, 30_000]);
  expect(backOff.next(30_000)).toBe(100);
  expect(waits(backOff, 2, 5)).toEqual([200, 400]);
});
