import { Changes } from './changes.ts';
import { type Debt, noDebt } from './debt.ts';
import type { KeyState } from './key-record.ts';
import type { Decision } from './limiter.ts';
import type { Refusals } from './refusals.ts';
import type { Count } from './usage-marks.ts';

/** What one process knows of a key in use: one record, to which its secrets point. */

/** The last decision of the store, and when it was heard here, in microseconds that never go back. */
export interface Heard {
  readonly decision: Decision;
  readonly at: number;
}

/** Data about a key that its owner may see, besides its limits; its end in microseconds, if it has one. */
export interface KeyFacts {
  readonly name: string;
  readonly expiresAt: number | undefined;
  readonly refusals: Refusals;
  /** Its use by day, in days since 1970, the oldest first. */
  readonly days: readonly Count[];
}

/** What this process knows of a key in use. Its secrets share it. */
export interface Client {
  readonly id: string;
  heard: Heard | undefined;
  /** The secrets that the store accepted, by digest, each with the last decision on it. */
  readonly secrets: Map<string, Heard>;
  /** The levels after local decisions; undefined if there were none since the store was heard. */
  state: KeyState | undefined;
  readonly debt: Debt;
  readonly changes: Changes;
  facts: { readonly facts: KeyFacts; readonly askedAt: number } | undefined;
  /** Its requests in the gateway that take capacity (load-shedder.ts). */
  inFlight: number;
  /** Until when its reads are expected to be slow, and its answers large (request-head.ts). */
  slowUntil: number;
  largeUntil: number;
  /** When it was last decided on, and last refused, in microseconds that never go back. */
  askedAt: number;
  refusedAt: number;
  /** The day, in UTC since 1970, on which each of its events was last reported; undefined if none was. */
  notifiedOn: { [event: string]: number } | undefined;
}

/** What one process knows of a key, for another process: ages instead of times, in microseconds. */
export interface KnownKey {
  readonly decision: Decision;
  readonly age: number;
  /** Of the last change that was noticed; undefined for none. What was heard before it does not count. */
  readonly changeAge?: number | undefined;
  readonly secrets: readonly { readonly digest: string; readonly decision: Decision; readonly age: number }[];
}

export type KnownPage = readonly (readonly [id: string, KnownKey])[];

/** The record of a key of which nothing is known yet. */
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
