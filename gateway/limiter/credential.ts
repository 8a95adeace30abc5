import { hash, randomInt } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { NO_USE, type Use } from './secrets.ts';

/**
 * API keys: `as_<id>_<secret><check>`. The id is public and may appear in logs. The secret is 190 bits from a CSPRNG.
 * The check is a CRC-32 over everything before it: a typo or an invented key is refused locally.
 */

const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const ID_LENGTH = 12;
const SECRET_LENGTH = 32;
const CHECK_LENGTH = 6;
const SECRET_START = 'as_'.length + ID_LENGTH + '_'.length;
const CHECK_START = SECRET_START + SECRET_LENGTH;
const API_KEY = new RegExp(`^as_[0-9A-Za-z]{${ID_LENGTH}}_[0-9A-Za-z]{${SECRET_LENGTH + CHECK_LENGTH}}$`);
const API_KEY_IN_TEXT = new RegExp(`as_([0-9A-Za-z]{${ID_LENGTH}})_[0-9A-Za-z]+`, 'g');
const KEY_ID = new RegExp(`^[0-9A-Za-z]{${ID_LENGTH}}$`);

/** The content of a presented key. The limiter decides whether it is valid. */
export interface Credential {
  readonly id: string;
  /** SHA-256 of the secret, in hex. Only this form is stored or compared. */
  readonly digest: string;
  /** Id and digest together identify the presenter. Either of them alone does not. */
  readonly cacheKey: string;
  /** What the request needs. */
  readonly use: Use;
}

/** The digest of a credential, and its use. */
export type Presented = Pick<Credential, 'digest' | 'use'>;

export const credentialOf = (id: string, digest: string, use = NO_USE): Credential => ({
  id,
  digest,
  cacheKey: id + digest,
  use,
});

/** Parses a well-formed key with a correct check. @returns undefined for any other text */
export function parseApiKey(text: string, use = NO_USE): Credential | undefined {
  if (!API_KEY.test(text) || text.slice(CHECK_START) !== checkOf(text.slice(0, CHECK_START))) return undefined;
  return credentialOf(text.slice('as_'.length, SECRET_START - 1), digestOf(text.slice(SECRET_START, CHECK_START)), use);
}

/** The text for a log, with every key shortened to its public part. */
export const redactApiKeys = (text: string): string =>
  text.includes('as_') ? text.replaceAll(API_KEY_IN_TEXT, 'as_$1_…') : text;

/** Whether a text contains a key. */
export const holdsApiKey = (text: string): boolean => text.includes('as_') && text.search(API_KEY_IN_TEXT) !== -1;

/**
 * A new key: the full key, shown only once to its owner, and the credential that is stored.
 * @param id of an existing key that gets a new secret; a new key gets a new id
 */
export function createApiKey(id = randomText(ID_LENGTH)): { apiKey: string; credential: Credential } {
  const secret = randomText(SECRET_LENGTH);
  const unchecked = `as_${id}_${secret}`;
  return { apiKey: unchecked + checkOf(unchecked), credential: credentialOf(id, digestOf(secret)) };
}

export const isKeyId = (text: string): boolean => KEY_ID.test(text);

const SECRET_ID_LENGTH = 8;

/** The public id of a secret, unique within its key. */
export const createSecretId = (): string => randomText(SECRET_ID_LENGTH);

const digestOf = (secret: string): string => hash('sha256', secret, 'hex');

const randomText = (length: number): string =>
  Array.from({ length }, () => ALPHABET[randomInt(ALPHABET.length)]).join('');

/** CRC-32 in base 62, padded to six characters. */
function checkOf(text: string): string {
  let rest = crc32(text);
  let check = '';
  for (let at = 0; at < CHECK_LENGTH; at++) {
    check = ALPHABET[rest % ALPHABET.length] + check;
    rest = Math.floor(rest / ALPHABET.length);
  }
  return check;
}
