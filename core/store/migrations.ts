import { readdirSync, readFileSync } from 'node:fs';

/** The schema as numbered steps, one SQL file each. The table `migrations` records which steps a database has. */

export interface Migration {
  readonly version: number;
  readonly name: string;
  readonly sql: string;
}

export const MIGRATIONS_TABLE = `CREATE TABLE IF NOT EXISTS migrations (
  version BIGINT PRIMARY KEY,
  name TEXT NOT NULL,
  applied_at TEXT NOT NULL
)`;

/** All steps for a database, in order. */
export function readMigrations(database: 'sqlite' | 'postgres'): Migration[] {
  const folder = new URL(`./migrations/${database}/`, import.meta.url);
  const files = readdirSync(folder).filter((file) => file.endsWith('.sql'));
  return files.sort().map((name) => ({
    version: Number.parseInt(name, 10),
    name,
    sql: readFileSync(new URL(name, folder), 'utf8'),
  }));
}
