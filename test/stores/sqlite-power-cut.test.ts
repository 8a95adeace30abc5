import { randomBytes } from 'node:crypto';
import { cp, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { SqliteStorage } from '../../gateway/stores/sqlite/storage.ts';
import { temporaryFolder } from '../support/stack.ts';
import { commitEnds, frameEnds } from '../support/wal.ts';

const CHANGES = 6;

/** Makes changes. `synced` has the length of the log before the first change and at each acknowledgement. */
async function record() {
  const folder = await temporaryFolder();
  const storage = new SqliteStorage(join(folder, 'live'));
  const wal = join(folder, 'live', 'gateway.db-wal');
  // The first change after a start resets the log.
  await storage.change({ parts: [{ record: 'backup', set: { completed_at: '1' } }], entries: [] });
  const length = async () => commitEnds(await readFile(wal)).at(-1) as number;
  const synced = [await length()];
  for (let number = 1; number <= CHANGES; number++) {
    const text = String(number);
    await storage.change({
      parts: [
        { record: 'key:a', set: { one: text, long: text.repeat(6_000) } },
        { record: 'key:b', set: { two: text } },
      ],
      entries: [{ log: 'audit', fields: { text } }],
    });
    synced.push(await length());
  }
  await cp(join(folder, 'live', 'gateway.db'), join(folder, 'gateway.db'));
  const bytes = (await readFile(wal)).subarray(0, await length());
  await storage.close();
  return { folder, wal: bytes, synced };
}

/** The number of the last change that a start with this log finds. Fails if a change is incomplete. */
async function lastFound(folder: string, wal: Buffer): Promise<number> {
  const after = join(folder, randomBytes(4).toString('hex'));
  await mkdir(after);
  await cp(join(folder, 'gateway.db'), join(after, 'gateway.db'));
  await writeFile(join(after, 'gateway.db-wal'), wal);
  const storage = new SqliteStorage(after);
  const [a, b] = await storage.readMany(['key:a', 'key:b']);
  const entries = await storage.tail('audit', { count: CHANGES });
  const found = entries.length;
  const texts = Array.from({ length: found }, (_, at) => String(found - at));
  expect(entries.map(([, { text }]) => text)).toEqual(texts);
  const [text] = texts;
  expect([a?.one, b?.two, a?.long]).toEqual([text, text, text?.repeat(6_000)]);
  await storage.change({ parts: [{ record: 'key:a', set: { one: 'next' } }], entries: [] });
  expect(await storage.read('key:a')).toMatchObject({ one: 'next' });
  await storage.close();
  return found;
}

test('a power cut anywhere in the log loses no acknowledged change and leaves none incomplete', async () => {
  const { folder, wal, synced } = await record();
  expect(synced.length).toBe(CHANGES + 1);
  const ends = frameEnds(wal.length).filter((end) => end >= (synced[0] ?? 0));
  expect(ends.length).toBeGreaterThan(CHANGES * 4);
  for (const end of ends) {
    const made = synced.findLastIndex((length) => length <= end);
    expect(await lastFound(folder, wal.subarray(0, end))).toBe(made);
    const within = end + 1 + Math.floor(Math.random() * 4_000);
    if (within < wal.length) expect(await lastFound(folder, wal.subarray(0, within))).toBe(made);
  }
});

test('any bytes that a power cut leaves after the last synced frame are ignored', async () => {
  const { folder, wal, synced } = await record();
  for (const [made, length] of synced.slice(0, -1).entries()) {
    const rest = wal.length - length;
    const torn = Buffer.from(wal);
    torn.set(randomBytes(512), length + 512);
    for (const behind of [randomBytes(rest), Buffer.alloc(rest), torn.subarray(length)])
      expect(await lastFound(folder, Buffer.concat([wal.subarray(0, length), behind]))).toBe(made);
  }
});
