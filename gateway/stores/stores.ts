import { Conflict } from '../../shared/domain-errors.ts';
import type { Family } from '../../shared/process/counts.ts';
import type { CheckResult } from '../check-result.ts';
import type { KeyChange, KeyEntry, KeyRecord } from '../limiter/key-record.ts';
import type { Limiter } from '../limiter/limiter.ts';
import type { StoredPlans } from '../limiter/plans.ts';
import type { AboutChange, Activity, ActivityStore, WithActivity } from './activity-entry.ts';
import type { BackedUpKey, BackupPage, Backups, RestoreOutcome } from './key-backup.ts';
import type { KeyPage, WalkQuery } from './key-walk.ts';
import type { TokenStore } from './operator-token.ts';
import type { PlanChange, RecordedChange } from './plan-history.ts';
import type { Storage } from './storage.ts';

/** The interfaces of all stores of keys and plans. Calls throw {StoreUnavailable} if the store cannot be reached. */

/** Stores API keys. */
export interface KeyStore {
  /** The clock of decisions: Unix time in microseconds. */
  now(): Promise<number>;
  /** @param activity the entry of the activity, here and below: written in the same step, where the store allows */
  create(id: string, record: KeyRecord, activity?: Activity): Promise<void>;
  get(id: string): Promise<KeyEntry | undefined>;
  /** Whether the key is valid now with the secret of this digest. Unreadable data counts as valid. */
  isValid(id: string, digest: string): Promise<boolean>;
  /** Newest first. */
  list(query: KeyQuery): Promise<KeyList>;
  /**
   * Changes a key to the result of `make`. Calls it again if another change came first.
   * @returns the key after the change; undefined if there is no such key
   * @throws {Unreadable} for malformed data
   */
  change(id: string, make: (record: KeyRecord) => KeyChange & WithActivity): Promise<KeyEntry | undefined>;
  /** All keys, page by page, the oldest first, including those revoked in the last 36 days. */
  walk(query: WalkQuery): Promise<KeyPage>;
  /** The existing keys in their stored form, page by page, the oldest first. */
  export(query: WalkQuery): Promise<BackupPage>;
  /**
   * Restores keys from a backup if their ids are free. Can be repeated. The caller checks the age of the backup: a key
   * that was revoked more than 36 days ago is not known as revoked any more.
   * @param entryFor the entry of the audit log for a key that is restored
   * @param isTrial whether nothing is to be written
   * @returns the result for each, in order
   */
  restore(
    keys: readonly BackedUpKey[],
    entryFor?: (id: string, name: string) => Activity,
    isTrial?: boolean,
  ): Promise<RestoreOutcome[]>;
  /** Revokes a key. That it is revoked, and its use, are kept for 36 days. @returns false if there was none */
  remove(id: string, activity?: Activity): Promise<boolean>;
  /** Ids of keys that work and are in no list: the order of keys was lost or edited by hand. */
  unlisted(): Promise<readonly string[]>;
  /** Puts them into the order of keys again. @returns their number */
  relist(): Promise<number>;
  /**
   * Claims an event of a key for a day (UTC, days since 1970). Nothing is written for a key that does not exist.
   * @param claimant a name of the one attempt to report it, without spaces: who asks again under it gets the same answer
   * @returns whether the caller must report it: false if another claimant has it, or there is no such key
   */
  claim(id: string, event: string, day: number, claimant: string): Promise<boolean>;
}

/** The key's data is malformed, for example after an edit by hand. */
export class Unreadable extends Conflict {
  constructor() {
    super("The key's data cannot be read. Fix it by hand, or revoke the key.");
  }
}

export interface KeyQuery {
  readonly offset: number;
  readonly limit: number;
  /** Whether a key matches the search. */
  isWanted(entry: KeyEntry): boolean;
}

export interface KeyList {
  /** The number of all keys, matching or not. */
  readonly total: number;
  readonly keys: readonly KeyEntry[];
  /** Where to continue, if the list is full or enough keys were checked. Undefined at the end. */
  readonly next: number | undefined;
}

/** Stores the plan table and its history. */
export interface PlanStore {
  /** Undefined if there is none. */
  read(): Promise<StoredPlans | undefined>;
  /** The table as a gateway last left it: every value in it is good. */
  readKept(): Promise<StoredPlans | undefined>;
  /**
   * Writes the built-in table into a store in which nothing of a gateway was ever stored, and completes one that people
   * typed there before. Does nothing in any other store.
   */
  begin(): Promise<void>;
  /**
   * Checks that the table is still the one that the caller has seen, sets fields and records the change, in one step.
   * A change without effect is not recorded.
   * @param seen undefined to set them in any case
   * @returns undefined if the table is not `seen`, and then nothing was set
   */
  change(changes: StoredPlans, about: AboutChange, seen?: StoredPlans): Promise<PlansChanged | undefined>;
  /** Records what was edited by hand, once over all gateways. @returns the entries, if this call recorded them */
  acceptEdit(): Promise<readonly Activity[]>;
  /**
   * Writes a missing table back: `last`, or what is kept of it.
   * @returns the entries of the audit log, if this call wrote it
   */
  writeBack(last: StoredPlans | undefined): Promise<readonly Activity[]>;
  /** Newest first. */
  history(limit: number): Promise<RecordedChange[]>;
}

/** The result of a change of the table. */
export interface PlansChanged {
  readonly before: StoredPlans;
  /** The record of the change, if there was an effect. */
  readonly change: PlanChange | undefined;
  /** Why the history does not have it; undefined if it does. */
  readonly unrecorded: string | undefined;
}

/**
 * The stores for operators. They wait longer than decisions do; otherwise a completed change could look like a failed
 * one.
 */
export interface OperatorsStores {
  readonly keys: KeyStore;
  readonly plans: PlanStore;
  readonly activity: ActivityStore;
  readonly tokens: TokenStore;
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

/** A limiter and the storage under all stores, in Redis or in this gateway, and how to close them. */
export interface Backend {
  readonly limiter: Limiter;
  /** With the deadline of decisions. */
  readonly storage: Storage;
  /** Opens the storage for operators. Called once, by the process that serves operators. */
  operatorsStorage(): Promise<Storage>;
  /** @returns whether the script of decisions is there, and may be run */
  loadScript(): Promise<boolean>;
  /** The number of keys that are banned, as far as this process knows. */
  bans(): number;
  /** Nodes that are away. Their decisions are taken locally. */
  nodesAway(): number;
  /** The connection for decisions, as last seen; undefined without one. */
  redis(): RedisState | undefined;
  /** Counts of the calls that decide. */
  counted(): Family[];
  /** The share of its memory that each node of Redis uses, 0 to 1; nodes that do not answer are left out. */
  memoryUsed(): Promise<[node: string, share: number][]>;
  /** The state of the store, for operators. */
  check(): Promise<CheckResult[]>;
  close(): Promise<void>;
}
