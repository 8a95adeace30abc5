import { z } from 'zod';
import { count, listOf, time } from '../../../shared/schemas/answer-parts.ts';
import { type SeenCore, Totals, WorkersState } from '../../telemetry/state.ts';

/** The answers about the state of the gateway: findings, dependencies and traffic. */

/** A finding of the doctor. Unless it is good, it has the time of the first check that found it. */
export const SeenFinding = z.object({
  about: z.string(),
  status: z.enum(['good', 'warning', 'fault', 'unknown']),
  found: z.string(),
  advice: z.string().optional(),
  since: time.optional(),
});
export type SeenFinding = z.infer<typeof SeenFinding>;

export const DoctorAnswer = z.object({ findings: listOf(SeenFinding) });
export type DoctorAnswer = z.infer<typeof DoctorAnswer>;

const Answered = z.object({ at: time, ms: z.number() });

/** How decisions are shared, according to the settings. */
export const RedisMode = z.enum(['single', 'cluster', 'sentinel', 'embedded']);
export type RedisMode = z.infer<typeof RedisMode>;

/** The connections to Redis of all processes that serve clients. */
export const RedisView = z.object({
  mode: RedisMode,
  /** How many of these processes are connected. */
  connected: count,
  /** When the last of them was connected, or when the first lost its connection. */
  since: time.optional(),
  lastCall: Answered.optional(),
  /** The 99th percentile of all calls since the start; null before the first. */
  p99: z.number().nullable(),
  missedDeadlines: count,
});
export type RedisView = z.infer<typeof RedisView>;

type CoreFault = NonNullable<SeenCore['lastFault']>['kind'];

/** A core, as all processes that serve clients see it together. */
export const CoreView = z.object({
  origin: z.string(),
  /**
   * The worst state that a process sees. `silent`: its reads go to another core. `draining`: it has left CORE_URL and
   * finishes its requests. `unproven`: it is the only core and has not answered a request yet.
   */
  state: z.enum(['out', 'silent', 'draining', 'up', 'unproven']),
  /** How many processes see it in this state. */
  seenBy: count,
  since: time,
  reason: z.string().optional(),
  inFlight: count,
  /** The number of these that wait for a connection. */
  waiting: count,
  /** The current limit of concurrent requests. */
  limit: count,
  /** The last answer to a client's request: probes do not count. */
  lastAnswer: Answered.optional(),
  lastFault: z.object({ at: time, kind: z.string() as unknown as z.ZodType<CoreFault> }).optional(),
});
export type CoreView = z.infer<typeof CoreView>;

/** A value in the plan table that is not in force, and the one that is. */
const Rejected = z.object({
  field: z.string(),
  value: z.string().optional(),
  kept: z.union([z.number(), z.string()]).optional(),
});

export const TrafficAnswer = z.object({
  since: time,
  mode: z.enum(['shared', 'local']),
  modeSince: time,
  /** The worst current finding that is a fault or unknown; undefined if all is well. */
  health: SeenFinding.optional(),
  /** Present only with WORKERS > 1. */
  workers: WorkersState.optional(),
  /** The processes that serve clients. `cores` and `redis` are what these see. Other gateways are not included. */
  processes: count,
  cores: listOf(CoreView),
  redis: RedisView,
  totals: Totals,
  plans: z.record(z.string(), z.record(z.string(), count)),
  planTable: z.object({
    version: z.string().optional(),
    changedAt: time,
    rejectedValues: count,
    rejected: listOf(Rejected),
  }),
});
export type TrafficAnswer = z.infer<typeof TrafficAnswer>;

export const MinuteReport = z.object({
  /** The start of the minute. */
  at: time,
  admitted: count,
  refused: count,
  banned: count,
  /** The number of keys of the banned requests. */
  bannedKeys: count,
  unauthorized: count,
  serverErrors: count,
  /** In milliseconds; null without a request. */
  p50: z.number().nullable(),
  p99: z.number().nullable(),
});
export type MinuteReport = z.infer<typeof MinuteReport>;

/** `since` is the start of the gateway, before which nothing is known. */
export const MinutesAnswer = z.object({ since: time, minutes: listOf(MinuteReport) });
export type MinutesAnswer = z.infer<typeof MinutesAnswer>;
