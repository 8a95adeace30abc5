import type { DecisionReport } from './decision-report.ts';
import type { FoundRequests, RequestQuery, RequestReport } from './recent-requests.ts';

/** A refused request, as the owner of its key sees it. Times are Unix seconds. */
export interface KeyRefusal {
  readonly at: number;
  readonly method: string;
  readonly path: string;
  readonly code: string;
  /** The limit that refused it. */
  readonly limit: 'minute' | 'day' | null;
  /** When a retry can succeed; null if it never can. */
  readonly retryAt: number | null;
  /** How many similar requests followed in the same minute. */
  readonly repeated: number;
}

export const REFUSALS_SHOWN = 5;
/** All keys share these queries, because each goes to all gateways. One key may use only one of them per second. */
const QUERIES_PER_SECOND = 5;

const CODES: Readonly<Record<string, string>> = {
  refused: 'rate_limit_exceeded',
  banned: 'key_banned',
  forbidden: 'insufficient_scope',
};

/** Reads the last refusals of a key, as far as the gateways remember them. */
export class KeyRefusals {
  readonly #find: (query: RequestQuery) => Promise<FoundRequests>;
  readonly #queried = new Set<string>();
  #second = 0;

  /** @param find searches the requests of all gateways */
  constructor(find: (query: RequestQuery) => Promise<FoundRequests>) {
    this.#find = find;
  }

  /** The refusals, newest first; undefined if there were too many queries in this second. */
  async of(keyId: string): Promise<readonly KeyRefusal[] | undefined> {
    const second = Math.floor(performance.now() / 1_000);
    if (second !== this.#second) this.#queried.clear();
    this.#second = second;
    if (this.#queried.has(keyId) || this.#queried.size === QUERIES_PER_SECOND) return undefined;
    this.#queried.add(keyId);
    const { requests } = await this.#find({ keyId, outcomes: Object.keys(CODES), limit: REFUSALS_SHOWN });
    return requests.map(describe);
  }
}

const describe = ({ at, method, path, outcome, repeated, decision }: RequestReport): KeyRefusal => ({
  at: Math.floor(Date.parse(at) / 1_000),
  method,
  path,
  code: CODES[outcome] ?? '',
  limit: outcome === 'refused' ? limitIn(decision) : null,
  retryAt: secondOf(outcome === 'banned' ? decision?.bannedUntil : decision?.retryAt),
  repeated,
});

/** The day limit, if both limits refused the request. */
const limitIn = (decision: DecisionReport | undefined): KeyRefusal['limit'] =>
  decision?.refusedBy?.includes('day') ? 'day' : 'minute';

const secondOf = (time: string | undefined): number | null =>
  time === undefined ? null : Math.ceil(Date.parse(time) / 1_000);
