import { randomBytes } from 'node:crypto';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

const OWNER_ONLY = 0o600;

/** Where a gateway keeps the token that it made for itself, and the command line finds it. */
export const tokenFile = (directory: string): string => join(directory, 'admin-token');

/** The token kept in the file; made, for the owner's eyes only, where there is none yet. */
export async function keptToken(directory: string): Promise<string> {
  await mkdir(directory, { recursive: true });
  const path = tokenFile(directory);
  try {
    const token = randomBytes(32).toString('base64url');
    await writeFile(path, `${token}\n`, { mode: OWNER_ONLY, flag: 'wx' });
    return token;
  } catch (fault) {
    if ((fault as NodeJS.ErrnoException).code !== 'EEXIST') throw fault;
    return (await readFile(path, 'utf8')).trim();
  }
}
