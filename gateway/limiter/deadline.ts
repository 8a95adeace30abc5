/** A stall of the event loop counts as one of this many parts of a deadline, however long it is. */
const PARTS = 5;

/**
 * Calls `onMissed` after `ms`, and again after each `ms` more; and `onPart` five times as often. A process that stalls or
 * gets little CPU misses no deadline: the time is counted in parts in which the event loop turned, and every socket is
 * read once more before the call.
 * @returns a function that stops it
 */
export function startDeadline(ms: number, onMissed: () => void, onPart = () => {}): () => void {
  let parts = 0;
  let hasEnded = false;
  const lookAgain = () => {
    if (!hasEnded) onMissed();
  };
  const timer = setInterval(() => {
    parts += 1;
    onPart();
    // Timers run before the poll phase, in which sockets are read. Immediates run after it.
    if (parts % PARTS === 0) setImmediate(lookAgain);
  }, ms / PARTS);
  return () => {
    hasEnded = true;
    clearInterval(timer);
  };
}
