import { HttpError } from '../shared/http/errors.ts';
import type { Answer, Call, Operation } from '../shared/http/service.ts';
import type { Store } from './store/store.ts';

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
 * Answers with a page of a list. `entries` has one entry more than the page if there is a next page. The Link header
 * then names that page (RFC 8288).
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
