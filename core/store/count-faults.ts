import { Conflict, Unavailable } from '../../shared/domain-errors.ts';
import type { Store } from './store.ts';

/**
 * `unavailable`: the store cannot be reached, is locked, or lacks disk, memory or time. `failed`: any other fault
 * except a Conflict.
 */
export const STORE_FAULTS = ['unavailable', 'failed'] as const;
export type StoreFault = (typeof STORE_FAULTS)[number];

/** A store that counts its faults. A Conflict is not a fault: it becomes a 409. */
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
