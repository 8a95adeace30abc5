/** What the answers of the gateway show about the gateway and its Redis, and since when. */

/** A single missed answer does not count. */
const MISSES = 2;
const UNAVAILABLE = 503;

/** The state of the gateway is polled all the time. Without an answer for this long, it is unknown. */
const KNOWN_WITHIN_MS = 2_000;
const STATE = '/traffic';

interface Streak {
  readonly since: Date;
  readonly misses: number;
}

export interface Trouble {
  readonly kind: 'silent' | 'unreadable';
  readonly since: Date;
}

/** When the oldest unanswered request for the state was sent. */
let askedAt: Date | undefined;
let silent: Streak | undefined;
let unreadable: Streak | undefined;

const longer = (streak: Streak | undefined): Streak => ({
  since: streak?.since ?? new Date(),
  misses: (streak?.misses ?? 0) + 1,
});

/** Requests that fail without Redis. The plan table is known without it. */
const readsStore = (path: string): boolean => /^\/(keys|bans|plans\/|usage|activity|tokens)/.test(path);

/** Called before every request. */
export function noteQuestion(path: string): void {
  if (path === STATE) askedAt ??= new Date();
}

/** Called after every request. @param status undefined if the gateway did not respond */
export function noteAnswer(path: string, status: number | undefined): void {
  if (path === STATE) askedAt = undefined;
  silent = status === undefined ? longer(silent) : undefined;
  if (status !== undefined && readsStore(path)) unreadable = status === UNAVAILABLE ? longer(unreadable) : undefined;
}

/** The most serious current trouble; undefined if there is none. */
export function trouble(): Trouble | undefined {
  if (askedAt !== undefined && Date.now() - askedAt.getTime() > KNOWN_WITHIN_MS)
    return { kind: 'silent', since: silent?.since ?? askedAt };
  if (silent !== undefined && silent.misses >= MISSES) return { kind: 'silent', since: silent.since };
  if (unreadable !== undefined && unreadable.misses >= MISSES) return { kind: 'unreadable', since: unreadable.since };
  return undefined;
}
