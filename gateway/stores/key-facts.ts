import type { KeyFacts } from '../limiter/client.ts';
import type { Clients } from '../limiter/clients.ts';
import { monotonicClock } from '../limiter/clock.ts';
import type { Credential } from '../limiter/credential.ts';
import type { KeyEntry } from '../limiter/key-record.ts';
import { StoreUnavailable } from '../limiter/limiter.ts';
import { countsOf, DAYS_KEPT } from '../limiter/usage-marks.ts';
import type { Keys } from './keys.ts';

const NO_FACTS =
  'The usage of this API key cannot be read: the store of the gateway does not answer. Retry after the time in Retry-After.';

/**
 * Reads the facts of keys, and remembers the last ones for outages. Call this only after the secret has been verified.
 */
export class KeyFactsReader {
  readonly #keys: Pick<Keys, 'get'>;
  readonly #clients: Clients;

  constructor(keys: Pick<Keys, 'get'>, clients: Clients) {
    this.#keys = keys;
    this.#clients = clients;
  }

  /**
   * @returns undefined for a key that no longer exists
   * @throws {StoreUnavailable} if the store is away and the key is not remembered
   */
  async of({ id }: Credential): Promise<KeyFacts | undefined> {
    const askedAt = monotonicClock();
    try {
      const entry = await this.#keys.get(id);
      const facts = entry && factsOf(entry);
      this.#clients.noteFacts(id, facts, askedAt);
      return facts;
    } catch (fault) {
      const facts = this.#clients.facts(id);
      if (!(fault instanceof StoreUnavailable)) throw fault;
      if (facts === undefined) throw new StoreUnavailable(fault, NO_FACTS);
      return facts;
    }
  }
}

function factsOf(entry: KeyEntry): KeyFacts {
  const { record, refusals, usage } = entry;
  const days = countsOf(usage.days, entry).slice(-DAYS_KEPT);
  return { name: record.name, expiresAt: record.expiresAt, refusals, days };
}
