/**
 * Does something again and again, each time after the one before has ended, until the signal.
 * @param task must not throw
 */
export async function repeat(task, everyMs, signal) {
  while (!signal.aborted) {
    await task();
    await new Promise((resolve) => setTimeout(resolve, everyMs));
  }
}
