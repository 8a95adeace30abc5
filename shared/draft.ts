import { randomUUID } from 'node:crypto';
import { mkdir, open, rm } from 'node:fs/promises';
import { dirname } from 'node:path';

const OWNER_ONLY = 0o600;

/**
 * Writes a file of the owner's as a draft beside it, which `place` then puts where it belongs: with rename(2) in place of
 * what is there, or with link(2) only where nothing is. Readers see a whole file or none, after a crash too: draft and
 * folder are synced. The draft is removed in every case.
 * @param path in a folder that is made when missing
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
    await write(draft, text);
    await place(draft, path);
    await sync(folder);
  } finally {
    await rm(draft, { force: true });
  }
}

async function write(path: string, text: string): Promise<void> {
  const file = await open(path, 'wx', OWNER_ONLY);
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
}

async function sync(folder: string): Promise<void> {
  const directory = await open(folder, 'r');
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}
