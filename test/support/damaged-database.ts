import { open } from 'node:fs/promises';
import { DatabaseSync } from 'node:sqlite';

const PAGE_BYTES = 4_096;

/** Overwrites the last page of a table or an index in an SQLite file that nobody has open. */
export async function damage(path: string, name: string): Promise<void> {
  const database = new DatabaseSync(path, { readOnly: true });
  const pages = database.prepare('SELECT pageno FROM dbstat WHERE name = ? ORDER BY path DESC LIMIT 1');
  const number = Number(pages.get(name)?.pageno);
  database.close();
  const file = await open(path, 'r+');
  await file.write(Buffer.alloc(PAGE_BYTES), 0, PAGE_BYTES, (number - 1) * PAGE_BYTES);
  await file.close();
}
