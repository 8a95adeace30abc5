import { hash } from 'node:crypto';
import { errorBody, HttpError, toHttpError } from '../shared/http/errors.ts';
import { CALLER_ID, IDEMPOTENCY_KEY, MAX_IDEMPOTENCY_KEY_LENGTH } from '../shared/http/headers.ts';
import type { Answer } from '../shared/http/service.ts';
import { toJson } from '../shared/schemas/json.ts';
import type { CoreCall } from './operation.ts';
import { type Answers, once } from './store/idempotency.ts';
import type { Transaction } from './store/transaction.ts';

/**
 * Runs the transaction of a POST and answers 201 with its result. With an Idempotency-Key, the same key and `body` get
 * the first answer again for a day.
 * @throws {HttpError} 400 for an invalid key, 409 for a key that was used for another request
 */
export async function createOnce<T>(call: CoreCall, body: unknown, transaction: () => Transaction<T>): Promise<Answer> {
  const { store } = call.deps;
  const key = idempotencyKey(call);
  if (key === undefined) return { status: 201, body: await store.write(transaction) };
  const fingerprint = hash('sha256', `${call.path}\n${toJson(body)}`);
  return await store.write(() => once({ key, fingerprint, now: Date.now() }, transaction, ANSWERS));
}

const ANSWERS: Answers = {
  made: (result) => ({ status: 201, json: toJson(result) }),
  refused(conflict) {
    const error = toHttpError(conflict);
    return { status: error.status, json: errorBody(error) };
  },
};

/**
 * The key, prefixed with its caller. The draft requires a structured-field string; the same text without quotes is the
 * same key.
 */
function idempotencyKey({ request }: CoreCall): string | undefined {
  if (request.headers[IDEMPOTENCY_KEY] === undefined) return undefined;
  const given = request.headersDistinct[IDEMPOTENCY_KEY] ?? [];
  const key = /^"(.*)"$/.exec(given[0] ?? '')?.[1] ?? given[0] ?? '';
  if (given.length > 1 || key === '' || key.length > MAX_IDEMPOTENCY_KEY_LENGTH) {
    throw new HttpError(
      'invalid_request',
      `Idempotency-Key must be given once and have 1 to ${MAX_IDEMPOTENCY_KEY_LENGTH} characters.`,
    );
  }
  return `${request.headersDistinct[CALLER_ID]?.[0] ?? ''}:${key}`;
}
