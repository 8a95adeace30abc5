import type { Clock } from '../clock.ts';
import type { Credential } from '../credential.ts';
import { AccessUnavailable, type Limiter } from '../limiter.ts';
import { isPlanName, PLAN_FIELDS, PLAN_NAMES, type PlanTable } from '../plans.ts';
import { type BucketState, DAY, MINUTE, type Verdict } from '../verdict.ts';
import type { CallCounts } from './call-counts.ts';
import type { RedisConnection } from './connection.ts';
import { keyOf } from './key-hash.ts';

const MAX_BATCH = 256;

interface Waiting {
  readonly credential: Credential;
  resolve(verdict: Verdict): void;
  reject(fault: Error): void;
}

type Group = [Waiting, ...Waiting[]];

/**
 * Decides in Redis, with decide.lua. One call is under way at a time; what arrives meanwhile, and in the turn of the event
 * loop in which it ends, goes out together in the next one: the busier it is, the cheaper a decision becomes. A batch is
 * sent once and never again; what fails may have been charged and is not admitted.
 */
export class RedisLimiter implements Limiter {
  readonly #redis: Pick<RedisConnection, 'decide'>;
  readonly #plans: () => PlanTable;
  readonly #clock: Clock | undefined;
  readonly #calls: CallCounts | undefined;
  #waiting: Waiting[] = [];
  #isUnderWay = false;
  #table: PlanTable | undefined;
  #tableText = '';

  /**
   * @param clock for tests; Redis' own clock decides otherwise
   * @param calls told of every call
   */
  constructor(
    redis: Pick<RedisConnection, 'decide'>,
    plans: () => PlanTable,
    { clock, calls }: { clock?: Clock | undefined; calls?: CallCounts | undefined } = {},
  ) {
    this.#redis = redis;
    this.#plans = plans;
    this.#clock = clock;
    this.#calls = calls;
  }

  decide(credential: Credential): Promise<Verdict> {
    const { promise, resolve, reject } = Promise.withResolvers<Verdict>();
    if (this.#waiting.push({ credential, resolve, reject }) === 1 && !this.#isUnderWay)
      setImmediate(() => this.#flush());
    return promise;
  }

  async #flush(): Promise<void> {
    const batch = this.#waiting.slice(0, MAX_BATCH);
    // A new list, for the reason that a Ring has.
    this.#waiting = this.#waiting.slice(MAX_BATCH);
    this.#isUnderWay = true;
    const askedAt = performance.now();
    try {
      const grouped = inGroups(batch);
      const replies = await this.#ask(grouped);
      let at = 0;
      for (const group of grouped) for (const { resolve } of group) resolve(readVerdict(replies[at++] ?? ''));
    } catch (cause) {
      // Those who waited for this call have waited long enough: they are not made to wait for another one.
      const fault = new AccessUnavailable(`Redis gave no decision: ${(cause as Error).message}`);
      for (const { reject } of [...batch, ...this.#waiting.splice(0)]) reject(fault);
    }
    this.#calls?.ended(batch.length, performance.now() - askedAt);
    this.#isUnderWay = false;
    if (this.#waiting.length > 0) setImmediate(() => this.#flush());
  }

  #ask(groups: readonly Group[]): Promise<string[]> {
    const keys = groups.map(([{ credential }]) => keyOf(credential.id));
    const presented = groups.flatMap(([{ credential }, ...more]) => [credential.digest, String(1 + more.length)]);
    const clock = this.#clock === undefined ? '' : String(this.#clock());
    return this.#redis.decide(groups.length, ...keys, clock, this.#planText(), ...presented);
  }

  /** The table in the script's form, made anew only when the table is another. */
  #planText(): string {
    const table = this.#plans();
    if (table !== this.#table) {
      this.#table = table;
      this.#tableText = PLAN_NAMES.map(
        (name) => `\n${name} ${[...PLAN_FIELDS, 'mode' as const].map((field) => table[name][field] ?? '-').join(' ')}`,
      ).join('');
    }
    return this.#tableText;
  }
}

/** Those that present one key with one secret, in the order in which they came. */
function inGroups(batch: readonly Waiting[]): Group[] {
  const groups = new Map<string, Group>();
  for (const waiting of batch) {
    const { name } = waiting.credential;
    const group = groups.get(name);
    if (group === undefined) groups.set(name, [waiting]);
    else group.push(waiting);
  }
  return [...groups.values()];
}

/** One verdict of decide.lua's reply; its head describes the words. */
function readVerdict(reply: string): Verdict {
  const [outcome, plan = '', now, ...rest] = reply.split(' ');
  switch (outcome) {
    case 'admitted':
    case 'shadowed':
    case 'refused':
    case 'banned': {
      if (!isPlanName(plan)) break;
      const [minute, minuteTokens, minuteParts, day, dayTokens, dayParts, bannedUntil, retryAt] = rest;
      return {
        outcome: outcome === 'shadowed' ? 'admitted' : outcome,
        plan,
        now: Number(now),
        buckets: [
          bucket('minute', MINUTE, minute, minuteTokens, minuteParts),
          bucket('day', DAY, day, dayTokens, dayParts),
        ],
        bannedUntil: Number(bannedUntil),
        retryAt: Number(retryAt),
        mode: 'shared',
        isShadowed: outcome === 'shadowed',
        rejected: rest.slice(8).join(' '),
      };
    }
    case 'unknown':
    case 'disabled':
    case 'expired':
      return { outcome: 'unauthorized', reason: outcome };
    case 'misconfigured':
    case 'unreadable':
      return { outcome: 'undecided', reason: outcome };
  }
  throw new Error(`decide.lua answered what it never says: ${reply}`);
}

const bucket = (
  name: BucketState['name'],
  window: number,
  ...[limit, tokens, parts]: readonly (string | undefined)[]
): BucketState => ({ name, window, limit: Number(limit), tokens: Number(tokens), parts: Number(parts) });
