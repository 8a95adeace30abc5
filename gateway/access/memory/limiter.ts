import { type Clock, systemClock } from '../clock.ts';
import type { Credential } from '../credential.ts';
import { decide, peek } from '../decide.ts';
import { FRESH, type KeyState } from '../keys.ts';
import type { Limiter } from '../limiter.ts';
import type { PlanTable } from '../plans.ts';
import type { Verdict } from '../verdict.ts';
import type { FileKeys } from './keys.ts';

/** The embedded limiter: the rules of decide.lua, in this process, for one gateway on its own. */
export class MemoryLimiter implements Limiter {
  readonly #keys: FileKeys;
  readonly #plans: () => PlanTable;
  readonly #clock: Clock;

  constructor(keys: FileKeys, plans: () => PlanTable, clock: Clock = systemClock) {
    this.#keys = keys;
    this.#plans = plans;
    this.#clock = clock;
  }

  async decide({ id, digest }: Credential): Promise<Verdict> {
    const record = this.#keys.record(id);
    if (record === undefined) return { outcome: 'unauthorized', reason: 'unknown' };
    const before: KeyState = this.#keys.state(id) ?? FRESH;
    const { verdict, state } = decide(record, before, digest, this.#plans(), this.#clock());
    if (state !== undefined) this.#keys.keep(id, state);
    return verdict;
  }

  async peek({ id, digest }: Credential): Promise<Verdict> {
    const record = this.#keys.record(id);
    if (record === undefined) return { outcome: 'unauthorized', reason: 'unknown' };
    return peek(record, this.#keys.state(id) ?? FRESH, digest, this.#plans(), this.#clock());
  }
}
