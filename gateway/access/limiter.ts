import type { Family } from '../../shared/counts.ts';
import { Conflict, Unavailable } from '../../shared/domain-errors.ts';
import type { Finding } from '../finding.ts';
import type { Credential } from './credential.ts';
import type { Walked, WalkQuery } from './key-walk.ts';
import type { KeyChange, KeyEntry, KeyRecord } from './keys.ts';
import type { PlanChange, RecordedChange } from './plan-history.ts';
import type { StoredPlans } from './plans.ts';
import type { Verdict } from './verdict.ts';

/** Decides requests: who the key belongs to, whether it is banned, and what its buckets still allow. */
export interface Limiter {
  /** @throws {AccessUnavailable} when no decision could be had */
  decide(credential: Credential): Promise<Verdict>;
  /**
   * Where a key stands: as a decision would find it, with nothing taken, no strike and nothing written.
   * @throws {AccessUnavailable} when it could not be had
   */
  peek(credential: Credential): Promise<Verdict>;
}

/** A decision that somebody waits for. */
export interface Question {
  readonly credential: Credential;
  /** False once nobody waits any more: what was not sent by then is not sent at all. */
  readonly isOpen: boolean;
  /** @param isLate it came after the deadline */
  answered(verdict: Verdict, isLate: boolean): void;
  /**
   * A deadline has passed, and the answer may still come: said again at every further one.
   * @param since when the time began that has passed, as of performance.now()
   */
  late(since: number): void;
  /** No answer will come. */
  failed(fault: AccessUnavailable): void;
}

/** A limiter that can be slow. */
export interface RemoteLimiter extends Limiter {
  ask(question: Question): void;
}

/**
 * What is kept of keys and plans cannot be reached. A decision that failed so may have been charged; it is not admitted.
 * The cause is told in words only: what was sent holds digests, and a library's error can hold what was sent.
 */
export class AccessUnavailable extends Unavailable {}

/** Where API keys are kept. Every call throws {AccessUnavailable} when that cannot be reached. */
export interface KeyStore {
  /** The clock that decisions go by: Unix time in microseconds. */
  now(): Promise<number>;
  create(id: string, record: KeyRecord): Promise<void>;
  get(id: string): Promise<KeyEntry | undefined>;
  /** Whether the key, with the secret of this digest, opens anything now. What cannot be read counts as good. */
  isGood(id: string, digest: string): Promise<boolean>;
  /** Newest first. */
  list(query: KeyQuery): Promise<KeyList>;
  /**
   * Changes a key to what `make` makes of it; asks again when somebody else was quicker.
   * @returns false when there is no such key
   * @throws {Unreadable} for a key that is not what a key looks like
   */
  change(id: string, make: (record: KeyRecord) => KeyChange): Promise<boolean>;
  /** All keys, page by page, the oldest first; those that were revoked in the last 36 days too. */
  walk(query: WalkQuery): Promise<Walked>;
  /** Revokes a key for good; only what it has used is kept, for 36 days. False when there was none. */
  remove(id: string): Promise<boolean>;
}

/** The key's data is not what a key's data looks like, as a hand on the data can leave it. */
export class Unreadable extends Conflict {
  constructor() {
    super("The key's data cannot be read. Mend it by hand, or revoke the key.");
  }
}

export interface KeyQuery {
  readonly offset: number;
  readonly limit: number;
  /** Part of the name, in any case. */
  readonly name?: string | undefined;
  /** Only keys that are banned beyond this time. */
  readonly bannedAfter?: number | undefined;
}

export interface KeyList {
  /** How many keys there are, wanted or not. */
  readonly total: number;
  readonly keys: readonly KeyEntry[];
  /** Where to go on: the list was full, or enough keys were looked at for one time. Undefined at the end. */
  readonly next: number | undefined;
}

/** Where the plan table and its history are kept. Every call throws {AccessUnavailable} when that cannot be reached. */
export interface PlanStore {
  read(): Promise<StoredPlans>;
  /** Adds the fields that are missing; what a person has set stays. */
  seed(plans: StoredPlans): Promise<void>;
  /**
   * Sets fields, in one step with looking whether the table still is what the caller has seen.
   * @param seen undefined to set them whatever is there
   * @returns the table as it was; undefined when it is not `seen`, and then nothing was set
   */
  change(changes: StoredPlans, seen?: StoredPlans): Promise<StoredPlans | undefined>;
  record(change: PlanChange): Promise<void>;
  /** Records a change unless the newest record already leads to its version: every gateway that sees it reports it. */
  recordOnce(change: PlanChange): Promise<void>;
  /** Newest first. */
  history(limit: number): Promise<RecordedChange[]>;
}

/** Where operators look and write: they wait longer than a decision does, lest a change that was made look as if it was not. */
export interface OperatorsStores {
  readonly keys: KeyStore;
  readonly plans: PlanStore;
}

/** A limiter with its stores, and how to let go of them. */
export interface Access {
  readonly limiter: Limiter;
  /** With the deadline of decisions. */
  readonly keys: KeyStore;
  readonly plans: PlanStore;
  /** Opens them; asked for once, by whoever serves operators. */
  operators(): Promise<OperatorsStores>;
  /** Bans that run, as far as this process has heard of them. */
  bans(): number;
  /** Nodes that are away, so that what they would decide is decided here. */
  nodesAway(): number;
  /** What was counted of the calls that decide. */
  counted(): Family[];
  /** How the store stands, for those who look after it. */
  examine(): Promise<Finding[]>;
  close(): Promise<void>;
}
