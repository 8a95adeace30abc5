import { DatabaseSync } from 'node:sqlite';

/** The database of an embedded gateway, from outside. The gateway may run. */

function withDatabase<T>(folder: string, use: (database: DatabaseSync) => T): T {
  const database = new DatabaseSync(`${folder}/gateway.db`, { timeout: 5_000 });
  try {
    return use(database);
  } finally {
    database.close();
  }
}

/** Sets fields of a record, as a person with the sqlite3 program could. @param name of a table, or a key's id */
export function editByHand(folder: string, name: string, fields: Readonly<Record<string, string | number>>): void {
  withDatabase(folder, (database) => {
    const edit = database.prepare(`UPDATE records SET fields = json_set(fields, '$."' || ? || '"', ?) WHERE name = ?`);
    for (const [field, value] of Object.entries(fields)) edit.run(field, String(value), name);
  });
}

/** Everything that is stored, as JSON. */
export const everythingIn = (folder: string): string =>
  withDatabase(folder, (database) =>
    JSON.stringify([database.prepare('SELECT * FROM records').all(), database.prepare('SELECT * FROM log').all()]),
  );

/** Brings the end of what is left of a revoked key nearer. */
export function expireRevoked(folder: string, id: string, bySeconds: number): void {
  withDatabase(folder, (database) =>
    database
      .prepare('UPDATE records SET expires = expires - ? WHERE name = ? AND expires IS NOT NULL')
      .run(bySeconds, id),
  );
}
