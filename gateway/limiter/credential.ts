import { hash, randomInt } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { addressDigits, isWithin } from './networks.ts';

/**
 * API keys: `as_<id>_<secret><checksum>`. The id is public and may appear in logs. The secret is 190 bits from a
 * CSPRNG. The checksum is a CRC-32 of everything before it, so a mistyped or invented key is refused locally.
 */

const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const ID_LENGTH = 12;
const SECRET_LENGTH = 32;
const CHECK_LENGTH = 6;
const SECRET_START = 'as_'.length + ID_LENGTH + '_'.length;
const CHECK_START = SECRET_START + SECRET_LENGTH;
const PATTERN = `as_[0-9A-Za-z]{${ID_LENGTH}}_[0-9A-Za-z]{${SECRET_LENGTH + CHECK_LENGTH}}`;
const API_KEY = new RegExp(`^${PATTERN}$`);
/** Omits the `a`, which decoding can consume as part of an escape: `%5as_`. */
const WHOLE_API_KEY = new RegExp(PATTERN.slice(1), 'g');
const API_KEY_IN_TEXT = new RegExp(`(as_[0-9A-Za-z]{${ID_LENGTH}}_)[0-9A-Za-z]+`, 'g');
const DECODED_API_KEY = new RegExp(`(s_[0-9A-Za-z]{${ID_LENGTH}}_)[0-9A-Za-z].*`, 's');
const KEY_ID = new RegExp(`^[0-9A-Za-z]{${ID_LENGTH}}$`);

/** A presented API key. The limiter decides whether it is valid. */
export interface Credential {
  readonly id: string;
  /** SHA-256 of the secret, in base64url. Only this form is stored or compared. */
  readonly digest: string;
  /** Id and digest together identify the presenter. Neither does so alone. */
  readonly cacheKey: string;
  readonly use: Use;
}

export type Presented = Pick<Credential, 'digest' | 'use'>;

export const credentialOf = (id: string, digest: string, use = NO_USE): Credential => ({
  id,
  digest,
  cacheKey: id + digest,
  use,
});

/** Parses a well-formed key with a correct checksum. @returns undefined for any other string */
export function parseApiKey(text: string, use = NO_USE): Credential | undefined {
  if (!API_KEY.test(text) || text.slice(CHECK_START) !== checkOf(text.slice(0, CHECK_START))) return undefined;
  return credentialOf(text.slice('as_'.length, SECRET_START - 1), digestOf(text.slice(SECRET_START, CHECK_START)), use);
}

/**
 * Shortens every key in a log message to its public part. If a key is encoded, the message is cut off after that part.
 */
export const redactApiKeys = (text: string): string =>
  text.includes('as_') || text.includes('%') ? redact(text, API_KEY_IN_TEXT, DECODED_API_KEY) : text;

/** @param decoded matches the rest of a decoded string, from a secret onwards */
export function redact(text: string, secret: RegExp, decoded: RegExp): string {
  const plain = decode(text);
  if (plain === text) return text.replaceAll(secret, '$1…');
  const shown = plain.replace(decoded, '$1…');
  return shown === plain ? text : shown;
}

/** Whether a string contains a complete key with a correct checksum, even if it is encoded. */
export const holdsApiKey = (text: string): boolean =>
  (text.includes('as_') || text.includes('%')) &&
  (decode(text).match(WHOLE_API_KEY) ?? []).some((found) => parseApiKey(`a${found}`) !== undefined);

const PERCENT = 0x25;
/** The characters of keys and tokens, and `%` itself, by the two hexadecimal digits of their escape. */
const ESCAPED = new Map(
  Array.from(Buffer.from(`${ALPHABET}_-%`)).flatMap((code) => {
    const digits = code.toString(16);
    return [digits, digits.toUpperCase()].map((two) => [Buffer.from(two).readUInt16BE(), code] as const);
  }),
);
/** An escape of one of these characters. Most strings have none. */
const ESCAPE = /%(?:2[5d]|3\d|[46][1-9a-f]|[57][\da]|5f)/i;

/** Decodes these characters in one pass, even if they are encoded several times. */
function decode(text: string): string {
  if (!ESCAPE.test(text)) return text;
  const bytes = Buffer.from(text);
  let length = 0;
  for (let at = 0; at < bytes.length; at++) {
    bytes[length++] = bytes[at] as number;
    // A decoded character can complete another escape.
    while (length > 2 && bytes[length - 3] === PERCENT) {
      const code = ESCAPED.get(bytes.readUInt16BE(length - 2));
      if (code === undefined) break;
      length -= 2;
      bytes[length - 1] = code;
    }
  }
  return bytes.toString('utf8', 0, length);
}

/**
 * Creates an API key: the full key, shown once to its owner, and the credential to store.
 * @param id the id of an existing key that gets a new secret. By default, a new id
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

/**
 * Base64url rather than hex: with its prefix, the digest has at most 64 bytes, so Redis needs half the memory for a
 * hash of such fields.
 */
const digestOf = (secret: string): string => hash('sha256', secret, 'base64url');

/** Letters and digits from a CSPRNG. */
export const randomText = (length: number): string =>
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

/** The maximum number of secrets of a key. They share its buckets. */
export const MAX_SECRETS = 20;

export const SCOPES = ['read', 'write'] as const;
export type Scope = (typeof SCOPES)[number];

/** What a secret is bound to: scopes, and the networks from which its requests may come. */
export interface Bounds {
  readonly scope: readonly Scope[];
  /** In the format of networks.ts. If empty, any network is allowed. */
  readonly networks: readonly string[];
}

/** A secret of a key. Times are Unix time in microseconds. */
export interface Secret extends Bounds {
  /** Public; may appear in logs. */
  readonly id: string;
  readonly digest: string;
  readonly name: string;
  readonly createdAt: number;
  readonly expiresAt?: number | undefined;
  /** The parts that cannot be read, for example after a manual edit. */
  readonly unreadable?: readonly UnreadablePart[] | undefined;
}

export type UnreadablePart = 'digest' | 'name' | 'scope' | 'networks' | 'expiresAt' | 'createdAt';

/** Whether decisions can use a secret. */
export const isDecidable = ({ unreadable }: Secret): boolean => !unreadable?.includes('expiresAt');

/** What makes a key invalid for all its secrets. */
export interface Validity {
  readonly expiresAt?: number | undefined;
  readonly disabled?: boolean | undefined;
}

export interface Use {
  /** Undefined if a secret of any scope will do. */
  readonly scope: Scope | undefined;
  readonly address: string;
}

/** A use with neither scope nor address. It is allowed only for secrets that are not bound to a network. */
const NO_USE: Use = { scope: undefined, address: '' };

export function isFromAllowedNetwork({ networks }: Bounds, { address }: Use): boolean {
  if (networks.length === 0) return true;
  const digits = addressDigits(address);
  return networks.some((network) => isWithin(network, digits));
}

export const allowsScope = ({ scope }: Bounds, use: Use): boolean =>
  use.scope === undefined || scope.includes(use.scope);

export const secretOf = ({ secrets }: { readonly secrets: readonly Secret[] }, digest: string): Secret | undefined =>
  secrets.find((secret) => secret.digest === digest);

/** Why a secret is not accepted for its key. */
export interface Rejection {
  readonly reason: 'unknown' | 'disabled' | 'expired' | 'elsewhere';
  /** Set if the key accepts no secret at all. */
  readonly isOfKey?: true;
}

/**
 * @returns undefined if the secret is accepted
 * @param use undefined if the use was already checked
 */
export function rejectionOf(
  key: Validity,
  secret: Pick<Secret, 'expiresAt'> & Bounds,
  now: number,
  use?: Use,
): Rejection | undefined {
  if (secret.expiresAt !== undefined && secret.expiresAt <= now) return { reason: 'expired' };
  if (use !== undefined && !isFromAllowedNetwork(secret, use)) return { reason: 'elsewhere' };
  const reason = inactiveReason(key, now);
  return reason && { reason, isOfKey: true };
}

/** Why a key is invalid, whichever of its secrets is used. Checks in the same order as a decision. */
export function inactiveReason({ disabled, expiresAt }: Validity, now: number): 'disabled' | 'expired' | undefined {
  if (disabled) return 'disabled';
  return expiresAt !== undefined && expiresAt <= now ? 'expired' : undefined;
}

export const isBound = ({ scope, networks }: Bounds): boolean => scope.length < SCOPES.length || networks.length > 0;

/** When the credential expires: with the key or with the secret, whichever comes first. 0 for never. */
export function endsAt({ expiresAt = Infinity }: Validity, secret: Secret): number {
  const end = Math.min(expiresAt, secret.expiresAt ?? Infinity);
  return end === Infinity ? 0 : end;
}

/** Reads the bounds written by decide.lua: `read;4:0a/8,4:c0a8/16`. @returns undefined for an unbound secret */
export function readBounds(text: string): Bounds | undefined {
  if (text === '-') return undefined;
  const [scope = '', networks = ''] = text.split(';');
  return { scope: readScope(scope), networks: readNetworks(networks) };
}

export const readScope = (text: string): Scope[] => SCOPES.filter((scope) => text.split(',').includes(scope));
export const readNetworks = (text: string): string[] => (text === '-' || text === '' ? [] : text.split(','));
