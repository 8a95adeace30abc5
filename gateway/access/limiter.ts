import type { Credential } from './credential.ts';
import type { KeyEntry, KeyRecord } from './keys.ts';
import type { StoredPlans } from './plans.ts';
import type { Verdict } from './verdict.ts';

/** Decides requests: who the key belongs to, whether it is banned, and what its buckets still allow. */
export interface Limiter {
  /** @throws {LimiterUnavailable} when no decision could be had */
  decide(credential: Credential): Promise<Verdict>;
}

/** No decision could be had. The request may have been charged; it is not admitted. */
export class LimiterUnavailable extends Error {}

/** Where API keys are kept. */
export interface KeyStore {
  create(id: string, record: KeyRecord): Promise<void>;
  get(id: string): Promise<KeyEntry | undefined>;
  /** Newest first. */
  list(offset: number, limit: number): Promise<{ total: number; keys: KeyEntry[] }>;
  /** Revokes a key for good. False when there was none. */
  remove(id: string): Promise<boolean>;
}

/** Where the plan table is kept. */
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
