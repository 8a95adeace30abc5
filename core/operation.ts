import { HttpError } from '../shared/errors.ts';
import type { Answer, Call, Operation } from '../shared/service.ts';
import type { Store } from './store/store.ts';

/** What the core's operations work with. */
export interface CoreParts {
  readonly store: Store;
  readonly bodyLimitBytes: number;
}

export type CoreCall = Call<CoreParts>;
export type CoreOperation = Operation<CoreParts>;

/** What was found, or 404. */
export function found(what: string, id: bigint, value: unknown): Answer {
  if (value === undefined) throw notFound(what, id);
  return { status: 200, body: value };
}

export const notFound = (what: string, id: bigint) => new HttpError('not_found', `There is no ${what} ${id}.`);

/**
 * A page of a list as an answer. One entry more than the page was asked of the store: where it came, there is a next page,
 * and the Link header says where (RFC 8288).
 */
export function pageAnswer({ request, path }: CoreCall, limit: number, entries: readonly { id: bigint }[]): Answer {
  if (entries.length <= limit) return { status: 200, body: entries };
  const body = entries.slice(0, limit);
  const next = nextQuery(request.url ?? '', body.at(-1)?.id);
  return { status: 200, body, headers: ['Link', `<${path}?${next}>; rel="next"`] };
}

/** However it is written. */
const AFTER = /^(?:a|%61)(?:f|%66)(?:t|%74)(?:e|%65)(?:r|%72)(?:=|$)/;

/** The caller's parameters as they came, also those that are not known; written anew they could be three times as long. */
function nextQuery(target: string, after: bigint | undefined): string {
  const [, query = ''] = target.replaceAll('>', '%3E').split(/\?(.*)/s);
  const kept = query.split('&').filter((parameter) => parameter !== '' && !AFTER.test(parameter));
  return [...kept, `after=${after}`].join('&');
}
