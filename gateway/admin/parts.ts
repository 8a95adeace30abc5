import type { Family } from '../../shared/counts.ts';
import type { Logger } from '../../shared/logger.ts';
import type { Operation, ServiceOptions } from '../../shared/service.ts';
import type { OperatorsStores } from '../access/limiter.ts';
import type { PlanCache } from '../access/plan-cache.ts';
import type { Finding } from '../finding.ts';
import type { DecisionQuery, DecisionReport } from '../telemetry/recent-decisions.ts';

/** What the operators' operations work with. */
export interface AdminParts extends OperatorsStores {
  readonly planCache: PlanCache;
  readonly logger: Logger;
  readonly traffic: TrafficSource;
  /** How all that the gateway asks of others stands. */
  examineOthers(): Promise<Finding[]>;
  readonly decisions: DecisionSource;
}

/** The last decisions of the processes that serve clients. */
export interface DecisionSource {
  /** The newest first. */
  find(query: DecisionQuery): Promise<readonly DecisionReport[]> | readonly DecisionReport[];
}

/** What the processes that serve clients have counted, and how they decide. */
export interface TrafficSource {
  readonly since: Date;
  counted(): readonly Family[];
  /** Whether any of them decides without a Redis that it should ask. */
  isLocal(): boolean;
}

/** What the operators' listener is told by whoever serves clients, in this process or in others. */
export type AboutGateway = Pick<ServiceOptions<AdminParts>, 'metrics' | 'check'> &
  Pick<TrafficSource, 'isLocal'> &
  Pick<AdminParts, 'decisions'>;

export type AdminOperation = Operation<AdminParts>;

/** No body that an operator sends is larger. */
export const ADMIN_BODY_LIMIT_BYTES = 16_384;
