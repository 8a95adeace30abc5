import { monotonicClock } from '../limiter/bucket.ts';
import type { KeyFacts } from '../limiter/client.ts';
import type { Clients } from '../limiter/clients.ts';
import type { Credential } from '../limiter/credential.ts';
import { countsOf, DAYS_KEPT, type KeyEntry } from '../limiter/key-record.ts';
import { StoreUnavailable } from '../limiter/limiter.ts';
import type { Keys } from './keys.ts';

const NO_FACTS =
  'The usage of this API key cannot be read: the store of the gateway does not answer. Retry after the time in Retry-After.';

/**
 * Reads the facts of keys, and remembers the last ones for outages. Call the result only after the secret has been
 * verified. It returns undefined for a key that no longer exists, and throws {StoreUnavailable} if the store is away
 * and the key is not remembered.
 */
export const factsReader =
  (keys: Pick<Keys, 'get'>, clients: Clients) =>
  async ({ id }: Credential): Promise<KeyFacts | undefined> => {
    const askedAt = monotonicClock();
    try {
      const entry = await keys.get(id);
      const facts = entry && factsOf(entry);
      clients.noteFacts(id, facts, askedAt);
      return facts;
    } catch (fault) {
      if (!(fault instanceof StoreUnavailable)) throw fault;
      const facts = clients.facts(id);
      if (facts === undefined) throw new StoreUnavailable(fault, NO_FACTS);
      return facts;
    }
  };

function factsOf(entry: KeyEntry): KeyFacts {
  const { record, refusals, usage } = entry;
  const days = countsOf(usage.days, entry).slice(-DAYS_KEPT);
  return { name: record.name, expiresAt: record.expiresAt, refusals, days };
}
