import { readdirSync, readFileSync } from 'node:fs';
import { query, type Transaction } from './store.ts';

/**
 * The schema as numbered steps, one SQL file each. The table `migrations` records which steps have been applied to a
 * database.
 */

const TABLE = `CREATE TABLE IF NOT EXISTS migrations (
  version BIGINT PRIMARY KEY,
  name TEXT NOT NULL,
  applied_at TEXT NOT NULL
)`;

/** Applies the steps that a database lacks, in order. */
export function* migrate(database: 'sqlite' | 'postgres'): Transaction<void> {
  yield* query(TABLE);
  const taken = (yield* query<{ version: bigint }>('SELECT version FROM migrations')).map(({ version }) => version);
  const folder = new URL(`./migrations/${database}/`, import.meta.url);
  for (const name of readdirSync(folder).sort()) {
    const version = BigInt(Number.parseInt(name, 10));
    if (taken.includes(version)) continue;
    // Neither database can prepare several statements at once.
    const statements = readFileSync(new URL(name, folder), 'utf8').split(/;\n/).slice(0, -1);
    for (const sql of statements) yield* query(sql);
    yield* query('INSERT INTO migrations VALUES ($1, $2, $3)', version, name, new Date().toISOString());
  }
}
