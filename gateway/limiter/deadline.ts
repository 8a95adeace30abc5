/** A deadline has this many parts. A stall of the event loop counts as one part, however long it lasts. */
const PARTS = 5;

/**
 * Calls `onMissed` every `ms`, and `onPart` five times as often. A process that stalls or gets little CPU misses no
 * deadline: it counts the parts in which the event loop turned, and lets every socket be read once more before the
 * call.
 * @returns a function that stops the deadline
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
