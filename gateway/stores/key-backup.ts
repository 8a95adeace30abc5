import type { KeyFields } from './key-hash.ts';
import { type KeyCursor, REVOKED_KEPT_SECONDS } from './key-walk.ts';

/** Keys in a backup: the stored fields of each, as text, including digests and use. No secret is among them. */

export interface BackedUpKey {
  readonly id: string;
  /** The key's place in the order of keys, in Unix seconds. */
  readonly createdAt: number;
  readonly fields: KeyFields;
}

export interface BackupPage {
  readonly keys: readonly BackedUpKey[];
  /** Where to continue; undefined at the end. */
  readonly next: KeyCursor | undefined;
}

/**
 * The result for one key of a backup. A present key is not changed. A revoked key stays revoked. `unreadable` means
 * that the embedded store cannot make a key of the fields; Redis accepts any fields.
 */
export type RestoreOutcome = 'restored' | 'present' | 'revoked' | 'unreadable';

/**
 * The age up to which a backup is restored, in seconds: every key that was revoked since is still known as revoked. It
 * is a day less than that is known, for clocks that differ.
 */
export const RESTORED_FOR_SECONDS = REVOKED_KEPT_SECONDS - 86_400;

/** More than a key has, and few enough for one command. */
export const MAX_FIELDS = 1_000;
export const MAX_VALUE_LENGTH = 8_192;

const FIELD_NAME = /^[a-z_0-9:]{1,100}$/;

export const isFieldName = (name: string): boolean => FIELD_NAME.test(name);

/** The fields that a gateway can have written. Fields added by hand have no meaning and are not backed up. */
export function ownFields(hash: KeyFields): KeyFields {
  const own = Object.entries(hash).filter(([name, text]) => isFieldName(name) && text.length <= MAX_VALUE_LENGTH);
  return Object.fromEntries(own.slice(0, MAX_FIELDS));
}
