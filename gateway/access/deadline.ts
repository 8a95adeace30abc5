/** A stall of the event loop counts as one of so many parts of a deadline, however long it is. */
const PARTS = 5;

/**
 * Calls `onMissed` each time that `ms` have passed. A process that stands still, or gets little CPU, misses no deadline: it is
 * given time in parts in which the event loop turned, and every socket is read once more before the call.
 * @param onMissed told when the missed time began, as of performance.now()
 * @returns ends it
 */
export function startDeadline(ms: number, onMissed: (since: number) => void): () => void {
  let since = performance.now();
  let parts = 0;
  let hasEnded = false;
  const lookAgain = () => {
    if (hasEnded) return;
    const began = since;
    since = performance.now();
    onMissed(began);
  };
  const timer = setInterval(() => {
    parts += 1;
    // Timers come before the poll phase, in which sockets are read, and immediates come after it.
    if (parts % PARTS === 0) setImmediate(lookAgain);
  }, ms / PARTS);
  return () => {
    hasEnded = true;
    clearInterval(timer);
  };
}
