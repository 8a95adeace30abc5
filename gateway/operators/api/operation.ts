import type { z } from 'zod';
import type { Call, Operation, ServiceOptions, ServiceRoute } from '../../../shared/http/service.ts';
import type { Logger } from '../../../shared/process/logger.ts';
import type { CheckResult } from '../../check-result.ts';
import type { OperatorsStores } from '../../stores/backend.ts';
import type { PlanCache } from '../../stores/plan-cache.ts';
import type { Role } from '../../stores/words.ts';
import type { FoundRequests, RequestQuery } from '../../telemetry/recent-requests.ts';
import type { TrafficSource, WatchedTraffic } from '../../telemetry/state.ts';
import type { Operator } from './access.ts';
import type { RedisMode } from './answers.ts';
import type { FindingsSince } from './findings-since.ts';
import type { Health } from './health.ts';

/** The dependencies of the operators' operations. */
export interface AdminDependencies extends OperatorsStores {
  readonly planCache: PlanCache;
  readonly logger: Logger;
  readonly traffic: WatchedTraffic;
  readonly redisMode: RedisMode;
  /** Checks of the gateway's dependencies, by name. */
  readonly checkDependencies: Readonly<Record<string, () => Promise<CheckResult[]> | CheckResult[]>>;
  readonly health: Pick<Health, 'watch' | 'seen' | 'worst'>;
  readonly requests: RequestSource;
  readonly findings: FindingsSince;
}

/** The last requests of the processes that serve clients, the newest first. */
export interface RequestSource {
  find(query: RequestQuery): Promise<FoundRequests>;
}

/** What the operators' listener gets from the processes that serve clients, whether this one is among them or not. */
export type AboutGateway = Pick<ServiceOptions<AdminDependencies, Operator>, 'metrics' | 'check'> &
  Omit<TrafficSource, 'counted'> &
  Pick<AdminDependencies, 'requests'>;

export type AdminOperation = Operation<AdminDependencies, Operator>;

export type AdminCall = Call<AdminDependencies, Operator>;

/** An operation: how it is served, and how the OpenAPI document describes it. */
export interface AdminRoute extends ServiceRoute<AdminDependencies, Operator> {
  readonly needs?: Role;
  readonly summary: string;
  readonly query?: z.ZodObject;
  readonly body?: z.ZodType;
  readonly isBodyOptional?: true;
  /** The body of a success; undefined if it has none. */
  readonly answer?: z.ZodType;
  /** Whether it creates something, and answers with 201. */
  readonly creates?: true;
  /** Whether its answer has the version of the plan table as ETag. */
  readonly isVersioned?: true;
  /** Errors by status, besides those that its method, path and body imply. */
  readonly errors?: readonly number[];
}

/** The maximum size of the body of an operator's request, except for a restore. */
export const ADMIN_BODY_LIMIT_BYTES = 16_384;
