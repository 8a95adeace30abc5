import { setImmediate as nextTurn } from 'node:timers/promises';
import { type RecordName, type Storage, withOwn } from '../stores/storage.ts';

/**
 * The storage of this process, with lists read one page per turn of the event loop, however many operators read them.
 * Between two pages, a worker gets the keys that it asks for.
 */
export function pageATurn(storage: Storage): Storage {
  let before: Promise<unknown> = Promise.resolve();

  async function readMany(records: readonly RecordName[]) {
    const turn = Promise.withResolvers<void>();
    const mine = before;
    before = turn.promise;
    await mine;
    try {
      return await storage.readMany(records);
    } finally {
      void nextTurn().then(turn.resolve);
    }
  }

  return withOwn(storage, { readMany });
}
