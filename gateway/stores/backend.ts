import type { Family } from '../../shared/process/counts.ts';
import { type CheckResult, fault, good } from '../check-result.ts';
import { type Limiter, StoreUnavailable } from '../limiter/limiter.ts';
import type { PlansInForce } from '../limiter/plans.ts';
import type { AuditLog } from './audit.ts';
import type { EmbeddedLimiter } from './embedded-limiter.ts';
import type { Backups, Keys } from './keys.ts';
import type { Plans } from './plans.ts';
import type { Answer, Peers } from './redis/peers.ts';
import { adviceOn } from './sqlite/disk.ts';
import type { Storage } from './storage.ts';
import type { Tokens } from './tokens.ts';

/** The stores for operators. With their longer timeouts, a slow change does not look like a failed one. */
export interface OperatorsStores {
  readonly keys: Keys;
  readonly plans: Plans;
  readonly activity: AuditLog;
  readonly tokens: Tokens;
  readonly backups: Backups;
}

/** The connection for decisions. Times are Unix times in ms. */
export interface RedisState {
  readonly isConnected: boolean;
  /** When the connection was last made or lost. */
  readonly since: number;
  /** The last call for decisions, whether or not it failed. */
  readonly lastCall: { readonly at: number; readonly ms: number } | undefined;
  /** Why decisions are local; undefined if they are shared. */
  readonly outage: string | undefined;
}

/** A limiter and the storage under all stores, in Redis or in this gateway. Closing it closes both. */
export interface Backend {
  readonly limiter: Limiter;
  /** The storage with the deadline of decisions. */
  readonly storage: Storage;
  /** Opens the storage for operators. Called once, by the process that serves operators. */
  operatorsStorage(): Promise<Storage>;
  /** @returns why decide.lua cannot be run; undefined once it is loaded */
  loadScript(): Promise<Error | undefined>;
  /** The number of unavailable nodes. Requests with their keys are decided locally. */
  nodesAway(): number;
  /** The last known state of the connection for decisions; undefined without Redis. */
  redis(): RedisState | undefined;
  /** Metrics of the calls for decisions. */
  counted(): Family[];
  /** The share of its memory that each Redis node uses, 0 to 1. Nodes that do not answer are left out. */
  memoryUsed(): Promise<[node: string, share: number][]>;
  /** The other gateways on the same store; undefined if there can be none. Call `operatorsStorage` first. */
  peers?(answer: Answer): Peers;
  check(): Promise<CheckResult[]>;
  close(): Promise<void>;
}

/** The parts of a gateway without Redis. Some exist only in one of its processes. */
export interface Embedded {
  /** The process that has the storage open knows why changes are refused, and whether only a restart can help. */
  readonly storage: Storage & { fault?(): string | undefined; readonly isCopy?: boolean };
  /** Creates the limiter, in a process that serves clients. */
  readonly limiterOf?: (plans: PlansInForce) => EmbeddedLimiter;
}

/** Keys, plans and decisions of one gateway, without Redis. The caller opens and closes the storage. */
export function embeddedBackend({ storage, limiterOf }: Embedded, plans: PlansInForce): Backend {
  const limiter = limiterOf?.(plans);
  return {
    limiter: limiter ?? NOBODY_DECIDES,
    storage,
    operatorsStorage: async () => storage,
    loadScript: async () => undefined,
    nodesAway: () => 0,
    redis: () => undefined,
    counted: () => [],
    memoryUsed: async () => [],
    check: async () => [
      good('limits', 'are embedded in this gateway; with REDIS_URL, gateways share them'),
      checkFault(storage.fault?.(), storage.isCopy ?? false),
    ],
    close: async () => await limiter?.stop(),
  };
}

function checkFault(why: string | undefined, isCopy: boolean): CheckResult {
  if (why === undefined) return good('data', 'is stored in DATA_DIR');
  const advice = isCopy
    ? 'Make DATA_DIR writable, then restart this gateway. Until then, it uses a copy of the data.'
    : adviceOn(why);
  return fault('data', `cannot be stored, and changes are refused. ${why}`, advice);
}

const refuse = async () => {
  throw new StoreUnavailable('This process makes no decisions.');
};

const NOBODY_DECIDES: Limiter = { decide: refuse, peek: refuse };
