import { HttpError } from '../../shared/errors.ts';
import type { Credential } from './credential.ts';
import type { KeyEntry, KeyRecord } from './keys.ts';
import type { StoredPlans } from './plans.ts';
import type { Verdict } from './verdict.ts';

/** Decides requests: who the key belongs to, whether it is banned, and what its buckets still allow. */
export interface Limiter {
  /** @throws {AccessUnavailable} when no decision could be had */
  decide(credential: Credential): Promise<Verdict>;
}

/**
 * What is kept of keys and plans cannot be reached. A decision that failed so may have been charged; it is not admitted.
 * The cause is told in words only: what was sent holds digests, and a library's error can hold what was sent.
 */
export class AccessUnavailable extends HttpError {
  constructor(reason: string) {
    super('unavailable', undefined, { cause: new Error(reason), headers: ['Retry-After', '1'] });
  }
}

/** Where API keys are kept. Every call throws {AccessUnavailable} when that cannot be reached. */
export interface KeyStore {
  create(id: string, record: KeyRecord): Promise<void>;
  get(id: string): Promise<KeyEntry | undefined>;
  /** Newest first. */
  list(offset: number, limit: number): Promise<KeyList>;
  /** Revokes a key for good. False when there was none. */
  remove(id: string): Promise<boolean>;
}

export interface KeyList {
  readonly total: number;
  readonly keys: readonly KeyEntry[];
}

/** Where the plan table is kept. Every call throws {AccessUnavailable} when that cannot be reached. */
export interface PlanStore {
  read(): Promise<StoredPlans>;
  /** Adds the fields that are missing; what a person has set stays. */
  seed(plans: StoredPlans): Promise<void>;
  write(plans: StoredPlans): Promise<void>;
}

/** A limiter with its stores, and how to let go of them. */
export interface Access {
  readonly limiter: Limiter;
  readonly keys: KeyStore;
  readonly plans: PlanStore;
  close(): Promise<void>;
}
