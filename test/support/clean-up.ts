import { afterAll, onTestFinished, TestRunner } from 'vitest';

/** Runs the task after the current test, or after all tests of the file if called outside a test. */
export function cleanUp(task: () => Promise<unknown> | unknown): void {
  const run = async () => void (await task());
  if (TestRunner.getCurrentTest() === undefined) afterAll(run);
  else onTestFinished(run);
}
