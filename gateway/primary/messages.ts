import type { Family } from '../../shared/process/counts.ts';
import type { MetricsSnapshot } from '../../shared/process/metrics.ts';
import type { KnownKey, KnownPage } from '../limiter/client.ts';
import type { Use } from '../limiter/credential.ts';
import type { Verdict } from '../limiter/limiter.ts';
import type { StoredPlans } from '../limiter/plans.ts';
import type { SavedState } from '../stores/embedded-limiter.ts';
import type { Fields, Storage } from '../stores/storage.ts';
import type { KeyRefusal } from '../telemetry/key-refusals.ts';
import type { KeysOfMinute } from '../telemetry/key-watch.ts';
import type { RequestQuery, RequestReport } from '../telemetry/recent-requests.ts';
import type { ProcessState } from '../telemetry/state.ts';
import type { Happening } from '../webhooks/message.ts';

/** What the primary asks a worker: for each question its content and its answer. */

export interface AskedOfWorker {
  readonly report: readonly [undefined, WorkerReport | undefined];
  /** The worker's last matching requests, the newest first. */
  readonly requests: readonly [RequestQuery, readonly RequestReport[]];
  /** What the worker knows of a key. */
  readonly key: readonly [id: string, KnownKey | undefined];
  /**
   * What the worker knows of all keys: the first page or the next one, the last used keys first. The page after the
   * last one is empty.
   */
  readonly keys: readonly ['first' | 'next', KnownPage];
  /** A change was made. Once the worker has answered, it no longer acts on older data. */
  readonly changed: readonly [Changed, true];
  /** The worker sends the state of a key to be saved and forgets the key, then answers. */
  readonly release: readonly [ReleaseOrder, true];
  /** The worker sends all states that are not stored, then answers. */
  readonly flush: readonly [undefined, true];
}

/** Either the record of the key is about to change, or another worker loads it. */
export interface ReleaseOrder {
  readonly id: string;
  readonly isChanged: boolean;
}

export interface AskedOfPrimary {
  readonly start: readonly [undefined, StartOrder];
  /** Sent at intervals, so that a crash loses few counts. Undefined while there is nothing to count. */
  readonly report: readonly [WorkerReport | undefined, undefined];
  /** An event of a key, for WEBHOOK_URL. The primary keeps it if the worker ends. */
  readonly happened: readonly [Happening, undefined];
  /** A local decision, because Redis is away. Undefined if no worker knows the key. */
  readonly decide: readonly [LocalQuestion, Verdict | undefined];
  /** The limit status of a key, under the same conditions. */
  readonly peek: readonly [LocalQuestion, Verdict | undefined];
  /** The last refusals of a key by all gateways. Undefined if they cannot be read now. */
  readonly refusals: readonly [id: string, readonly KeyRefusal[] | undefined];
  /** Without Redis, like the next two: loads the fields of a key. Undefined if they cannot be read now. */
  readonly load: readonly [id: string, LoadedKey | undefined];
  /** Stores states. The answer says whether they are stored. */
  readonly save: readonly [SaveOrder, boolean];
  /** A call of the storage, which only the primary has open. */
  readonly call: readonly [StorageCall, CallAnswer];
}

export interface StartOrder {
  readonly plans?: StoredPlans | undefined;
  /** The worker must not serve before it has loaded plans and script from Redis. */
  readonly mustLoad: boolean;
  /** How long to wait for Redis otherwise, if not for the usual time. */
  readonly redisWithinMs?: number | undefined;
}

export interface WorkerReport extends ProcessState {
  readonly counted: readonly Family[];
  /** All other measurements; sent only on request. */
  readonly metrics?: MetricsSnapshot | undefined;
  readonly isLoaded: boolean;
  readonly isLocal: boolean;
  readonly banned: KeysOfMinute;
}

export interface LocalQuestion {
  readonly id: string;
  readonly digest: string;
  readonly use: Use;
  /** When the worker last had an answer of Redis about the key, by Redis' clock; 0 for never. */
  readonly heardAt: number;
  readonly owes: boolean;
}

/**
 * What an operator changed: a key, the plan table (which is included), or possibly any key. `at` is when another
 * gateway made the change, by the clock of Redis. `isReset` is set if the change filled both buckets.
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
