import type pg from 'pg';
import { isConnectionLost } from './postgres-faults.ts';
import type { Row, Statement, Transaction } from './transaction.ts';

/** Runs transactions on a connection to PostgreSQL. */

/** Names statements by their text. A name makes a statement a prepared one, once per connection. */
export class StatementNames {
  readonly #names = new Map<string, string>();

  /** The number of names is limited, because all SQL texts are constants. */
  of(sql: string): string {
    const name = this.#names.get(sql) ?? `s${this.#names.size}`;
    this.#names.set(sql, name);
    return name;
  }
}

/** Runs the statements of a transaction. */
export async function run<T>(client: pg.ClientBase, names: StatementNames, transaction: Transaction<T>): Promise<T> {
  let step = transaction.next();
  while (!step.done) step = await runStep(client, names, transaction, step.value);
  return step.value;
}

/** A failed statement is thrown into the transaction, which may handle it. */
async function runStep<T>(
  client: pg.ClientBase,
  names: StatementNames,
  transaction: Transaction<T>,
  { sql, values }: Statement,
): Promise<IteratorResult<Statement, T>> {
  let rows: Row[];
  try {
    rows = (await client.query<Row>({ name: names.of(sql), text: sql, values: [...values] })).rows;
  } catch (fault) {
    return transaction.throw(fault);
  }
  return transaction.next(rows);
}

/** Makes all changes of `use` on this connection, or none of them. */
export async function inTransaction<T>(client: pg.ClientBase, use: () => Promise<T>): Promise<T> {
  await client.query('BEGIN');
  try {
    const result = await use();
    await client.query('COMMIT');
    return result;
  } catch (fault) {
    if (!isConnectionLost(fault)) await client.query('ROLLBACK');
    throw fault;
  }
}
