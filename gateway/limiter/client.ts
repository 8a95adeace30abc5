import { Changes } from './changes.ts';
import { type Debt, noDebt } from './debt.ts';
import type { KeyState } from './key-record.ts';
import type { Decision } from './limiter.ts';
import type { Refusals } from './refusals.ts';
import type { Count } from './usage-marks.ts';

/** The last decision of the store. `at` is the time at which it arrived here, in microseconds that never go back. */
export interface Heard {
  readonly decision: Decision;
  readonly at: number;
}

/** What the owner of a key may see about the key, apart from its limits. Times are in microseconds. */
export interface KeyFacts {
  readonly name: string;
  readonly expiresAt: number | undefined;
  readonly refusals: Refusals;
  /** Requests by day, the oldest first. Days are counted from 1970. */
  readonly days: readonly Count[];
}

/** What one process knows of a key in use. All secrets of the key share this record. */
export interface Client {
  readonly id: string;
  heard: Heard | undefined;
  /** The digests of the secrets that the store accepted, each with the last decision on it. */
  readonly secrets: Map<string, Heard>;
  /** The levels after local decisions; undefined if there were none since the last decision of the store. */
  state: KeyState | undefined;
  readonly debt: Debt;
  readonly changes: Changes;
  facts: { readonly facts: KeyFacts; readonly askedAt: number } | undefined;
  /** Requests of the key in the gateway that take capacity (load-shedder.ts). */
  inFlight: number;
  /** Until when reads of the client are expected to be slow, and answers to be large (request-head.ts). */
  slowUntil: number;
  largeUntil: number;
  /** When a request of the key was last decided, and last refused, in microseconds that never go back. */
  askedAt: number;
  refusedAt: number;
  /** The day, counted from 1970 in UTC, on which each event was last reported; undefined if none was. */
  notifiedOn: { [event: string]: number } | undefined;
}

/** What one process reports to another about a key. It holds ages instead of times, in microseconds. */
export interface KnownKey {
  readonly decision: Decision;
  readonly age: number;
  /** The age of the last known change; undefined for none. Decisions from before it do not count. */
  readonly changeAge?: number | undefined;
  readonly secrets: readonly { readonly digest: string; readonly decision: Decision; readonly age: number }[];
}

export type KnownPage = readonly (readonly [id: string, KnownKey])[];

/** A record without any knowledge. */
export const newClient = (id: string): Client => ({
  id,
  heard: undefined,
  secrets: new Map(),
  state: undefined,
  debt: noDebt(),
  changes: new Changes(),
  facts: undefined,
  inFlight: 0,
  slowUntil: 0,
  largeUntil: 0,
  askedAt: Number.NEGATIVE_INFINITY,
  refusedAt: Number.NEGATIVE_INFINITY,
  notifiedOn: undefined,
});
