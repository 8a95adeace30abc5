import type { Family } from '../../shared/process/counts.ts';
import type { MetricsSnapshot } from '../../shared/process/metrics.ts';
import type { KnownKey, KnownPage } from '../limiter/client.ts';
import type { Use } from '../limiter/credential.ts';
import type { Verdict } from '../limiter/limiter.ts';
import type { StoredPlans } from '../limiter/plans.ts';
import type { SavedState } from '../stores/embedded-limiter.ts';
import type { Fields, Storage } from '../stores/storage.ts';
import type { KeysOfMinute } from '../telemetry/key-watch.ts';
import type { RequestQuery, RequestReport } from '../telemetry/recent-requests.ts';
import type { ProcessState } from '../telemetry/watched-traffic.ts';
import type { Happening } from '../webhooks/message.ts';

/** What the primary and its workers ask each other: for each question its content and its answer. */

export interface AskedOfWorker {
  readonly report: readonly [undefined, WorkerReport | undefined];
  /** The worker's last requests, the newest first. */
  readonly requests: readonly [RequestQuery, readonly RequestReport[]];
  /** What it last heard of a key from Redis. */
  readonly key: readonly [id: string, KnownKey | undefined];
  /** The same of all keys: the first page, or the next one. Those used last come first. Empty after the last one. */
  readonly keys: readonly ['first' | 'next', KnownPage];
  /** A change that was made. From its answer on, the worker no longer acts on older data. */
  readonly changed: readonly [Changed, true];
  /** The record of a key changes: before it answers, the worker sends the key's state to be saved, and forgets the key. */
  readonly release: readonly [id: string, true];
  /** Before it answers, the worker sends all states that are not stored to be saved. */
  readonly flush: readonly [undefined, true];
}

export interface AskedOfPrimary {
  /** How to start. */
  readonly start: readonly [undefined, StartOrder];
  /** Sent at intervals, so that counts are not lost with the process. Undefined until there is something to count. */
  readonly report: readonly [WorkerReport | undefined, undefined];
  /** An event of a key, for WEBHOOK_URL: it outlives the worker. */
  readonly happened: readonly [Happening, undefined];
  /** A local decision, because Redis is away. Without a verdict if no worker knows the key. */
  readonly decide: readonly [LocalQuestion, Verdict | undefined];
  /** Likewise the limit status of a key. */
  readonly peek: readonly [LocalQuestion, Verdict | undefined];
  /** Without Redis, as the two below: the fields of a key. Undefined if they cannot be read now. */
  readonly load: readonly [id: string, LoadedKey | undefined];
  /** States to store, and whether they are stored. */
  readonly save: readonly [SaveOrder, boolean];
  /** A call of the storage, which the primary alone has open. */
  readonly call: readonly [StorageCall, CallAnswer];
}

export interface StartOrder {
  /** The plan table, for the time until the worker has read it. */
  readonly plans?: StoredPlans | undefined;
  /** It must not serve before plans and script were loaded from Redis. */
  readonly mustLoad: boolean;
  /** How long to wait for Redis otherwise, if not as long as usual. */
  readonly redisWithinMs?: number | undefined;
}

export interface WorkerReport extends ProcessState {
  readonly counted: readonly Family[];
  /** Everything else that is measured; only on request. */
  readonly metrics?: MetricsSnapshot | undefined;
  /** Whether plans and script were loaded from Redis. */
  readonly isLoaded: boolean;
  /** Whether decisions are local because Redis is unavailable. */
  readonly isLocal: boolean;
  readonly banned: KeysOfMinute;
}

export interface LocalQuestion {
  readonly id: string;
  readonly digest: string;
  readonly use: Use;
  /** When the worker last heard of the key, on Redis' clock; 0 for never. */
  readonly heardAt: number;
  /** Whether Redis is to charge for the decision later. */
  readonly owes: boolean;
}

/**
 * What an operator changed: a key, by its id, or the plan table, which is sent with it; or perhaps any key. `at` is when
 * another gateway did it, by the clock of Redis. `isReset` if both buckets of the key were filled.
 */
export type Changed =
  | { readonly key: string; readonly at?: number; readonly isReset?: boolean }
  | { readonly plans: StoredPlans }
  | { readonly anyKey: true };

export interface LoadedKey {
  /** Undefined for a key that does not exist. */
  readonly fields: Fields | undefined;
}

export interface SaveOrder {
  readonly states: readonly SavedState[];
  /** Whether a power cut may not undo it. */
  readonly mustBeDurable: boolean;
}

export interface StorageCall {
  readonly method: keyof Storage;
  readonly args: readonly unknown[];
}

export type CallAnswer =
  | { readonly value: unknown }
  | {
      readonly fault: 'not made' | 'unknown' | 'unavailable';
      readonly message: string;
      readonly shown: string | undefined;
    };
