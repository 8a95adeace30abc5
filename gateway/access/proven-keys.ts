import { RecentlyUsed } from '../../shared/recently-used.ts';
import type { Verdict } from './verdict.ts';

const MAX_KEYS = 50_000;

/**
 * The keys that a decision has known, those that came last. A key that is not one of them may be made up, so it shares with
 * the others of its address.
 */
export class ProvenKeys {
  readonly #names = new RecentlyUsed<string, true>(MAX_KEYS);

  has(name: string): boolean {
    return this.#names.get(name) === true;
  }

  note(name: string, verdict: Verdict): void {
    if (verdict.outcome === 'unauthorized') this.#names.delete(name);
    else if (verdict.outcome !== 'undecided' && !this.has(name)) this.#names.set(name, true);
  }
}
