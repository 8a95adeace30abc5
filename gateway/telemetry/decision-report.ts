import { hostname } from 'node:os';
import { z } from 'zod';
import { count, listOf, time } from '../../shared/schemas/answer-parts.ts';
import { SECOND } from '../limiter/bucket.ts';
import type { BucketState, Verdict } from '../limiter/limiter.ts';

/** Describes decisions for operators. */

/** The maximum number of decisions in one response. */
export const MOST_DECISIONS = 1_000;

/** Sorts the merged lists of several processes. Decisions of one Redis call have the same time and keep their order. */
export const newestFirst = ({ at: a }: DecisionReport, { at: b }: DecisionReport): number =>
  a < b ? 1 : a > b ? -1 : 0;

/** Whether the key exists, according to the verdict. */
export const isOfAKey = (verdict: Verdict): boolean =>
  verdict.outcome !== 'unauthorized' || ['disabled', 'expired', 'elsewhere'].includes(verdict.reason);

/** A process of a gateway. Only workers have a number. */
export const GatewayProcess = z.object({ host: z.string(), pid: count, worker: count.optional() });

/** The tokens before the decision (but after the refill), and after it. */
const BucketReport = z.object({ limit: count, before: z.number(), after: z.number() });
type BucketReport = z.infer<typeof BucketReport>;

/** A decision, with the numbers that a person needs to check it. It can be sent to another process. */
export const DecisionReport = z.object({
  requestId: z.string(),
  keyId: z.string(),
  outcome: z.string(),
  /**
   * The time of the decision by Redis' clock, to the microsecond. If that is unknown because the key is not valid, this
   * is the time by the gateway's clock, to the millisecond.
   */
  at: time,
  /** The error code that the response would have without shadow mode. */
  shadow: z.literal('rate_limit_exceeded').optional(),
  /** The following fields exist only for decisions on a valid key. */
  plan: z.string().optional(),
  /** The version of this process's plan table at that time. */
  planVersion: z.string().optional(),
  mode: z.enum(['shared', 'local']).optional(),
  buckets: z.object({ minute: BucketReport, day: BucketReport }).optional(),
  /** What refused it: the current ban, the scope, or every bucket with less than one token. */
  refusedBy: listOf(z.string()).optional(),
  bannedUntil: time.optional(),
  isBannedByOperator: z.literal(true).optional(),
  /** When a refused request may be repeated. */
  retryAt: time.optional(),
  /** Overrides of the key that are not usable limits. */
  rejectedOverrides: listOf(z.string()).optional(),
  gateway: GatewayProcess,
});
export type DecisionReport = z.infer<typeof DecisionReport>;

export const HOST = hostname();

/** The request that the decision was about. `at` is its Unix time in ms on this machine's clock. */
export interface DecidedRequest {
  readonly requestId: string;
  readonly keyId: string | undefined;
  readonly at: number;
  readonly planVersion: string | undefined;
}

export function describeDecision(
  { requestId, keyId = '', at, planVersion }: DecidedRequest,
  verdict: Verdict,
): DecisionReport {
  const gateway = { host: HOST, pid: process.pid };
  if (!('buckets' in verdict))
    return { requestId, keyId, outcome: verdict.reason, at: new Date(at).toISOString(), gateway };
  const { outcome, plan, mode, now, buckets, isShadowed = false, bannedUntil, retryAt = 0, rejected } = verdict;
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
    buckets: { minute: describeBucket(minute, taken), day: describeBucket(day, taken) },
    ...(taken === 0 && { refusedBy: outcome === 'banned' ? ['ban'] : outcome === 'forbidden' ? ['scope'] : empty }),
    ...(outcome === 'banned' && { bannedUntil: toTime(bannedUntil) }),
    ...(outcome === 'banned' && verdict.isBannedByOperator && { isBannedByOperator: true as const }),
    ...(retryAt > 0 && outcome !== 'admitted' && { retryAt: toTime(retryAt) }),
    ...(rejected !== '' && { rejectedOverrides: rejected.split(' ') }),
    gateway,
  };
}

const DECIMALS = 1e6;

function describeBucket({ limit, tokens, fraction, window }: BucketState, taken: number): BucketReport {
  const after = tokens + Math.floor((fraction / window) * DECIMALS) / DECIMALS;
  return { limit, before: Math.round((after + taken) * DECIMALS) / DECIMALS, after };
}

/** Formats a time as in RFC 3339, to the microsecond. */
export function toTime(microseconds: number): string {
  const seconds = new Date(Math.floor(microseconds / SECOND) * 1_000).toISOString().slice(0, -'.000Z'.length);
  return `${seconds}.${String(microseconds % SECOND).padStart(6, '0')}Z`;
}
