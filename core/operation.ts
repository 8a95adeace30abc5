import type { Answer, Call, Operation } from '../shared/service.ts';
import type { Store } from './store/store.ts';

/** What the core's operations work with. */
export interface CoreParts {
  readonly store: Store;
  readonly bodyLimitBytes: number;
}

export type CoreOperation = Operation<CoreParts>;

/**
 * A page of a list as an answer. One entry more than the page was asked of the store: where it came, there is a next page,
 * and the Link header says where (RFC 8288).
 */
export function pageAnswer({ query, path }: Call<CoreParts>, limit: number, found: readonly { id: bigint }[]): Answer {
  if (found.length <= limit) return { status: 200, body: found };
  const body = found.slice(0, limit);
  const next = new URLSearchParams(query);
  next.set('after', String(body.at(-1)?.id));
  return { status: 200, body, headers: ['Link', `<${path}?${next}>; rel="next"`] };
}
