import { writeSync } from 'node:fs';
import { SqliteStorage } from '../../gateway/stores/sqlite/storage.ts';

/**
 * `node sqlite-writer.ts <folder> [<first number>]` keeps the database of a folder open. With a number, it endlessly
 * creates, updates, bans and revokes keys, four at a time, and prints a line for each acknowledged change. Every fifth
 * key is not revoked.
 */

const [folder = '', first] = process.argv.slice(2);
const storage = new SqliteStorage(folder, { auditLength: 1_000_000 });
let next = Number(first);

writeSync(1, 'open\n');
if (first === undefined) setInterval(() => undefined, 60_000);
else for (let client = 0; client < 4; client++) void change();

async function change(): Promise<void> {
  for (;;) {
    const id = String(next++);
    const record = `key:${id}` as const;
    const entry = (action: string) => [{ log: 'audit', fields: { action, target: id } } as const];
    const steps = {
      create: () =>
        storage.change({
          parts: [{ record, exists: false, set: { created_at: id, one: 'created', two: 'created' } }],
          entries: entry('create'),
        }),
      update: () =>
        storage.change({
          parts: [
            { record, exists: true, expect: { one: 'created' }, set: { one: 'updated' } },
            { record, set: { two: 'updated' } },
          ],
          entries: entry('update'),
        }),
      ban: () => storage.save([[id, { banned_until: '1' }]], true).then(() => true),
      revoke: () =>
        storage.change({
          parts: [
            {
              record,
              exists: true,
              moveTo: { record: `revoked:${id}`, fields: ['created_at', 'banned_until'], seconds: 1e6 },
            },
          ],
          entries: entry('revoke'),
        }),
    };
    for (const [name, step] of Object.entries(steps)) {
      if (name === 'revoke' && Number(id) % 5 === 0) continue;
      writeSync(1, `${(await step()) ? name : 'refused'} ${id}\n`);
    }
  }
}
