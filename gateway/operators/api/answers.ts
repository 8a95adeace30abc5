import type { GatewaySettings } from '../../config.ts';
import type { PlanTable, RejectedValue } from '../../limiter/plans.ts';
import type { RecordedActivity } from '../../stores/audit.ts';
import type { RecordedChange } from '../../stores/plans.ts';
import type { OperatorToken, Role } from '../../stores/tokens.ts';
import type { DecisionReport } from '../../telemetry/decision-report.ts';
import type { MinuteReport } from '../../telemetry/recent-minutes.ts';
import type { RequestReport } from '../../telemetry/recent-requests.ts';
import type { Totals } from '../../telemetry/totals.ts';
import type { SeenCore, WorkersState } from '../../telemetry/watched-traffic.ts';
import type { SeenFinding } from './findings-since.ts';
import type { describeKey, describeKeyInFull, describeSecret } from './key-view.ts';
import type { UsageOfKey, UsedOnDay } from './usage.ts';
import type { UsageSum } from './usage-sums.ts';

/** The answers of the admin API. The operations produce these types. The console and the command line read them. */

export type { DecisionReport, MinuteReport, PlanTable, RejectedValue, SeenFinding };

/** A key without its buckets. */
export type KeySummary = ReturnType<typeof describeKey>;
/** Without `buckets` if the key has no usable limits. */
export type KeyView = KeySummary & Partial<Pick<Extract<ReturnType<typeof describeKeyInFull>, Bucketed>, 'buckets'>>;
interface Bucketed {
  readonly buckets: unknown;
}
export type BucketView = NonNullable<KeyView['buckets']>['day'];
export type SecretView = ReturnType<typeof describeSecret>;

export interface KeysAnswer {
  /** All keys, whether they match or not. */
  readonly total: number;
  readonly offset: number;
  readonly keys: readonly KeyView[];
  readonly next: number | undefined;
}

/** The answer that shows a whole key, this once. */
export type IssuedKey = KeyView & { readonly key: string };

export interface BansAnswer {
  readonly bans: readonly KeySummary[];
  readonly next: number | undefined;
}

/** The loudest keys of some minutes, the loudest first. */
export interface TopAnswer extends KeysAnswer {
  readonly minutes: number;
  readonly keys: readonly (KeyView & { readonly recent: { readonly admitted: number; readonly refused: number } })[];
}

export interface FoundAnswer {
  readonly keys: readonly (KeyView & { readonly foundBy: string })[];
  readonly next: number | undefined;
}

export interface UseOfTime {
  /** The beginning of the minute, or the date. */
  readonly at: string;
  readonly admitted: number;
  readonly refused: number;
}

export interface KeyUsageAnswer {
  /** The clock of decisions. */
  readonly now: string;
  readonly minutes: readonly UseOfTime[];
  readonly days: readonly UseOfTime[];
}

/** By day, or as sums: of each key, or of each value of a tag. */
export interface UsageAnswer<Row = UsedOnDay | UsageOfKey | UsageSum> {
  /** Nothing is kept of the days before. */
  readonly keptFrom: string;
  readonly usage: readonly Row[];
  readonly next: string | undefined;
}

export interface DecisionsAnswer {
  readonly decisions: readonly DecisionReport[];
}

export interface ExplainAnswer extends DecisionsAnswer {
  readonly key: KeyView;
  readonly planVersion: string | undefined;
}

export type RequestView = Omit<RequestReport, 'cursor' | 'digest' | 'fault'> & {
  /** Of the key as it is now; undefined if there is none any more. */
  readonly keyName: string | undefined;
  readonly secretId: string | undefined;
  /** Why it was answered so, and what to look at or to change. Undefined if it was served. */
  readonly reason: string | undefined;
  readonly advice: string | undefined;
};

export interface RequestsAnswer {
  readonly requests: readonly RequestView[];
  /** The workers and gateways that did not answer. */
  readonly missing: readonly string[];
  readonly next: string | undefined;
}

export interface TrafficAnswer {
  readonly since: string;
  readonly mode: 'shared' | 'local';
  readonly modeSince: string;
  /** The worst of what is a fault or unknown now; undefined if all is well. */
  readonly health: SeenFinding | undefined;
  /** Only with WORKERS > 1. */
  readonly workers: WorkersState | undefined;
  /** Processes that serve clients: `cores` and `redis` are what these see. Other gateways are not in it. */
  readonly processes: number;
  readonly cores: readonly CoreView[];
  readonly redis: RedisView;
  readonly totals: Totals;
  readonly plans: Readonly<Record<string, Readonly<Record<string, number>>>>;
  readonly planTable: {
    readonly version: string | undefined;
    readonly changedAt: string;
    readonly rejectedValues: number;
    readonly rejected: readonly RejectedValue[];
  };
}

/** How decisions are shared: by the settings. */
export type RedisMode = GatewaySettings['REDIS_MODE'] | 'embedded';

/** The connections to Redis of all processes that serve clients. */
export interface RedisView {
  readonly mode: RedisMode;
  /** How many of these processes are connected. */
  readonly connected: number;
  /** When the last of them was connected, or the first lost its connection. */
  readonly since: string | undefined;
  readonly lastCall: { readonly at: string; readonly ms: number } | undefined;
  /** Of the calls since the start; null before the first. */
  readonly p99: number | null;
  readonly missedDeadlines: number;
}

/** A core, as all processes that serve clients see it together. */
export interface CoreView {
  readonly origin: string;
  /**
   * The worst that a process sees. `silent`: its reads go to another core. `draining`: it has left CORE_URL and answers
   * what it was asked. `unproven`: the only core, and it has answered no request yet.
   */
  readonly state: 'out' | 'silent' | 'draining' | 'up' | 'unproven';
  /** How many processes see this state. */
  readonly seenBy: number;
  readonly since: string;
  /** Why it is out. */
  readonly reason: string | undefined;
  readonly inFlight: number;
  /** Of these, those that wait for a connection. */
  readonly waiting: number;
  /** Requests that it may be asked at once. */
  readonly limit: number;
  /** To a client's request: probes do not count. */
  readonly lastAnswer: { readonly at: string; readonly ms: number } | undefined;
  readonly lastFault: { readonly at: string; readonly kind: NonNullable<SeenCore['lastFault']>['kind'] } | undefined;
}

export interface MinutesAnswer {
  /** The start of the gateway: there is nothing before it. */
  readonly since: string;
  readonly minutes: readonly MinuteReport[];
}

export type PlanChangeView = Omit<RecordedChange, 'version'> & { readonly at: string };

export interface HistoryAnswer {
  readonly history: readonly PlanChangeView[];
}

/** `targetName` is undefined for what has no name, or is gone and unnamed in the log. */
export type ActivityView = RecordedActivity & { readonly at: string; readonly targetName: string | undefined };

export interface ActivityAnswer {
  readonly activity: readonly ActivityView[];
  readonly next?: string | undefined;
}

export type TokenView = Omit<OperatorToken, 'digest'> & { readonly id: string };

export interface CallerAnswer {
  /** Undefined for the shared token. */
  readonly name: string | undefined;
  readonly role: Role;
}

export interface TokensAnswer {
  readonly tokens: readonly TokenView[];
}

export interface TrialAnswer {
  readonly keys: number;
  readonly requests: number;
  readonly affected: readonly {
    readonly id: string;
    readonly name: string;
    readonly requests: number;
    readonly refused: number;
    readonly wouldRefuse: number;
  }[];
  readonly next: string | undefined;
}

export interface DoctorAnswer {
  readonly findings: readonly SeenFinding[];
}
