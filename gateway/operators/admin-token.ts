import { randomBytes } from 'node:crypto';
import { link, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { throughDraft } from '../../shared/process/draft.ts';
import { SettingsError, token as tokenForm } from '../../shared/process/env.ts';

/** The file in which a gateway keeps its generated token, and in which the command line finds it. */
export const tokenFile = (directory: string): string => join(directory, 'admin-token');

/**
 * Reads the token kept in the folder. If there is none yet, creates one. If several processes start at once, the first
 * to link its file decides the token of all.
 * @throws {SettingsError} if the file holds no token, or none can be kept
 */
export async function keptToken(directory: string): Promise<string> {
  const path = tokenFile(directory);
  const kept = await readToken(path);
  if (kept !== undefined) return kept;
  const made = randomBytes(32).toString('base64url');
  await throughDraft(path, `${made}\n`, linkUnlessThere).catch((fault: Error) => {
    throw new SettingsError(`${path}: cannot store the operators' token there (${fault.message}). ${REMEDY}`);
  });
  return (await readToken(path)) ?? made;
}

const REMEDY = 'Make DATA_DIR writable and free some space, or set ADMIN_TOKEN.';

async function linkUnlessThere(draft: string, path: string): Promise<void> {
  await link(draft, path).catch((fault: NodeJS.ErrnoException) => {
    if (fault.code !== 'EEXIST') throw fault;
  });
}

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
