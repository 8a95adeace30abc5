import { hash, randomBytes, timingSafeEqual } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { writeUnlessThere } from '../../shared/process/draft.ts';
import { SettingsError, token as tokenForm } from '../../shared/process/env.ts';
import { randomText, redact, redactApiKeys } from '../limiter/credential.ts';

/**
 * Operators' named tokens: `op_<id>_<secret>`. The id is public and may appear in logs. The secret is 256 bits from a
 * CSPRNG. Only the digest of the whole token is stored.
 */

const ID_LENGTH = 8;
const SECRET_BYTES = 32;
const TOKEN = new RegExp(`^op_([0-9A-Za-z]{${ID_LENGTH}})_[\\w-]{43}$`);
const TOKEN_IN_TEXT = new RegExp(`(op_[0-9A-Za-z]{${ID_LENGTH}}_)[\\w-]+`, 'g');
const DECODED_TOKEN = new RegExp(`(op_[0-9A-Za-z]{${ID_LENGTH}}_)[\\w-].*`, 's');

/** Creates a token, with its id and its digest. The token is shown only once. */
export function createAccessToken(): { readonly id: string; readonly token: string; readonly digest: string } {
  const id = randomText(ID_LENGTH);
  const token = `op_${id}_${randomBytes(SECRET_BYTES).toString('base64url')}`;
  return { id, token, digest: digestOf(token).toString('hex') };
}

/** The id of a well-formed token; undefined for any other string, so that a malformed token costs no lookup. */
export const accessTokenId = (token: string): string | undefined => TOKEN.exec(token)?.[1];

/**
 * Whether a token has this digest, in hex. The comparison takes constant time. An empty token or digest never matches.
 */
export function hasDigest(token: string, digest: string): boolean {
  const expected = Buffer.from(digest, 'hex');
  const found = digestOf(token);
  return token !== '' && expected.length === found.length && timingSafeEqual(expected, found);
}

/** Shortens every API key and every token in a string to its public part. */
export const redactSecrets = (text: string): string => redact(redactApiKeys(text), TOKEN_IN_TEXT, DECODED_TOKEN);

const digestOf = (token: string): Buffer => hash('sha256', token, 'buffer');

/** The file in which a gateway stores its generated token, for the command line to read. */
export const tokenFile = (directory: string): string => join(directory, 'admin-token');

/**
 * Reads the token stored in the folder. If there is none yet, creates one. If several processes start at the same time,
 * all of them use the token of the first one to link its file.
 * @throws {SettingsError} if the file does not contain a valid token, or a new one cannot be stored
 */
export async function keptToken(directory: string): Promise<string> {
  const path = tokenFile(directory);
  const kept = await readToken(path);
  if (kept !== undefined) return kept;
  const made = randomBytes(32).toString('base64url');
  await writeUnlessThere(path, `${made}\n`).catch((fault: Error) => {
    throw new SettingsError(`${path}: cannot store the admin token (${fault.message}). ${REMEDY}`);
  });
  return (await readToken(path)) ?? made;
}

const REMEDY = 'Make DATA_DIR writable and free some space, or set ADMIN_TOKEN.';

/**
 * Reads the token from a file; undefined if there is no file.
 * @throws {SettingsError} if the content is not a token; the system's error if the file cannot be read
 */
export async function readToken(path: string): Promise<string | undefined> {
  const text = await readFile(path, 'utf8').catch((fault: NodeJS.ErrnoException) => {
    if (fault.code !== 'ENOENT') throw fault;
  });
  if (text === undefined) return undefined;
  const { success, data } = tokenForm.safeParse(text.trim());
  if (success) return data;
  throw new SettingsError(
    `${path} does not contain a token of at least 16 characters without spaces. ` +
      'Remove the file and restart the gateway, which creates a new one, or set ADMIN_TOKEN.',
  );
}
