import { hash, randomInt } from 'node:crypto';
import { crc32 } from 'node:zlib';

/**
 * API keys: `as_<id>_<secret><check>`. The id is public and fit for logs, the secret is 190 bits from a CSPRNG, and the
 * check (CRC-32 over everything before it) lets a typo or a made-up key be refused without asking anyone.
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

/** What a presented key says of itself; whether it opens anything is for the limiter to say. */
export interface Credential {
  readonly id: string;
  /** SHA-256 of the secret, in hex: the only form of it that is stored or compared. */
  readonly digest: string;
  /** Both together, which stand for who presents it: an id alone is no secret, and a secret alone no key. */
  readonly cacheKey: string;
}

export const credentialOf = (id: string, digest: string): Credential => ({ id, digest, cacheKey: id + digest });

/** The parts of a key that is well-formed and has the right check; undefined for any other text. */
export function parseApiKey(text: string): Credential | undefined {
  if (!API_KEY.test(text) || text.slice(CHECK_START) !== checkOf(text.slice(0, CHECK_START))) return undefined;
  return credentialOf(text.slice('as_'.length, SECRET_START - 1), digestOf(text.slice(SECRET_START, CHECK_START)));
}

/** A text for the log in which every key that somebody put there is cut down to its public part. */
export const redactApiKeys = (text: string): string => text.replaceAll(API_KEY_IN_TEXT, 'as_$1_…');

/** Whether somebody put a key into a text in which none belongs. */
export const holdsApiKey = (text: string): boolean => text.includes('as_') && text.search(API_KEY_IN_TEXT) !== -1;

/**
 * A new key: the whole of it, for its owner and for this once, and what is kept of it.
 * @param id of the key that gets a new secret; a new key has an id of its own
 */
export function createApiKey(id = randomText(ID_LENGTH)): { apiKey: string; credential: Credential } {
  const secret = randomText(SECRET_LENGTH);
  const unchecked = `as_${id}_${secret}`;
  return { apiKey: unchecked + checkOf(unchecked), credential: credentialOf(id, digestOf(secret)) };
}

export const isKeyId = (text: string): boolean => KEY_ID.test(text);

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
