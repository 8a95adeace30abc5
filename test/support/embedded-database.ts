import { DatabaseSync } from 'node:sqlite';

/** Reads and changes the database of a stopped embedded gateway. A running one locks it. */

function withDatabase<T>(folder: string, use: (database: DatabaseSync) => T): T {
  const database = new DatabaseSync(`${folder}/gateway.db`, { timeout: 5_000 });
  try {
    return use(database);
  } finally {
    database.close();
  }
}

/** The audit log and the plan history, as JSON. */
export const logsIn = (folder: string): string =>
  withDatabase(folder, (database) => JSON.stringify(database.prepare('SELECT * FROM log').all()));

/** All stored data, as JSON. */
export const everythingIn = (folder: string): string =>
  withDatabase(folder, (database) =>
    JSON.stringify([database.prepare('SELECT * FROM records').all(), database.prepare('SELECT * FROM log').all()]),
  );

/** Shortens the time for which the records of a revoked key are kept. */
export function expireRevoked(folder: string, id: string, bySeconds: number): void {
  withDatabase(folder, (database) =>
    database
      .prepare('UPDATE records SET expires = expires - ? WHERE name = ? AND expires IS NOT NULL')
      .run(bySeconds, id),
  );
}
