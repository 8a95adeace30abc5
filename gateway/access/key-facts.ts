import { RecentlyUsed } from '../../shared/recently-used.ts';
import type { Credential } from './credential.ts';
import { AccessUnavailable, type KeyStore } from './limiter.ts';

const MAX_KEYS = 10_000;

/** What a key's owner is told of it beside its limits. */
export interface KeyFacts {
  readonly name: string;
  /** In microseconds; undefined for a key that does not expire. */
  readonly expiresAt: number | undefined;
}

/**
 * Reads the facts of keys, and remembers the last ones for when the store is away. To be asked only once the secret was found
 * to be the key's: they are remembered by id and digest.
 */
export class KeyFactsReader {
  readonly #keys: Pick<KeyStore, 'get'>;
  readonly #remembered = new RecentlyUsed<string, KeyFacts>(MAX_KEYS);

  constructor(keys: Pick<KeyStore, 'get'>) {
    this.#keys = keys;
  }

  /**
   * @returns undefined for a key that is no more
   * @throws {AccessUnavailable} where the store is away and the key was never asked for
   */
  async of({ id, cacheKey }: Credential): Promise<KeyFacts | undefined> {
    try {
      const entry = await this.#keys.get(id);
      if (entry === undefined) {
        this.#remembered.delete(cacheKey);
        return undefined;
      }
      const facts = { name: entry.record.name, expiresAt: entry.record.expiresAt };
      this.#remembered.set(cacheKey, facts);
      return facts;
    } catch (fault) {
      const remembered = this.#remembered.get(cacheKey);
      if (!(fault instanceof AccessUnavailable) || remembered === undefined) throw fault;
      return remembered;
    }
  }
}
