import { boundedMap } from '../../shared/bounded-map.ts';
import { ChangedKeys } from '../limiter/changed-keys.ts';
import { monotonicClock } from '../limiter/clock.ts';
import type { Credential } from '../limiter/credential.ts';
import { StoreUnavailable } from '../limiter/limiter.ts';
import type { KeyStore } from './stores.ts';

const MAX_KEYS = 10_000;

/** Data about a key that its owner may see, besides its limits. */
export interface KeyFacts {
  readonly name: string;
  /** In microseconds; undefined for a key that does not expire. */
  readonly expiresAt: number | undefined;
}

/**
 * Reads the facts of keys. The last ones are remembered for outages of the store, by id and digest. Call this only
 * after the secret has been verified.
 */
export class KeyFactsReader {
  readonly #keys: Pick<KeyStore, 'get'>;
  readonly #changed: ChangedKeys;
  readonly #remembered = boundedMap<string, { readonly facts: KeyFacts; readonly askedAt: number }>(MAX_KEYS);

  constructor(keys: Pick<KeyStore, 'get'>, changed = new ChangedKeys()) {
    this.#keys = keys;
    this.#changed = changed;
  }

  /**
   * @returns undefined for a key that no longer exists
   * @throws {StoreUnavailable} if the store is away and the key is not remembered
   */
  async of({ id, cacheKey }: Credential): Promise<KeyFacts | undefined> {
    const askedAt = monotonicClock();
    try {
      const entry = await this.#keys.get(id);
      if (entry === undefined) {
        this.#remembered.delete(cacheKey);
        return undefined;
      }
      const facts = { name: entry.record.name, expiresAt: entry.record.expiresAt };
      this.#remembered.set(cacheKey, { facts, askedAt });
      return facts;
    } catch (fault) {
      const remembered = this.#remembered.get(cacheKey);
      if (!(fault instanceof StoreUnavailable) || remembered === undefined) throw fault;
      if (this.#changed.hasChangedSince(id, remembered.askedAt)) throw fault;
      return remembered.facts;
    }
  }
}
