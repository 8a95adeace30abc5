import { DAYS_KEPT } from '../limiter/usage-marks.ts';
import { type Activity, auditEntries } from './audit.ts';
import { faultIn } from './key-hash.ts';
import type { Fields, KeyCursor, Storage } from './storage.ts';

/** How long the use of a revoked key is kept, in seconds: until the day of its end can no longer be queried. */
export const REVOKED_KEPT_SECONDS = DAYS_KEPT * 86_400;

/** Keys in a backup: the stored fields of each, as text, including digests and use. No secret is among them. */

export interface BackedUpKey {
  readonly id: string;
  /** The key's place in the order of keys, in Unix seconds: where a backup that was cut off continues. */
  readonly createdAt: number;
  readonly fields: Fields;
}

export interface LeftOut {
  readonly id: string;
  readonly reason: string;
}

export interface BackupPage {
  readonly keys: readonly BackedUpKey[];
  /** Keys that exist, and that no restore would take. */
  readonly leftOut: readonly LeftOut[];
  /** Where to continue; undefined at the end. */
  readonly next: KeyCursor | undefined;
}

/** The result for one key of a backup. A present key is not changed, a revoked key stays revoked. */
export type RestoreOutcome = 'restored' | 'present' | 'revoked' | { readonly refused: string };

/**
 * The age up to which a backup is restored, in seconds: every key that was revoked since is still known as revoked. It
 * is a day less than that is known, for clocks that differ.
 */
export const RESTORED_FOR_SECONDS = REVOKED_KEPT_SECONDS - 86_400;

/** More than a key has, and few enough for one command, and for one line of a file. */
const MAX_FIELDS = 1_000;
const MAX_BYTES = 200_000;

const isFieldName = (name: string): boolean => /^[\w:-]{1,100}$/.test(name);

/** The fields that a gateway can have written. Fields added by hand have no meaning and are not backed up. */
export const ownFields = (hash: Fields): Fields =>
  Object.fromEntries(Object.entries(hash).filter(([name]) => isFieldName(name)));

/** Why a backup does not hold a key with these fields, and a restore does not take it; undefined if they do. */
export function whyNotBackedUp(fields: Fields): string | undefined {
  const names = Object.keys(fields);
  if (names.length === 0) return 'It has no fields.';
  if (names.length > MAX_FIELDS) return `It has more than ${MAX_FIELDS} fields.`;
  const odd = names.find((name) => !isFieldName(name));
  if (odd !== undefined) return `${odd.slice(0, 100)} is no field of a key.`;
  if (Buffer.byteLength(JSON.stringify(fields)) > MAX_BYTES) return `It has more than ${MAX_BYTES} bytes.`;
  return faultIn(fields);
}

/** When the last complete backup was made: every gateway reports the same. */
export class Backups {
  readonly #storage: Storage;

  constructor(storage: Storage) {
    this.#storage = storage;
  }

  /** In Unix seconds; undefined if none is known. */
  async last(): Promise<number | undefined> {
    const text = (await this.#storage.read('backup'))?.completed_at ?? '';
    return /^\d{1,10}$/.test(text) ? Number(text) : undefined;
  }

  async note(seconds: number, entry: Activity): Promise<void> {
    const set = { completed_at: String(seconds) };
    await this.#storage.change({ parts: [{ record: 'backup', set }], entries: auditEntries(entry) });
  }
}
