import type { RedisState } from '../stores/stores.ts';
import type { CoreState } from '../upstream/core.ts';

/** A core as one process sees it. */
export type SeenCore = CoreState;

/** What a process that serves clients sees of the gateway's dependencies. */
export interface ProcessState {
  readonly cores: readonly CoreState[];
  /** Undefined if decisions are embedded. */
  readonly redis: RedisState | undefined;
}
