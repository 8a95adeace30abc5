import { isKeyId } from './credential.ts';
import type { KeyEntry } from './keys.ts';
import { DAYS_KEPT } from './usage.ts';

/**
 * A walk through all keys, those revoked of late among them, a page at a time. A key keeps its place in it for good, revoked
 * or not: each is met exactly once, whatever is issued and revoked meanwhile.
 */

/** The place of a key: keys are walked by time of creation, the oldest first, and by id where that is the same. */
export interface Place {
  /** Unix seconds. */
  readonly createdAt: number;
  readonly id: string;
}

export interface WalkQuery {
  /** Undefined to begin. */
  readonly after: Place | undefined;
  /** Keys at most. */
  readonly limit: number;
}

export interface Walked {
  readonly keys: readonly KeyEntry[];
  /** Where to go on; undefined at the end. */
  readonly next: Place | undefined;
}

export const comparePlaces = (a: Place, b: Place): number =>
  a.createdAt - b.createdAt || (a.id < b.id ? -1 : a.id > b.id ? 1 : 0);

/** A place as it stands in a URL. */
export const writePlace = ({ createdAt, id }: Place): string => `${createdAt}-${id}`;

/** Undefined for what is no place. */
export function readPlace(text: string): Place | undefined {
  const [, seconds, id = ''] = /^(-?[\d.e+]{1,30})-(.*)$/.exec(text) ?? [];
  const createdAt = Number(seconds);
  return Number.isFinite(createdAt) && isKeyId(id) ? { createdAt, id } : undefined;
}

/** So long after its end, in seconds, what a revoked key has used is kept: until the day of its end is out of reach. */
export const REVOKED_KEPT_SECONDS = DAYS_KEPT * 86_400;
