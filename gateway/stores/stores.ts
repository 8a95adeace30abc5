import type { Family } from '../../shared/process/counts.ts';
import type { CheckResult } from '../check-result.ts';
import type { Limiter } from '../limiter/limiter.ts';
import type { AuditLog } from './audit.ts';
import type { Backups } from './key-backup.ts';
import type { Keys } from './keys.ts';
import type { Plans } from './plans.ts';
import type { Peers } from './redis/peers.ts';
import type { Storage } from './storage.ts';
import type { Tokens } from './tokens.ts';

/**
 * The stores for operators. Their timeouts are longer than those of decisions, so that a slow change does not look like
 * a failed one.
 */
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
  /** When it was last connected or lost. */
  readonly since: number;
  /** The last call for decisions, whether or not it failed. */
  readonly lastCall: { readonly at: number; readonly ms: number } | undefined;
}

/** A limiter and the storage under all stores, in Redis or in this gateway. Closing it closes both. */
export interface Backend {
  readonly limiter: Limiter;
  /** The storage with the deadline of decisions. */
  readonly storage: Storage;
  /** Opens the storage for operators. Called once, by the process that serves operators. */
  operatorsStorage(): Promise<Storage>;
  /** @returns whether decide.lua is loaded and may be run */
  loadScript(): Promise<boolean>;
  /** The number of nodes that are away. Their keys are decided locally. */
  nodesAway(): number;
  /** The last known state of the connection for decisions; undefined without Redis. */
  redis(): RedisState | undefined;
  /** Metrics of the calls for decisions. */
  counted(): Family[];
  /** The share of its memory that each node of Redis uses, 0 to 1; without nodes that do not answer. */
  memoryUsed(): Promise<[node: string, share: number][]>;
  /**
   * The other gateways on the same store, once `operatorsStorage` was opened; undefined if there can be none.
   * @param answer answers the question of another gateway
   */
  peers?(answer: (content: unknown) => Promise<unknown>): Peers;
  check(): Promise<CheckResult[]>;
  close(): Promise<void>;
}
