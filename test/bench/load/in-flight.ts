/**
 * Calls again and again for so long, so many calls in flight, each followed by the next one when it has ended.
 * @returns how many there were
 */
export async function keepInFlight(inFlight: number, forMs: number, call: () => Promise<unknown>): Promise<number> {
  const end = performance.now() + forMs;
  let calls = 0;
  const caller = async () => {
    for (; performance.now() < end; calls++) await call();
  };
  await Promise.all(Array.from({ length: inFlight }, caller));
  return calls;
}
