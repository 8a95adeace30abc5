import { isKeyId } from '../limiter/credential.ts';
import type { KeyEntry } from '../limiter/key-record.ts';
import { DAYS_KEPT } from '../limiter/usage-marks.ts';
import type { KeyCursor } from './storage.ts';

/**
 * A walk through all keys, including those revoked recently, page by page. A key never changes its place, even when it
 * is revoked. So each is visited exactly once, whatever is issued and revoked meanwhile.
 */

export interface WalkQuery {
  /** Undefined to begin. */
  readonly after: KeyCursor | undefined;
  /** Maximum number of keys. */
  readonly limit: number;
}

export interface KeyPage {
  readonly keys: readonly KeyEntry[];
  /** Where to continue; undefined at the end. */
  readonly next: KeyCursor | undefined;
}

export const compareCursors = (a: KeyCursor, b: KeyCursor): number =>
  a.createdAt - b.createdAt || (a.id < b.id ? -1 : a.id > b.id ? 1 : 0);

/** A cursor in its form for URLs. */
export const writeCursor = ({ createdAt, id }: KeyCursor): string => `${createdAt}-${id}`;

/** Undefined if the text is not a cursor. */
export function readCursor(text: string): KeyCursor | undefined {
  const [, seconds, id = ''] = /^(-?[\d.e+]{1,30})-(.*)$/.exec(text) ?? [];
  const createdAt = Number(seconds);
  return Number.isFinite(createdAt) && isKeyId(id) ? { createdAt, id } : undefined;
}

/** How long the use of a revoked key is kept, in seconds: until the day of its end can no longer be queried. */
export const REVOKED_KEPT_SECONDS = DAYS_KEPT * 86_400;
