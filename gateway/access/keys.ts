import type { Level } from './bucket.ts';
import type { PlanName } from './plans.ts';
import type { Queue } from './queue.ts';
import { UNUSED, type Usage } from './usage.ts';

/** What is known of an API key. Times are Unix time in microseconds. */
export interface KeyRecord {
  readonly plan: PlanName;
  readonly name: string;
  /** SHA-256 of the secret, in hex. */
  readonly secret: string;
  /** The secret before a rotation, good until `oldSecretUntil`. */
  readonly oldSecret?: string | undefined;
  readonly oldSecretUntil?: number | undefined;
  readonly createdAt: number;
  readonly expiresAt?: number | undefined;
  readonly disabled?: boolean | undefined;
  /** Requests per minute and per day that override the plan's. */
  readonly minute?: number | undefined;
  readonly day?: number | undefined;
}

/** Why a key opens nothing, whatever secret comes with it: in the order in which a decision asks. */
export function inactiveReason(
  { disabled, expiresAt }: Pick<KeyRecord, 'disabled' | 'expiresAt'>,
  now: number,
): 'disabled' | 'expired' | undefined {
  if (disabled) return 'disabled';
  return expiresAt !== undefined && expiresAt <= now ? 'expired' : undefined;
}

/** What decisions leave behind of a key. */
export interface KeyState {
  readonly minute: Level;
  readonly day: Level;
  /** Undefined where nobody was refused lately. */
  readonly queue: Queue | undefined;
  /** When the levels above were true; undefined for a key that was never decided on, whose buckets are all full. */
  readonly asOf: number | undefined;
  readonly bannedUntil: number;
  /** Bans in the running series: each is twice as long as the one before. */
  readonly bans: number;
  readonly admitted: number;
  readonly refused: number;
  /** Of those admitted: how many its limits would have refused, had its plan not been in shadow mode. */
  readonly shadowed: number;
  readonly usage: Usage;
  /** Why an operator banned the key, until when; of no meaning for a ban that ends at another time. */
  readonly banReason?: BanReason | undefined;
}

export interface BanReason {
  readonly text: string;
  readonly until: number;
}

/** The state of a key before its first decision, which fills its buckets. */
export const FRESH: KeyState = {
  minute: { tokens: 0, parts: 0 },
  day: { tokens: 0, parts: 0 },
  queue: undefined,
  asOf: undefined,
  bannedUntil: 0,
  bans: 0,
  admitted: 0,
  refused: 0,
  shadowed: 0,
  usage: UNUSED,
};

/** A key as operators see it, with what decisions left behind of it. */
export interface KeyEntry extends KeyState {
  readonly id: string;
  /** False for data that no decision can be taken on, as a hand on the data can leave it. */
  readonly isReadable: boolean;
  /** Of a key that is no more: all that is left of it is its name, its plan and its use. */
  readonly isRevoked?: boolean;
  readonly record: Omit<KeyRecord, 'secret' | 'oldSecret' | 'plan'> & { readonly plan: string };
}

/**
 * What an operator changes of a key. A member that is there and undefined is taken away. Bucket levels are no part of it:
 * what was used stays used.
 */
export interface KeyChange {
  readonly record?: Partial<KeyRecord>;
  /** A ban to begin, or 'lift' for its end: the early requests that led to it are forgotten, lest the next one ban at once. */
  readonly ban?: BanReason | 'lift';
}
