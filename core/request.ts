import type { z } from 'zod';
import { HttpError } from '../shared/http/errors.ts';
import { parseInt64 } from '../shared/schemas/int64.ts';
import { DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE } from '../shared/schemas/page.ts';
import type { Page } from './store/store.ts';

/** Reads and checks the parameters of a request, and refuses invalid ones with a message. */

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
