import { expect } from 'vitest';

/**
 * Only for tests that compare a time with a bound. Load on the machine may cost them a try, and the end of the run
 * names those. A fault of the product costs all three tries.
 */
export const TIMED = { retry: 2 } as const;

const broken = new Map<string, unknown>();

/**
 * A check in a timed test that has only one try: once it has failed, every retry fails.
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
