import { expect } from 'vitest';

/**
 * For a test that holds a time against its bound, and for no other. What else the machine does may cost it a try, and the
 * end of the run names those that it did; what the product does wrong costs it all three.
 */
export const TIMED = { retry: 2 } as const;

const broken = new Map<string, unknown>();

/**
 * A fact in a timed test has one try all the same: where it failed once, every further try fails.
 * @param check throws where the fact is none
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
