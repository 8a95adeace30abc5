/** What the answers of the gateway say about the gateway and its Redis, and since when. */

/** A single missed answer is no trouble. */
const MISSES = 2;
const UNAVAILABLE = 503;

interface Streak {
  readonly since: Date;
  readonly misses: number;
}

export interface Trouble {
  readonly kind: 'silent' | 'unreadable';
  readonly since: Date;
}

let silent: Streak | undefined;
let unreadable: Streak | undefined;

const longer = (streak: Streak | undefined): Streak => ({
  since: streak?.since ?? new Date(),
  misses: (streak?.misses ?? 0) + 1,
});

/** Requests that fail without Redis. The plan table is also known without it. */
const readsStore = (path: string): boolean => /^\/(keys|bans|plans\/|usage|activity|tokens)/.test(path);

/** Called after every request. @param status undefined if the gateway did not respond */
export function noteAnswer(path: string, status: number | undefined): void {
  silent = status === undefined ? longer(silent) : undefined;
  if (status !== undefined && readsStore(path)) unreadable = status === UNAVAILABLE ? longer(unreadable) : undefined;
}

/** The most serious trouble that lasts; undefined if there is none. */
export function trouble(): Trouble | undefined {
  if (silent !== undefined && silent.misses >= MISSES) return { kind: 'silent', since: silent.since };
  if (unreadable !== undefined && unreadable.misses >= MISSES) return { kind: 'unreadable', since: unreadable.since };
  return undefined;
}
