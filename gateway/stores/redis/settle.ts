import { setTimeout as sleep } from 'node:timers/promises';

/** After this no more attempts are made. By then Redis has failed over or the connection is back. */
const ASKED_MS = 4_000;
const ASK_EVERY_MS = 100;

/**
 * The result of a write, even if its answer was lost: then the stored data shows it.
 * @param readBack returns undefined if the write was not done
 * @throws what `write` throws, if it was not done or its result is unknown
 */
export async function settle<T>(write: Promise<T>, readBack: () => Promise<T | undefined>): Promise<T> {
  try {
    return await write;
  } catch (fault) {
    const found = await untilAnswered(readBack);
    if (found === undefined) throw fault;
    return found;
  }
}

async function untilAnswered<T>(readBack: () => Promise<T | undefined>): Promise<T | undefined> {
  const giveUpAt = performance.now() + ASKED_MS;
  for (;;) {
    try {
      return await readBack();
    } catch {
      if (performance.now() > giveUpAt) return undefined;
    }
    await sleep(ASK_EVERY_MS);
  }
}
