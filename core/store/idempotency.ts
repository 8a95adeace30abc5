import { Conflict } from '../../shared/domain-errors.ts';
import { query, queryOne, type Transaction } from './store.ts';

/** Stores responses and returns them to repeated requests (draft-ietf-httpapi-idempotency-key-header). */

const KEPT_MS = 24 * 3_600 * 1_000;

/** A request that its sender may repeat. */
interface Repeatable {
  /** The key, prefixed with its caller so that callers cannot see each other's responses. */
  readonly key: string;
  /** A digest of the request, because a key is valid for one request only. */
  readonly fingerprint: string;
  /** Unix time in milliseconds. */
  readonly now: number;
}

interface StoredAnswer {
  readonly status: number;
  readonly json: string;
}

/** Creates the responses to store for a success and for a conflict. */
export interface Answers {
  made(result: unknown): StoredAnswer;
  refused(conflict: Conflict): StoredAnswer;
}

/**
 * Runs a transaction for the first request with a key, and returns its response to all others. Concurrent requests
 * wait: the first statement claims the key, and the database lets only one request do so.
 * @throws {Conflict} if the key was used for another request
 */
export function* once<T>(
  { key, fingerprint, now }: Repeatable,
  transaction: () => Transaction<T>,
  answers: Answers,
): Transaction<StoredAnswer> {
  yield* query('DELETE FROM idempotency WHERE key = $1 AND created_at <= $2', key, now - KEPT_MS);
  const take = `INSERT INTO idempotency (key, fingerprint, created_at, status, answer) VALUES ($1, $2, $3, 0, '')
    ON CONFLICT (key) DO NOTHING RETURNING key`;
  const taken = yield* queryOne(take, key, fingerprint, now);
  if (taken === undefined) return yield* earlierAnswer(key, fingerprint);
  const { status, json } = yield* answerOf(transaction, answers);
  yield* query('UPDATE idempotency SET status = $1, answer = $2 WHERE key = $3', status, json, key);
  return { status, json };
}

/** Deletes expired responses. */
export function* forgetAnswers(now: number): Transaction<void> {
  yield* query('DELETE FROM idempotency WHERE created_at <= $1', now - KEPT_MS);
}

function* earlierAnswer(key: string, fingerprint: string): Transaction<StoredAnswer> {
  const sql = 'SELECT fingerprint, status, answer FROM idempotency WHERE key = $1';
  const row = yield* queryOne<{ fingerprint: string; status: bigint; answer: string }>(sql, key);
  if (row?.fingerprint !== fingerprint) throw new Conflict('This Idempotency-Key was used for another request.');
  return { status: Number(row.status), json: row.answer };
}

/** The response to a conflict is stored too. Rules are checked before any write, so nothing needs to be undone. */
function* answerOf<T>(transaction: () => Transaction<T>, answers: Answers): Transaction<StoredAnswer> {
  try {
    return answers.made(yield* transaction());
  } catch (thrown) {
    if (!(thrown instanceof Conflict)) throw thrown;
    return answers.refused(thrown);
  }
}
