import { hash, timingSafeEqual } from 'node:crypto';

/** One scheme, in any case, spaces, one token (`1*SP`, RFC 6750 §2.1, RFC 9110 §11.4). */
const BEARER = /^bearer +([\w.~+/=-]+)$/i;

/** The token of an Authorization header, never empty; undefined where it carries none. */
export function bearerToken(authorization: string | undefined): string | undefined {
  return authorization === undefined ? undefined : BEARER.exec(authorization)?.[1];
}

/**
 * Whether an Authorization header carries this very token, in a time that does not tell how much of it was right. A header
 * without a token carries none, not an empty one; and no header carries an expected token that is empty.
 */
export function carriesToken(authorization: string | undefined, expected: string): boolean {
  const presented = bearerToken(authorization);
  if (presented === undefined || expected === '') return false;
  // Digests have one length, whatever the lengths of the tokens; timingSafeEqual throws on unequal ones.
  return timingSafeEqual(hash('sha256', presented, 'buffer'), hash('sha256', expected, 'buffer'));
}
