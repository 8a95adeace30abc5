import type { Level } from './bucket.ts';
import type { Secret, Validity } from './credential.ts';
import type { PlanName } from './plans.ts';
import { NO_REFUSALS, type Refusals } from './refusals.ts';
import type { Tags } from './tags.ts';
import { UNUSED, type Usage } from './usage-marks.ts';

/** The most characters in the name of a key or a secret. */
export const MAX_KEY_NAME_LENGTH = 100;

/** The record of an API key. Times are Unix time in microseconds. */
export interface KeyRecord extends Validity {
  readonly plan: PlanName;
  readonly name: string;
  /** Never empty. */
  readonly secrets: readonly Secret[];
  readonly createdAt: number;
  /** Requests per minute and per day that override the plan's. */
  readonly minute?: number | undefined;
  readonly day?: number | undefined;
  /** Decisions do not read the tags. */
  readonly tags?: Tags | undefined;
}

/** A level, and the limit in force when it was stored. */
export interface StoredLevel extends Level {
  readonly limit?: number | undefined;
}

/** The part of a key's data that decisions write. */
export interface KeyState {
  readonly minute: StoredLevel;
  readonly day: StoredLevel;
  readonly refusals: Refusals;
  /** The time of the levels above. Undefined before the first decision: the buckets are then full. */
  readonly asOf: number | undefined;
  readonly bannedUntil: number;
  /** The number of bans in the running series. Each is twice as long as the one before. */
  readonly bans: number;
  readonly admitted: number;
  readonly refused: number;
  /** How many admitted requests the limits would have refused without shadow mode. */
  readonly shadowed: number;
  readonly usage: Usage;
  /**
   * The time of the last decision for each secret, by the secret's id and to the minute. Removed secrets can be among
   * them.
   */
  readonly used: Readonly<Record<string, number>>;
  /** An operator's reason for a ban, and the end of that ban. It does not apply to a ban that ends at another time. */
  readonly banReason?: BanReason | undefined;
}

export interface BanReason {
  readonly text: string;
  readonly until: number;
}

/** The state of a key before its first decision. That decision fills the buckets. */
export const FRESH: KeyState = {
  minute: { tokens: 0, fraction: 0 },
  day: { tokens: 0, fraction: 0 },
  refusals: NO_REFUSALS,
  asOf: undefined,
  bannedUntil: 0,
  bans: 0,
  admitted: 0,
  refused: 0,
  shadowed: 0,
  usage: UNUSED,
  used: {},
};

/** A key as operators see it, with the results of its decisions. */
export interface KeyEntry extends KeyState {
  readonly id: string;
  /** False if the data allows no decision, for example after an edit by hand. */
  readonly isReadable: boolean;
  /** Invalid values, for example after an edit by hand. The last good ones are in force. */
  readonly rejected?: readonly { readonly field: string; readonly value: string; readonly kept: string | undefined }[];
  /** Set for a revoked key: only its name, plan and use are left. */
  readonly isRevoked?: boolean;
  readonly record: Omit<KeyRecord, 'plan'> & { readonly plan: string };
}

/** An operator's change of a key. A member that is present but undefined is removed. */
export interface KeyChange {
  readonly record?: Partial<KeyRecord>;
  /**
   * Sets a ban; 'lift' ends the ban and clears the line, the strikes and the series; 'reset' also fills both buckets.
   * No other change alters levels.
   */
  readonly ban?: BanReason | 'lift' | 'reset';
  /** Whether the change takes a secret away. */
  readonly isUrgent?: boolean;
}
