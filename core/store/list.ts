import type { Page } from './store.ts';
import { query, type Transaction } from './transaction.ts';

const BEFORE_ALL_IDS = -(2n ** 63n);

/** SQLite plans a query again whenever the parameter of a plain LIMIT is bound. An expression avoids that. */
const limited = (parameter: string) => `LIMIT ${parameter} + 0`;

/** A page of a table with the primary key `id` and an index on (status, id). */
export function* list<R>(table: string, columns: string, page: Page<string>): Transaction<readonly R[]> {
  const { limit, after = BEFORE_ALL_IDS, status } = page;
  if (status === undefined) {
    return yield* query<R>(`SELECT ${columns} FROM ${table} WHERE id > $1 ORDER BY id ${limited('$2')}`, after, limit);
  }
  const sql = `SELECT ${columns} FROM ${table} WHERE status = $1 AND id > $2 ORDER BY id ${limited('$3')}`;
  return yield* query<R>(sql, status, after, limit);
}
