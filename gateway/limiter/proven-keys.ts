import { LRUCache } from 'lru-cache';
import type { Verdict } from './verdict.ts';

const MAX_KEYS = 50_000;

/**
 * The keys most recently found valid by a decision. Any other key may be invented, so it shares the capacity of its
 * address.
 */
export class ProvenKeys {
  readonly #names = new LRUCache<string, true>({ max: MAX_KEYS });

  has(name: string): boolean {
    return this.#names.get(name) === true;
  }

  note(name: string, verdict: Verdict): void {
    // A request from a wrong network neither proves nor disproves a key.
    if (verdict.outcome === 'undecided' || (verdict.outcome === 'unauthorized' && verdict.reason === 'elsewhere'))
      return;
    if (verdict.outcome === 'unauthorized') this.#names.delete(name);
    else if (!this.has(name)) this.#names.set(name, true);
  }
}
