import { expect } from 'vitest';

/**
 * Options only for tests that compare a time with a bound. On a busy machine, a single try may fail; the summary of the
 * run lists such tests. A fault of the product makes all three tries fail.
 */
export const TIMED = { retry: 2 } as const;

const broken = new Map<string, unknown>();

/**
 * A check that must hold at the first try, even in a timed test. Once it has failed, all retries fail.
 * @param check throws if it does not hold
 */
export async function fact(check: () => void | Promise<void>): Promise<void> {
  const test = expect.getState().currentTestName ?? '';
  if (broken.has(test)) throw broken.get(test);
  try {
    await check();
  } catch (fault) {
    broken.set(test, fault);
    throw fault;
  }
}
