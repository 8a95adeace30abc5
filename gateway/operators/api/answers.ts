import { z } from 'zod';
import { count, listOf, time } from '../../../shared/schemas/answer-parts.ts';
import { CheckResult } from '../../check-result.ts';
import { FIELD_NAMES, PLAN_NAMES, type PlanField, type PlanTable, ruleOf } from '../../limiter/plans.ts';
import { RecordedActivity } from '../../stores/audit.ts';
import { RecordedChange } from '../../stores/plans.ts';
import { OperatorToken } from '../../stores/tokens.ts';
import { ROLES } from '../../stores/words.ts';
import { DecisionReport } from '../../telemetry/decision-report.ts';
import { RequestReport } from '../../telemetry/recent-requests.ts';
import { type SeenCore, Totals, WorkersState } from '../../telemetry/state.ts';
import { KEY_STATES } from './key-order.ts';

/**
 * The bodies of the admin API's responses. Operations return them, the OpenAPI document contains their schemas, and the
 * console and the command line use their types.
 */

const tags = z.record(z.string(), z.string());

/** The `after` for the next call, or the `offset` in a list of keys; undefined on the last page. */
const nextCursor = z.string().optional();

export const SecretView = z.object({
  id: z.string(),
  name: z.string(),
  scope: listOf(z.string()),
  networks: listOf(z.string()),
  createdAt: time,
  expiresAt: time.optional(),
  /** The fields that cannot be read, for example because they were edited by hand. */
  unreadable: listOf(z.string()).optional(),
  /** The time is rounded to the minute. */
  lastUsedAt: time.optional(),
});
export type SecretView = z.infer<typeof SecretView>;

export const BucketView = z.object({
  limit: count,
  remaining: count,
  used: count,
  /** Undefined if the bucket is full. */
  fullAt: time.optional(),
});
export type BucketView = z.infer<typeof BucketView>;

export const KeyView = z.object({
  id: z.string(),
  name: z.string(),
  plan: z.string(),
  tags: tags.optional(),
  minute: count.optional(),
  day: count.optional(),
  state: z.enum(KEY_STATES),
  createdAt: time,
  expiresAt: time.optional(),
  /** The time of the last decision that used its limits. */
  lastUsedAt: time.optional(),
  secrets: listOf(SecretView),
  bannedUntil: time.optional(),
  banReason: z.string().optional(),
  /** When an operator set the active ban. */
  bannedSince: time.optional(),
  /** How many requests the active ban has refused, as far as the gateways remember. */
  banRefused: count.optional(),
  /**
   * Whether the ban may have refused more, because a gateway or worker does not respond, started during the ban, or has
   * forgotten requests.
   */
  banRefusedMore: z.boolean().optional(),
  /** The number of bans in a row, including the active or last one. Each is twice as long as the one before. */
  bans: count,
  /** The Retry-After that a request refused now would get: the time until the key's line is empty. */
  waitSeconds: count.optional(),
  /** Whether its limits are too low: its line has been longer than a minute for ten minutes. */
  tooSmall: z.boolean().optional(),
  admitted: count,
  refused: count,
  /** How many of the admitted requests were over the limit of a plan in shadow mode. */
  shadowed: count.optional(),
  /** Left out if the key has no usable limits. */
  buckets: z.object({ minute: BucketView, day: BucketView }).optional(),
});
export type KeyView = z.infer<typeof KeyView>;

/** The active ban on a key, for responses that do not describe the whole key. */
export const BanView = KeyView.pick({
  bannedUntil: true,
  banReason: true,
  bannedSince: true,
  banRefused: true,
  banRefusedMore: true,
  bans: true,
});
export type BanView = z.infer<typeof BanView>;

/** `total` counts all keys, whether they match or not. `offset` is undefined if the call continued after a key. */
export const KeysAnswer = z.object({ total: count, offset: count.optional(), keys: listOf(KeyView), next: nextCursor });
export type KeysAnswer = z.infer<typeof KeysAnswer>;

/** A new key or a rotated one. `key` is the whole key, which no later response shows. */
export const IssuedKey = KeyView.extend({ key: z.string() });
export type IssuedKey = z.infer<typeof IssuedKey>;

/** A new secret. `key` is the whole key, as above. */
export const IssuedSecret = z.object({ id: z.string(), key: z.string() });
export type IssuedSecret = z.infer<typeof IssuedSecret>;

export const ReindexAnswer = z.object({ reindexed: count });
export type ReindexAnswer = z.infer<typeof ReindexAnswer>;

export const BansAnswer = z.object({ bans: listOf(KeyView), next: nextCursor });
export type BansAnswer = z.infer<typeof BansAnswer>;

export const LoudKey = KeyView.extend({ recent: z.object({ admitted: count, refused: count }) });
export type LoudKey = z.infer<typeof LoudKey>;

export const TopAnswer = KeysAnswer.extend({ minutes: count, keys: listOf(LoudKey) });
export type TopAnswer = z.infer<typeof TopAnswer>;

export const FoundKey = KeyView.extend({ foundBy: z.string() });
export type FoundKey = z.infer<typeof FoundKey>;

export const FoundAnswer = z.object({ keys: listOf(FoundKey), next: nextCursor });
export type FoundAnswer = z.infer<typeof FoundAnswer>;

/** `at` is the start of the minute, or the date. */
export const UseOfTime = z.object({ at: z.string(), admitted: count, refused: count });

/**
 * `now` is the time on the clock that decisions use. `banned` counts requests refused by bans, and is complete for
 * minutes that began at `bannedCountedSince` or later. Of earlier ones, gateways may have forgotten requests, so zeros
 * are left out. `bannedCountedSince` is left out if a gateway or worker does not respond. The counts of
 * stopped gateways are not included.
 */
export const KeyUsageAnswer = z.object({
  now: time,
  ban: BanView.optional(),
  bannedCountedSince: time.optional(),
  minutes: listOf(UseOfTime.extend({ banned: count.optional() })),
  days: listOf(UseOfTime),
});
export type KeyUsageAnswer = z.infer<typeof KeyUsageAnswer>;

/** The usage of one key. Its name, plan and tags are the current ones, or those that it had when it was revoked. */
export const UsageOfKey = z.object({
  id: z.string(),
  name: z.string(),
  plan: z.string(),
  tags: tags.optional(),
  ban: BanView.optional(),
  admitted: count,
  refused: count,
});
export type UsageOfKey = z.infer<typeof UsageOfKey>;

/** The usage of one key on one day (UTC). */
export const UsedOnDay = UsageOfKey.extend({ day: z.iso.date() });
export type UsedOnDay = z.infer<typeof UsedOnDay>;

/** The total usage of the keys that share a value of a tag. `value` is undefined for keys without the tag. */
export const UsageSum = z.object({ value: z.string().optional(), keys: count, admitted: count, refused: count });
export type UsageSum = z.infer<typeof UsageSum>;

export const UsageAnswer = z.object({
  keptFrom: z.iso.date(),
  usage: z.union([listOf(UsedOnDay), listOf(UsageOfKey), listOf(UsageSum)]),
  next: nextCursor,
});
export type UsageAnswer = z.infer<typeof UsageAnswer>;

export { DecisionReport };

/** `missing` names the workers and gateways that did not respond. */
export const DecisionsAnswer = z.object({ decisions: listOf(DecisionReport), missing: listOf(z.string()) });
export type DecisionsAnswer = z.infer<typeof DecisionsAnswer>;

export const ExplainAnswer = DecisionsAnswer.extend({ key: KeyView, planVersion: z.string().optional() });
export type ExplainAnswer = z.infer<typeof ExplainAnswer>;

/** A request. It has no `status` while it is in progress. */
export const RequestView = RequestReport.omit({ cursor: true, digest: true, fault: true, banBeganAt: true }).extend({
  /** The current name of the key, or its name when it was revoked. */
  keyName: z.string().optional(),
  keyBan: BanView.optional(),
  secretId: z.string().optional(),
  /** Why it was refused or failed. Undefined if it was served. */
  reason: z.string().optional(),
  advice: z.string().optional(),
});
export type RequestView = z.infer<typeof RequestView>;

/**
 * `missing` names the workers and gateways that did not respond. `since` is when the newest process started: requests
 * from before then are not included if the process that handled them was replaced.
 */
export const RequestsAnswer = z.object({
  requests: listOf(RequestView),
  missing: listOf(z.string()),
  since: time,
  next: nextCursor,
});
export type RequestsAnswer = z.infer<typeof RequestsAnswer>;

const fieldValue = (field: PlanField) => {
  const { options } = ruleOf(field);
  return options === undefined ? count : z.enum(options);
};

const planFields = FIELD_NAMES.map((field) => [field, fieldValue(field).optional()]);

export const PlanView: z.ZodType<PlanTable[keyof PlanTable]> = z.object(Object.fromEntries(planFields));
export const Plans: z.ZodType<PlanTable> = z.object(
  Object.fromEntries(PLAN_NAMES.map((plan) => [plan, PlanView])) as Record<keyof PlanTable, typeof PlanView>,
);
export type { PlanTable };

export const PlanChangeView = RecordedChange.omit({ version: true }).extend({ at: time });
export type PlanChangeView = z.infer<typeof PlanChangeView>;

export const HistoryAnswer = z.object({ history: listOf(PlanChangeView) });
export type HistoryAnswer = z.infer<typeof HistoryAnswer>;

/** `targetName` is undefined if the target has no name, or if it no longer exists and the log does not name it. */
export const ActivityView = RecordedActivity.extend({ at: time, targetName: z.string().optional() });
export type ActivityView = z.infer<typeof ActivityView>;

export const ActivityAnswer = z.object({ activity: listOf(ActivityView), next: nextCursor });
export type ActivityAnswer = z.infer<typeof ActivityAnswer>;

export const TokenView = OperatorToken.omit({ digest: true }).extend({ id: z.string() });
export type TokenView = z.infer<typeof TokenView>;

export const TokensAnswer = z.object({ tokens: listOf(TokenView) });
export type TokensAnswer = z.infer<typeof TokensAnswer>;

/** A new token, which no later response shows. */
export const IssuedToken = TokenView.omit({ createdAt: true }).extend({ token: z.string() });
export type IssuedToken = z.infer<typeof IssuedToken>;

/** The name is undefined for the shared token. */
export const CallerAnswer = z.object({ name: z.string().optional(), role: z.enum(ROLES) });
export type CallerAnswer = z.infer<typeof CallerAnswer>;

/** The keys of the plan that were used in the last hour, their requests, and what the limits would have refused. */
export const TrialAnswer = z.object({
  keys: count,
  requests: count,
  affected: listOf(
    z.object({
      ...{ id: z.string(), name: z.string(), requests: count, refused: count, wouldRefuse: count },
      ban: BanView.optional(),
    }),
  ),
  next: nextCursor,
});
export type TrialAnswer = z.infer<typeof TrialAnswer>;

const NotTaken = z.object({ id: z.string(), reason: z.string() });

/** A page of a backup. The first one contains the plans. */
export const BackupAnswer = z.object({
  at: time,
  plans: z.record(z.string(), z.string().optional()).optional(),
  keys: listOf(z.object({ id: z.string(), createdAt: z.number(), fields: z.record(z.string(), z.string()) })),
  leftOut: listOf(NotTaken),
  next: nextCursor,
});
export type BackupAnswer = z.infer<typeof BackupAnswer>;

export const BackupNoted = z.object({ completedAt: time });

export const RestoreAnswer = z.object({
  restored: count,
  present: count,
  revoked: count,
  rejected: listOf(NotTaken),
  plans: z
    .object({
      restored: listOf(z.string()),
      kept: listOf(z.object({ field: z.string(), value: z.string(), backup: z.string() })),
      rejected: listOf(z.string()),
    })
    .optional(),
});
export type RestoreAnswer = z.infer<typeof RestoreAnswer>;

export { CheckResult };

export const DoctorAnswer = z.object({ findings: listOf(CheckResult) });
export type DoctorAnswer = z.infer<typeof DoctorAnswer>;

const Answered = z.object({ at: time, ms: z.number() });

/** The kind of Redis that the gateway uses, according to the settings. */
export const RedisMode = z.enum(['single', 'cluster', 'sentinel', 'embedded']);
export type RedisMode = z.infer<typeof RedisMode>;

/** The Redis connections of all processes that serve clients. */
export const RedisView = z.object({
  mode: RedisMode,
  /** How many of these processes are connected. */
  connected: count,
  /** When the last of them connected, or when the first of them lost its connection. */
  since: time.optional(),
  lastCall: Answered.optional(),
  /** The 99th percentile of the durations of all calls since the start; null before the first call. */
  p99: z.number().nullable(),
  missedDeadlines: count,
});
export type RedisView = z.infer<typeof RedisView>;

type CoreFault = NonNullable<SeenCore['lastFault']>['kind'];

/** The state of a core, combined from the views of all processes that serve clients. */
export const CoreView = z.object({
  origin: z.string(),
  /**
   * The worst state that any process sees. `silent`: its requests go to other cores. `draining`: it was removed from
   * CORE_URL and is finishing its requests. `unproven`: it is the only core and has not answered a request yet.
   */
  state: z.enum(['out', 'silent', 'draining', 'up', 'unproven']),
  /** How many processes see it in this state. */
  seenBy: count,
  since: time,
  reason: z.string().optional(),
  inFlight: count,
  /** How many of the requests in flight are waiting for a connection. */
  waiting: count,
  /** The current limit of concurrent requests. */
  limit: count,
  /** The last response to a client's request; probes do not count. */
  lastAnswer: Answered.optional(),
  lastFault: z.object({ at: time, kind: z.string() as unknown as z.ZodType<CoreFault> }).optional(),
});
export type CoreView = z.infer<typeof CoreView>;

/** A value in the plan table that is not in force, and the value in force instead. */
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
  health: CheckResult.optional(),
  /** All current findings that are faults or unknown, faults first. */
  findings: listOf(CheckResult),
  /** Present only with WORKERS > 1. */
  workers: WorkersState.optional(),
  /** How many processes serve clients. `cores` and `redis` combine their views, without those of other gateways. */
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
    /** The plans in shadow mode, which refuse nothing. */
    shadowPlans: z.array(z.enum(PLAN_NAMES)),
  }),
});
export type TrafficAnswer = z.infer<typeof TrafficAnswer>;

export const MinuteReport = z.object({
  /** The start of the minute. */
  at: time,
  admitted: count,
  refused: count,
  banned: count,
  /** How many keys sent the banned requests. */
  bannedKeys: count,
  unauthorized: count,
  serverErrors: count,
  /** In milliseconds; null if there were no requests. */
  p50: z.number().nullable(),
  p99: z.number().nullable(),
});
export type MinuteReport = z.infer<typeof MinuteReport>;

/** `since` is when the gateway started; nothing is known about earlier minutes. */
export const MinutesAnswer = z.object({ since: time, minutes: listOf(MinuteReport) });
export type MinutesAnswer = z.infer<typeof MinutesAnswer>;
