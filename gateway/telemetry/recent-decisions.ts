import { hostname } from 'node:os';
import { type BucketState, type Decision, SECOND, type Verdict } from '../access/verdict.ts';

/**
 * The last decisions of this process about keys that there are, to be explained when somebody asks. Noting one is a few
 * assignments into a place that is there already; words are made of it only when it is asked for.
 */

export const DECISIONS_KEPT = 1_000;
/** Of one key, or of requests that bear one id, by answer. */
const MOST_TOLD = 50;

interface Noted {
  requestId: string;
  keyId: string;
  /** Undefined while the place has not been taken yet. */
  verdict: Verdict | undefined;
  planVersion: string | undefined;
}

export class RecentDecisions {
  readonly #ring: readonly Noted[] = Array.from({ length: DECISIONS_KEPT }, () => ({
    requestId: '',
    keyId: '',
    verdict: undefined,
    planVersion: undefined,
  }));
  readonly #planVersion: () => string | undefined;
  #next = 0;

  /** @param planVersion of the plan table in force */
  constructor(planVersion: () => string | undefined) {
    this.#planVersion = planVersion;
  }

  /** What is presented and is no key is not noted: whoever sends that could wash out all others. */
  note(requestId: string, keyId: string | undefined, verdict: Verdict): void {
    if (keyId === undefined || (verdict.outcome === 'unauthorized' && !IS_OF_A_KEY.has(verdict.reason))) return;
    const noted = this.#ring[this.#next] as Noted;
    noted.requestId = requestId;
    noted.keyId = keyId;
    noted.verdict = verdict;
    noted.planVersion = this.#planVersion();
    this.#next = (this.#next + 1) % DECISIONS_KEPT;
  }

  /** The newest first. */
  find({ keyId, requestId }: DecisionQuery): DecisionReport[] {
    const told: DecisionReport[] = [];
    for (let back = 1; back <= DECISIONS_KEPT && told.length < MOST_TOLD; back++) {
      const noted = this.#ring[(this.#next - back + DECISIONS_KEPT) % DECISIONS_KEPT] as Noted;
      if (noted.verdict === undefined) break;
      if ((keyId ?? noted.keyId) === noted.keyId && (requestId ?? noted.requestId) === noted.requestId)
        told.push(tell(noted, noted.verdict));
    }
    return told;
  }
}

/** For lists of several processes in one. Decisions of one call to Redis have one time: such ones stay as they are. */
export const newestFirst = ({ at: a = '' }: DecisionReport, { at: b = '' }: DecisionReport): number =>
  a < b ? 1 : a > b ? -1 : 0;

const IS_OF_A_KEY: ReadonlySet<string> = new Set(['disabled', 'expired']);

/** What is looked for; what is undefined may be anything. */
export interface DecisionQuery {
  readonly keyId?: string | undefined;
  readonly requestId?: string | undefined;
}

/** A decision in words and numbers that a person can check. Made of what can be sent to another process. */
export interface DecisionReport {
  readonly requestId: string;
  readonly keyId: string;
  /** As in the access log. */
  readonly outcome: string;
  /** What would have been answered, had the plan not been in shadow mode. */
  readonly shadow?: 'rate_limit_exceeded';
  /** What the rest tells of is known of decisions about a good key only. */
  readonly plan?: string;
  /** Of the plan table that was in force in this process. */
  readonly planVersion?: string | undefined;
  readonly mode?: Decision['mode'];
  /** By the clock that decided: Redis', to the microsecond. */
  readonly at?: string;
  readonly buckets?: { readonly minute: ToldBucket; readonly day: ToldBucket };
  /** What stood in the way: the ban that runs, else every bucket that had less than one request left. */
  readonly refusedBy?: readonly string[];
  readonly bannedUntil?: string;
  /** Overrides of the key that were no limits. */
  readonly rejectedOverrides?: readonly string[];
  readonly gateway: { readonly host: string; readonly pid: number; readonly worker?: number };
}

interface ToldBucket {
  readonly limit: number;
  /** Requests left, refilled up to then. */
  readonly before: number;
  readonly after: number;
}

const HOST = hostname();

function tell({ requestId, keyId, planVersion }: Noted, verdict: Verdict): DecisionReport {
  const gateway = { host: HOST, pid: process.pid };
  if (!('buckets' in verdict)) return { requestId, keyId, outcome: verdict.reason, gateway };
  const { outcome, plan, mode, now, buckets, isShadowed = false, bannedUntil, rejected } = verdict;
  const taken = outcome === 'admitted' && !isShadowed ? 1 : 0;
  const [minute, day] = buckets as readonly [BucketState, BucketState];
  const empty = buckets.filter(({ tokens }) => tokens < 1).map(({ name }) => name);
  return {
    requestId,
    keyId,
    outcome,
    ...(isShadowed && { shadow: 'rate_limit_exceeded' }),
    plan,
    planVersion,
    mode,
    at: toTime(now),
    buckets: { minute: tellBucket(minute, taken), day: tellBucket(day, taken) },
    ...(taken === 0 && { refusedBy: outcome === 'banned' ? ['ban'] : empty }),
    ...(outcome === 'banned' && { bannedUntil: toTime(bannedUntil) }),
    ...(rejected !== '' && { rejectedOverrides: rejected.trim().split(' ') }),
    gateway,
  };
}

const DECIMALS = 1e6;

function tellBucket({ limit, tokens, parts, window }: BucketState, taken: number): ToldBucket {
  const after = tokens + Math.floor((parts / window) * DECIMALS) / DECIMALS;
  return { limit, before: Math.round((after + taken) * DECIMALS) / DECIMALS, after };
}

/** RFC 3339, to the microsecond. */
function toTime(microseconds: number): string {
  const seconds = new Date(Math.floor(microseconds / SECOND) * 1_000).toISOString().slice(0, -'.000Z'.length);
  return `${seconds}.${String(microseconds % SECOND).padStart(6, '0')}Z`;
}
