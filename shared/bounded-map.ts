import { LRUCache } from 'lru-cache';

export type BoundedMap<Key extends {}, Value extends {}> = LRUCache<Key, Value>;

/**
 * A map of at most this many entries, which evicts the least recently used one. Each entry has size 1. With `max`
 * in place of `maxSize`, the library would allocate every place at once, at a cost of 5 MB and 30 ms per gateway.
 */
export const boundedMap = <Key extends {}, Value extends {}>(
  entries: number,
  onEvicted: (value: Value) => void = () => {},
): BoundedMap<Key, Value> =>
  new LRUCache<Key, Value>({
    ...{ maxSize: entries, sizeCalculation: () => 1 },
    dispose(value, _key, reason) {
      if (reason === 'evict') onEvicted(value);
    },
  });
