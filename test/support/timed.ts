import { expect } from 'vitest';

/**
 * Options for tests that compare a time with a bound, and for no others. On a busy machine, a single try may fail; the
 * summary of the run lists such tests. A fault of the product fails all three tries.
 */
export const TIMED = { retry: 2 } as const;

const broken = new Map<string, unknown>();

/**
 * A check that has only one try in a timed test: once it has failed, every retry fails.
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
