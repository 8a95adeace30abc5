import { hash } from 'node:crypto';
import type { z } from 'zod';
import { OutcomeUnknown, Unavailable } from '../shared/domain-errors.ts';
import { errorBody, HttpError, toHttpError } from '../shared/http/errors.ts';
import { CALLER_ID, IDEMPOTENCY_KEY, MAX_IDEMPOTENCY_KEY_LENGTH } from '../shared/http/request-head.ts';
import type { Answer, Call, Operation } from '../shared/http/service.ts';
import { parseInt64 } from '../shared/schemas/int64.ts';
import { toJson } from '../shared/schemas/json.ts';
import { DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE } from '../shared/schemas/page.ts';
import { type Answers, once } from './store/idempotency.ts';
import type { Page, Store, Transaction } from './store/store.ts';

export interface CoreDependencies {
  readonly store: Store;
  readonly bodyLimitBytes: number;
}

export type CoreCall = Call<CoreDependencies>;
export type CoreOperation = Operation<CoreDependencies>;

/** Answers with the value, or 404 if it is undefined. */
export function found(what: string, id: bigint, value: unknown): Answer {
  if (value === undefined) throw notFound(what, id);
  return { status: 200, body: value };
}

export const notFound = (what: string, id: bigint) => new HttpError('not_found', `There is no ${what} ${id}.`);

/**
 * Answers with a page of a list. If there is a next page, `entries` has one more entry than this page. The Link header
 * then names the next page (RFC 8288).
 */
export function pageAnswer({ request, path }: CoreCall, limit: number, entries: readonly { id: bigint }[]): Answer {
  if (entries.length <= limit) return { status: 200, body: entries };
  const body = entries.slice(0, limit);
  const next = nextQuery(request.url ?? '', body.at(-1)?.id);
  return { status: 200, body, headers: ['Link', `<${path}?${next}>; rel="next"`] };
}

/** `after=` in any percent-encoding. */
const AFTER = /^(?:a|%61)(?:f|%66)(?:t|%74)(?:e|%65)(?:r|%72)(?:=|$)/;

/**
 * Keeps the caller's parameters as received, even unknown ones. Encoding them again could make them three times as
 * long.
 */
function nextQuery(target: string, after: bigint | undefined): string {
  const [, query = ''] = target.replaceAll('>', '%3E').split(/\?(.*)/s);
  const kept = query.split('&').filter((parameter) => parameter !== '' && !AFTER.test(parameter));
  return [...kept, `after=${after}`].join('&');
}

export function pathId(text: string | undefined, name: string): bigint {
  const id = parseInt64(text ?? '');
  if (id === undefined) throw invalidParameter(name, 'must be an integer from -2^63 to 2^63-1');
  return id;
}

/** The page selected by `limit`, `after` and `status`. Unknown parameters are ignored. */
export function pageOf<S extends z.ZodEnum>(query: URLSearchParams, statuses: S): Page<z.infer<S>> {
  return { limit: limitOf(query), after: afterOf(query), status: statusOf(query, statuses) };
}

function limitOf(query: URLSearchParams): number {
  const text = single(query, 'limit');
  if (text === undefined) return DEFAULT_PAGE_SIZE;
  const limit = /^\d{1,3}$/.test(text) ? Number(text) : 0;
  if (limit < 1 || limit > MAX_PAGE_SIZE)
    throw invalidParameter('limit', `must be an integer from 1 to ${MAX_PAGE_SIZE}`);
  return limit;
}

function afterOf(query: URLSearchParams): bigint | undefined {
  const text = single(query, 'after');
  return text === undefined ? undefined : pathId(text, 'after');
}

function statusOf<S extends z.ZodEnum>(query: URLSearchParams, statuses: S): z.infer<S> | undefined {
  const text = single(query, 'status');
  if (text === undefined) return undefined;
  const result = statuses.safeParse(text);
  if (!result.success) throw invalidParameter('status', result.error.issues[0]?.message ?? '');
  return result.data;
}

function single(query: URLSearchParams, name: string): string | undefined {
  const values = query.getAll(name);
  if (values.length > 1) throw invalidParameter(name, 'is given more than once');
  return values[0];
}

const invalidParameter = (name: string, fault: string) => new HttpError('invalid_parameter', `${name} ${fault}.`);

/**
 * Runs the transaction of a POST and answers 201 with its result. With an Idempotency-Key, further requests with the
 * same key and `body` get the first response for a day.
 * @throws {HttpError} 400 for an invalid key, 409 for a key that was used for another request
 */
export async function createOnce<T>(call: CoreCall, body: unknown, transaction: () => Transaction<T>): Promise<Answer> {
  const { store } = call.deps;
  const key = idempotencyKey(call);
  if (key === undefined) return { status: 201, body: await store.write(transaction) };
  const fingerprint = hash('sha256', `${call.path}\n${toJson(body)}`);
  return await store
    .write(() => once({ key, fingerprint, now: Date.now() }, transaction, ANSWERS))
    .catch((thrown: unknown) => {
      // With the key, it is safe to send the request again at once.
      throw thrown instanceof OutcomeUnknown ? new Unavailable(thrown.cause) : thrown;
    });
}

const ANSWERS: Answers = {
  made: (result) => ({ status: 201, json: toJson(result) }),
  refused(conflict) {
    const error = toHttpError(conflict);
    return { status: error.status, json: errorBody(error) };
  },
};

/**
 * The key, prefixed with its caller. The draft requires a structured-field string, which has quotes; the same text
 * without quotes counts as the same key.
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
