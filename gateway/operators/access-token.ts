import { hash, randomBytes, randomInt, timingSafeEqual } from 'node:crypto';
import { redactApiKeys } from '../limiter/credential.ts';

/**
 * Named tokens of operators: `op_<id>_<secret>`. The id is public and may appear in logs. The secret is 256 bits from a
 * CSPRNG. Only the digest of the whole token is stored.
 */

const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const ID_LENGTH = 8;
const SECRET_BYTES = 32;
const TOKEN = new RegExp(`^op_([0-9A-Za-z]{${ID_LENGTH}})_[\\w-]{43}$`);
const TOKEN_IN_TEXT = new RegExp(`op_([0-9A-Za-z]{${ID_LENGTH}})_[\\w-]+`, 'g');

/** Creates a token, with its id and its digest. The token is shown only once. */
export function createAccessToken(): { readonly id: string; readonly token: string; readonly digest: string } {
  const id = Array.from({ length: ID_LENGTH }, () => ALPHABET[randomInt(ALPHABET.length)]).join('');
  const token = `op_${id}_${randomBytes(SECRET_BYTES).toString('base64url')}`;
  return { id, token, digest: digestOf(token).toString('hex') };
}

/** The id of a well-formed token; undefined for any other text, so that a made-up one costs no look-up. */
export const accessTokenId = (token: string): string | undefined => TOKEN.exec(token)?.[1];

/** Whether a token has this digest, in hex. It takes constant time. An empty token or digest never matches. */
export function hasDigest(token: string, digest: string): boolean {
  const expected = Buffer.from(digest, 'hex');
  const found = digestOf(token);
  return token !== '' && expected.length === found.length && timingSafeEqual(expected, found);
}

/** Shortens every API key and every token in a text to its public part. */
export const redactSecrets = (text: string): string => redactApiKeys(text).replaceAll(TOKEN_IN_TEXT, 'op_$1_…');

const digestOf = (token: string): Buffer => hash('sha256', token, 'buffer');
