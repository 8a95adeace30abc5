import type { Verdict } from './verdict.ts';

const MAX_KEYS = 50_000;

/**
 * The keys that a decision has known, those that came last. A key that is not one of them may be made up, so it shares with
 * the others of its address.
 */
export class ProvenKeys {
  /** Least recently used first. */
  readonly #names = new Set<string>();

  has(name: string): boolean {
    if (!this.#names.delete(name)) return false;
    this.#names.add(name);
    return true;
  }

  note(name: string, verdict: Verdict): void {
    if (verdict.outcome === 'unauthorized') this.#names.delete(name);
    if (verdict.outcome === 'unauthorized' || verdict.outcome === 'undecided') return;
    this.#names.add(name);
    if (this.#names.size > MAX_KEYS) this.#names.delete(this.#names.values().next().value as string);
  }
}
