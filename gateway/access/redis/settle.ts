import { setTimeout as sleep } from 'node:timers/promises';

/** Past this nobody is asked any more. A Redis that fails over, or whose connection is made anew, is back by then. */
const ASKED_MS = 4_000;
const ASK_EVERY_MS = 100;

/**
 * The result of a write, also where its answer was lost: then what is there says what it came to.
 * @param look undefined when the write was not done
 * @throws what `write` throws, when it was not done or nobody can say
 */
export async function settle<T>(write: Promise<T>, look: () => Promise<T | undefined>): Promise<T> {
  try {
    return await write;
  } catch (fault) {
    const found = await untilAnswered(look);
    if (found === undefined) throw fault;
    return found;
  }
}

async function untilAnswered<T>(look: () => Promise<T | undefined>): Promise<T | undefined> {
  const giveUpAt = performance.now() + ASKED_MS;
  for (;;) {
    try {
      return await look();
    } catch {
      if (performance.now() > giveUpAt) return undefined;
    }
    await sleep(ASK_EVERY_MS);
  }
}
