import { Conflict, Unavailable } from '../../shared/domain-errors.ts';
import type { Store } from './store.ts';

/** `unavailable`: the store could not be reached, is locked, or lacks disk, memory or time; `failed`: anything else that is no answer of ours. */
export const STORE_FAULTS = ['unavailable', 'failed'] as const;
export type StoreFault = (typeof STORE_FAULTS)[number];

/** A store whose faults are counted. What a transaction throws by the rules of the store, a 409 for instance, is none. */
export function countFaults(store: Store, count: (fault: StoreFault) => void): Store {
  async function watched<T>(work: Promise<T>): Promise<T> {
    try {
      return await work;
    } catch (thrown) {
      if (thrown instanceof Unavailable) count('unavailable');
      else if (!(thrown instanceof Conflict)) count('failed');
      throw thrown;
    }
  }

  return {
    read: (transaction) => watched(store.read(transaction)),
    write: (transaction) => watched(store.write(transaction)),
    check: () => watched(store.check()),
    close: () => store.close(),
  };
}
