import { randomUUID } from 'node:crypto';
import { link, mkdir, open, rm, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';

const OWNER_ONLY = 0o600;

/**
 * Writes a file that only its owner can read, unless the file exists. The text goes into a draft in the same folder,
 * which is then linked (link(2)). Draft and folder are synced, so that readers see a whole file or none, even after a
 * crash. The draft is always removed.
 * @param path the file, whose folder is created if missing
 * @throws the system's error
 */
export async function writeUnlessThere(path: string, text: string): Promise<void> {
  const folder = dirname(path);
  await mkdir(folder, { recursive: true });
  const draft = `${path}.${randomUUID()}`;
  try {
    await writeFile(draft, text, { flag: 'wx', mode: OWNER_ONLY, flush: true });
    await link(draft, path);
    await using directory = await open(folder, 'r');
    await directory.sync();
  } catch (fault) {
    if ((fault as NodeJS.ErrnoException).code !== 'EEXIST') throw fault;
  } finally {
    await rm(draft, { force: true });
  }
}
