/**
 * A transaction is a generator: it yields statements and gets their rows. So what is done to the data, and by which rules,
 * is written once; a store that runs statements at once and one that waits for each of them drive the same code.
 */

export type Value = string | number | bigint | null;

export interface Statement {
  /** Parameters are $1, $2, …; column names that are not lower case are quoted. Both databases read it. */
  readonly sql: string;
  readonly values: readonly Value[];
}

export type Row = Readonly<Record<string, Value>>;

export type Transaction<T> = Generator<Statement, T, readonly Row[]>;

/** The rows of one statement. Integers are bigints, in every column and from every database. */
export function* query<R>(sql: string, ...values: Value[]): Transaction<readonly R[]> {
  return (yield { sql, values }) as unknown as readonly R[];
}

/** The one row of a statement, or undefined. */
export function* queryOne<R>(sql: string, ...values: Value[]): Transaction<R | undefined> {
  return (yield* query<R>(sql, ...values))[0];
}
