import type { Family } from '../../shared/process/counts.ts';
import type { CheckResult } from '../check-result.ts';
import type { Limiter } from '../limiter/limiter.ts';
import type { AuditLog } from './audit.ts';
import type { Backups } from './key-backup.ts';
import type { Keys } from './keys.ts';
import type { Plans } from './plans.ts';
import type { Storage } from './storage.ts';
import type { Tokens } from './tokens.ts';

/**
 * The stores for operators. They wait longer than decisions do; otherwise a completed change could look like a failed
 * one.
 */
export interface OperatorsStores {
  readonly keys: Keys;
  readonly plans: Plans;
  readonly activity: AuditLog;
  readonly tokens: Tokens;
  readonly backups: Backups;
}

/** A connection for decisions. Times are Unix times in ms. */
export interface RedisState {
  readonly isConnected: boolean;
  /** When it was connected, or lost. */
  readonly since: number;
  /** The last call that decided, whether it failed or not. */
  readonly lastCall: { readonly at: number; readonly ms: number } | undefined;
}

export interface PeerAnswer {
  /** Its host and its process. */
  readonly gateway: string;
  readonly answer: unknown;
}

/** Gateways that ask each other. */
export interface Peers {
  start(): void;
  /**
   * Asks all others. Never rejects.
   * @returns their answers, and those that gave none in time: undefined if it is unknown who there is
   */
  ask(
    content: unknown,
    withinMs: number,
  ): Promise<{ answers: readonly PeerAnswer[]; missing: readonly string[] | undefined }>;
  stop(): Promise<void>;
}

/** A limiter and the storage under all stores, in Redis or in this gateway, and how to close them. */
export interface Backend {
  readonly limiter: Limiter;
  /** With the deadline of decisions. */
  readonly storage: Storage;
  /** Opens the storage for operators. Called once, by the process that serves operators. */
  operatorsStorage(): Promise<Storage>;
  /** @returns whether the script of decisions is there, and may be run */
  loadScript(): Promise<boolean>;
  /** Nodes that are away. Their decisions are taken locally. */
  nodesAway(): number;
  /** The connection for decisions, as last seen; undefined without one. */
  redis(): RedisState | undefined;
  /** Counts of the calls that decide. */
  counted(): Family[];
  /** The share of its memory that each node of Redis uses, 0 to 1; nodes that do not answer are left out. */
  memoryUsed(): Promise<[node: string, share: number][]>;
  /**
   * The other gateways on the same store, once `operatorsStorage` was opened; undefined if there can be none.
   * @param answer of this gateway to what another one asks
   */
  peers?(answer: (content: unknown) => Promise<unknown>): Peers;
  /** The state of the store, for operators. */
  check(): Promise<CheckResult[]>;
  close(): Promise<void>;
}
