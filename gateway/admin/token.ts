import { randomBytes } from 'node:crypto';
import { link, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { throughDraft } from '../../shared/draft.ts';
import { SettingsError, token as tokenForm } from '../../shared/env.ts';

/** Where a gateway keeps the token that it made for itself, and the command line finds it. */
export const tokenFile = (directory: string): string => join(directory, 'admin-token');

/**
 * The token kept in the folder. Where there is none yet, one is made; of several starts at once the first one to link its
 * own makes the token of all.
 * @throws {SettingsError} when the file holds no token, or none can be kept
 */
export async function keptToken(directory: string): Promise<string> {
  const path = tokenFile(directory);
  const kept = await readToken(path);
  if (kept !== undefined) return kept;
  const made = randomBytes(32).toString('base64url');
  await throughDraft(path, `${made}\n`, linkUnlessThere).catch((fault: Error) => {
    throw new SettingsError(`${path}: the operators' token cannot be kept there (${fault.message}). ${REMEDY}`);
  });
  return (await readToken(path)) ?? made;
}

const REMEDY = 'Give DATA_DIR room and the right to write, or set ADMIN_TOKEN.';

async function linkUnlessThere(draft: string, path: string): Promise<void> {
  await link(draft, path).catch((fault: NodeJS.ErrnoException) => {
    if (fault.code !== 'EEXIST') throw fault;
  });
}

/**
 * The token in the file; undefined where there is no file.
 * @throws {SettingsError} when what it holds is no token, the system's error when it cannot be read
 */
export async function readToken(path: string): Promise<string | undefined> {
  const text = await readFile(path, 'utf8').catch((fault: NodeJS.ErrnoException) => {
    if (fault.code !== 'ENOENT') throw fault;
  });
  if (text === undefined) return undefined;
  const { success, data } = tokenForm.safeParse(text.trim());
  if (success) return data;
  throw new SettingsError(
    `${path} does not hold a token of at least 16 characters, without spaces. ` +
      'Remove the file and start the gateway again, which makes a new one; or set ADMIN_TOKEN.',
  );
}
