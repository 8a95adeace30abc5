import { LRUCache } from 'lru-cache';

export type BoundedMap<Key extends {}, Value extends {}> = LRUCache<Key, Value>;

/**
 * A map of at most this many entries, which evicts the least recently used one. It counts them as sizes of 1: given
 * `max`, the library allocates every place at once, which for all maps of a gateway takes 5 MB and 30 ms of its start.
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
