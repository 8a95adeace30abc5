import { DAYS_KEPT } from '../limiter/key-record.ts';
import { type Activity, auditEntries } from './audit.ts';
import { faultIn } from './key-hash.ts';
import type { Fields, KeyCursor, Storage } from './storage.ts';

/**
 * How long the usage of a revoked key is kept, in seconds. After that, operators can no longer query the day of its
 * revocation.
 */
export const REVOKED_KEPT_SECONDS = DAYS_KEPT * 86_400;

/** A key in a backup: its stored fields as text, including digests and usage, but no secret. */
export interface BackedUpKey {
  readonly id: string;
  /** The key's place in the order of keys, in Unix seconds: an interrupted backup continues there. */
  readonly createdAt: number;
  readonly fields: Fields;
}

export interface LeftOut {
  readonly id: string;
  readonly reason: string;
}

export interface BackupPage {
  readonly keys: readonly BackedUpKey[];
  /** Existing keys that no restore would accept. */
  readonly leftOut: readonly LeftOut[];
  /** Where to continue; undefined at the end. */
  readonly next: KeyCursor | undefined;
}

/** The result of restoring one key. A present key is not changed, and a revoked key stays revoked. */
export type RestoreOutcome = 'restored' | 'present' | 'revoked' | { readonly refused: string };

/**
 * The age up to which a backup can be restored, in seconds. All revocations since such a backup are still known. One
 * day is subtracted because clocks differ.
 */
export const RESTORED_FOR_SECONDS = REVOKED_KEPT_SECONDS - 86_400;

/** More fields than a key has, but few enough for one command and for one line of a file. */
const MAX_FIELDS = 1_000;
const MAX_BYTES = 200_000;

const isFieldName = (name: string): boolean => /^[\w:-]{1,100}$/.test(name);

/** The fields that a gateway writes. Fields added by hand have no meaning and are not backed up. */
export const ownFields = (hash: Fields): Fields =>
  Object.fromEntries(Object.entries(hash).filter(([name]) => isFieldName(name)));

/** Why a backup or a restore must leave out a key with these fields; undefined if it need not. */
export function whyNotBackedUp(fields: Fields): string | undefined {
  const names = Object.keys(fields);
  if (names.length === 0) return 'It has no fields.';
  if (names.length > MAX_FIELDS) return `It has more than ${MAX_FIELDS} fields.`;
  const odd = names.find((name) => !isFieldName(name));
  if (odd !== undefined) return `${odd.slice(0, 100)} is no field of a key.`;
  if (Buffer.byteLength(JSON.stringify(fields)) > MAX_BYTES) return `It has more than ${MAX_BYTES} bytes.`;
  return faultIn(fields);
}

/** Reports when the last complete backup was made. All gateways report the same. */
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
