import { afterAll, onTestFinished, TestRunner } from 'vitest';

/** Runs when the test that is running has ended; outside a test, when all of its file have. */
export function cleanUp(task: () => Promise<unknown> | unknown): void {
  const run = async () => void (await task());
  if (TestRunner.getCurrentTest() === undefined) afterAll(run);
  else onTestFinished(run);
}
