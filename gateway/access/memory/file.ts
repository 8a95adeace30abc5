import { randomUUID } from 'node:crypto';
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';

/** Small JSON files for one owner: read whole, and replaced whole, so that a crash leaves the old one or the new one. */

const OWNER_ONLY = 0o600;

/** @throws when the file is there and is not JSON */
export async function readJsonFile(path: string): Promise<unknown> {
  const text = await readFile(path, 'utf8').catch((fault: NodeJS.ErrnoException) => {
    if (fault.code === 'ENOENT') return undefined;
    throw fault;
  });
  if (text === undefined) return undefined;
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new Error(`${path} is not JSON; mend it, or move it away to start afresh.`, { cause });
  }
}

export async function writeJsonFile(path: string, value: unknown): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  const draft = `${path}.${randomUUID()}`;
  await writeFile(draft, `${JSON.stringify(value, undefined, 2)}\n`, { mode: OWNER_ONLY, flush: true });
  await rename(draft, path);
}
