import { type Clock, systemClock } from '../../limiter/clock.ts';
import type { Credential } from '../../limiter/credential.ts';
import { decide, peek } from '../../limiter/decide.ts';
import { FRESH, type KeyState } from '../../limiter/key-record.ts';
import type { Limiter, Verdict } from '../../limiter/limiter.ts';
import type { PlanTable } from '../../limiter/plans.ts';
import type { FileKeys } from './keys.ts';

/** The embedded limiter: the rules of decide.lua in this process, for a standalone gateway. */
export class MemoryLimiter implements Limiter {
  readonly #keys: FileKeys;
  readonly #plans: () => PlanTable;
  readonly #clock: Clock;

  constructor(keys: FileKeys, plans: () => PlanTable, clock: Clock = systemClock) {
    this.#keys = keys;
    this.#plans = plans;
    this.#clock = clock;
  }

  async decide(credential: Credential): Promise<Verdict> {
    const { id } = credential;
    const record = this.#keys.record(id);
    if (record === undefined) return { outcome: 'unauthorized', reason: 'unknown' };
    const before: KeyState = this.#keys.state(id) ?? FRESH;
    const { verdict, state } = decide(record, before, credential, this.#plans(), this.#clock());
    if (state !== undefined) this.#keys.keep(id, state);
    return verdict;
  }

  async peek(credential: Credential): Promise<Verdict> {
    const { id } = credential;
    const record = this.#keys.record(id);
    if (record === undefined) return { outcome: 'unauthorized', reason: 'unknown' };
    return peek(record, this.#keys.state(id) ?? FRESH, credential, this.#plans(), this.#clock());
  }
}
