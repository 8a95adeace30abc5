/**
 * A transaction is a generator: it yields statements and receives their rows. So the rules are written once, and both a
 * synchronous and an asynchronous store can run them.
 */

export type Value = string | number | bigint | null;

export interface Statement {
  /** Parameters are $1, $2, …, and column names that are not in lower case are quoted, which both databases accept. */
  readonly sql: string;
  readonly values: readonly Value[];
}

export type Row = Readonly<Record<string, Value>>;

export type Transaction<T> = Generator<Statement, T, readonly Row[]>;

/** The rows of one statement. Integers are bigints in every column and database. */
export function* query<R>(sql: string, ...values: Value[]): Transaction<readonly R[]> {
  return (yield { sql, values }) as unknown as readonly R[];
}

/** The first row of a statement, or undefined. */
export function* queryOne<R>(sql: string, ...values: Value[]): Transaction<R | undefined> {
  return (yield* query<R>(sql, ...values))[0];
}
