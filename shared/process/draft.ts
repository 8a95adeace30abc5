import { randomUUID } from 'node:crypto';
import { mkdir, open, rm, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';

const OWNER_ONLY = 0o600;

/**
 * Writes a file for the owner only. The text goes into a draft in the same folder, and `place` puts the draft in its
 * place: with rename(2) to replace a file, with link(2) only if there is none. Draft and folder are synced, so that
 * readers see a whole file or none, even after a crash. The draft is always removed.
 * @param path the file, whose folder is created if missing
 * @throws the system's error, and what `place` throws
 */
export async function throughDraft(
  path: string,
  text: string,
  place: (draft: string, path: string) => Promise<void>,
): Promise<void> {
  const folder = dirname(path);
  await mkdir(folder, { recursive: true });
  const draft = `${path}.${randomUUID()}`;
  try {
    await writeFile(draft, text, { flag: 'wx', mode: OWNER_ONLY, flush: true });
    await place(draft, path);
    await sync(folder);
  } finally {
    await rm(draft, { force: true });
  }
}

async function sync(folder: string): Promise<void> {
  await using directory = await open(folder, 'r');
  await directory.sync();
}
