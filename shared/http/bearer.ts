import { hash, timingSafeEqual } from 'node:crypto';

/** The scheme in any case, spaces, one token (`1*SP`, RFC 6750 §2.1, RFC 9110 §11.4). */
const BEARER = /^bearer +([\w.~+/=-]+)$/i;

/** The token of an Authorization header, never empty; undefined if there is none. */
export function bearerToken(authorization: string | undefined): string | undefined {
  return authorization === undefined ? undefined : BEARER.exec(authorization)?.[1];
}

/**
 * Whether an Authorization header carries one of these tokens. All are compared, each in constant time. A header
 * without a token never matches, and neither does an empty expected token, or none.
 */
export function carriesToken(authorization: string | undefined, expected: readonly string[]): boolean {
  const presented = bearerToken(authorization);
  if (presented === undefined) return false;
  // Digests have equal lengths. timingSafeEqual throws on unequal ones.
  const digest = hash('sha256', presented, 'buffer');
  let isOne = false;
  for (const one of expected) isOne = (one !== '' && timingSafeEqual(digest, hash('sha256', one, 'buffer'))) || isOne;
  return isOne;
}
