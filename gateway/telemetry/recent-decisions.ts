import { hostname } from 'node:os';
import { SECOND } from '../limiter/clock.ts';
import type { BucketState, Decision, Verdict } from '../limiter/limiter.ts';

/**
 * The last decisions of this process on existing keys, so that operators can look them up. Recording one is a few
 * assignments into a preallocated slot; the text is made only on request.
 */

export const DECISIONS_KEPT = 1_000;

interface Noted {
  requestId: string;
  keyId: string;
  /** Unix time in ms, on this machine's clock. */
  at: number;
  /** Undefined until the slot is used. */
  verdict: Verdict | undefined;
  planVersion: string | undefined;
}

export class RecentDecisions {
  readonly #ring: readonly Noted[] = Array.from({ length: DECISIONS_KEPT }, () => ({
    requestId: '',
    keyId: '',
    at: 0,
    verdict: undefined,
    planVersion: undefined,
  }));
  readonly #planVersion: () => string | undefined;
  #next = 0;

  /** @param planVersion returns the version of the current plan table */
  constructor(planVersion: () => string | undefined) {
    this.#planVersion = planVersion;
  }

  /** Credentials that are not keys are not recorded: they could displace all others. */
  note(requestId: string, keyId: string | undefined, verdict: Verdict): void {
    if (keyId === undefined || (verdict.outcome === 'unauthorized' && !IS_OF_A_KEY.has(verdict.reason))) return;
    const noted = this.#ring[this.#next] as Noted;
    noted.requestId = requestId;
    noted.keyId = keyId;
    noted.at = Date.now();
    noted.verdict = verdict;
    noted.planVersion = this.#planVersion();
    this.#next = (this.#next + 1) % DECISIONS_KEPT;
  }

  /** The newest first. */
  find({ keyId, requestId, limit }: DecisionQuery): DecisionReport[] {
    const told: DecisionReport[] = [];
    for (let back = 1; back <= DECISIONS_KEPT && told.length < limit; back++) {
      const noted = this.#ring[(this.#next - back + DECISIONS_KEPT) % DECISIONS_KEPT] as Noted;
      if (noted.verdict === undefined) break;
      if ((keyId ?? noted.keyId) === noted.keyId && (requestId ?? noted.requestId) === noted.requestId)
        told.push(tell(noted, noted.verdict));
    }
    return told;
  }
}

/** Sorts the merged lists of several processes. Decisions of one Redis call have the same time and keep their order. */
export const newestFirst = ({ at: a }: DecisionReport, { at: b }: DecisionReport): number =>
  a < b ? 1 : a > b ? -1 : 0;

const IS_OF_A_KEY: ReadonlySet<string> = new Set(['disabled', 'expired', 'elsewhere']);

/** What to look for; undefined matches anything. */
export interface DecisionQuery {
  readonly keyId?: string | undefined;
  readonly requestId?: string | undefined;
  /** The most decisions in the answer. */
  readonly limit: number;
}

/** A decision in words and numbers that a person can check. It can be sent to another process. */
export interface DecisionReport {
  readonly requestId: string;
  readonly keyId: string;
  readonly outcome: string;
  /**
   * The time on the clock that decided: Redis' clock, to the microsecond. If that is not known, because the key is not
   * valid, the time on the gateway's clock, to the millisecond.
   */
  readonly at: string;
  /** What would have been answered without shadow mode. */
  readonly shadow?: 'rate_limit_exceeded';
  /** The fields below exist only for decisions on a valid key. */
  readonly plan?: string;
  /** The version of this process's plan table at that time. */
  readonly planVersion?: string | undefined;
  readonly mode?: Decision['mode'];
  readonly buckets?: { readonly minute: ToldBucket; readonly day: ToldBucket };
  /** What refused it: the current ban, otherwise every bucket with less than one token. */
  readonly refusedBy?: readonly string[];
  readonly bannedUntil?: string;
  /** Overrides of the key that are not usable limits. */
  readonly rejectedOverrides?: readonly string[];
  readonly gateway: { readonly host: string; readonly pid: number; readonly worker?: number };
}

interface ToldBucket {
  readonly limit: number;
  /** Tokens before the decision, after the refill. */
  readonly before: number;
  readonly after: number;
}

const HOST = hostname();

function tell({ requestId, keyId, at, planVersion }: Noted, verdict: Verdict): DecisionReport {
  const gateway = { host: HOST, pid: process.pid };
  if (!('buckets' in verdict))
    return { requestId, keyId, outcome: verdict.reason, at: new Date(at).toISOString(), gateway };
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
    ...(taken === 0 && { refusedBy: outcome === 'banned' ? ['ban'] : outcome === 'forbidden' ? ['scope'] : empty }),
    ...(outcome === 'banned' && { bannedUntil: toTime(bannedUntil) }),
    ...(rejected !== '' && { rejectedOverrides: rejected.trim().split(' ') }),
    gateway,
  };
}

const DECIMALS = 1e6;

function tellBucket({ limit, tokens, fraction, window }: BucketState, taken: number): ToldBucket {
  const after = tokens + Math.floor((fraction / window) * DECIMALS) / DECIMALS;
  return { limit, before: Math.round((after + taken) * DECIMALS) / DECIMALS, after };
}

/** RFC 3339, to the microsecond. */
function toTime(microseconds: number): string {
  const seconds = new Date(Math.floor(microseconds / SECOND) * 1_000).toISOString().slice(0, -'.000Z'.length);
  return `${seconds}.${String(microseconds % SECOND).padStart(6, '0')}Z`;
}
