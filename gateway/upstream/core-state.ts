import type { Core } from './core.ts';
import type { LastFault } from './core-counts.ts';

/** The state of a core as one process sees it, for operators. */
export interface CoreState {
  readonly origin: string;
  /** A single core is not probed: its last answer counts, or that it could not be reached. */
  readonly ready: boolean;
  /** It has left CORE_URL and gets no new requests. */
  readonly isDraining: boolean;
  /** Its reads go to another core, as it does not answer them. */
  readonly isSilent: boolean;
  /** Requests handed to the core and not finished; `queued` are those that wait for a connection. */
  readonly inFlight: number;
  readonly queued: number;
  /** The limit of concurrent requests. */
  readonly limit: number;
  /** When it became ready, not ready, or began to drain. All times here are Unix times in ms. */
  readonly since: number;
  /** Why it is not ready. */
  readonly reason: string | undefined;
  readonly lastAnswer: LastAnswer | undefined;
  readonly lastFault: LastFault | undefined;
}

/** The last answer to a client's request. */
export interface LastAnswer {
  readonly at: number;
  readonly ms: number;
}

export const stateOf = (core: Core, isDraining: boolean): CoreState => ({
  origin: core.origin,
  ready: core.ready,
  isDraining,
  isSilent: core.isSilent,
  inFlight: core.limit.inFlight,
  queued: core.places.waiting,
  limit: core.limit.value,
  since: core.since,
  reason: core.notReadyBecause,
  lastAnswer: core.answeredAt === 0 ? undefined : { at: core.answeredAt, ms: core.answeredMs },
  lastFault: core.counts.lastFault,
});
