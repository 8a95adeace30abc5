import type { Clock } from '../clock.ts';
import type { Credential } from '../credential.ts';
import { startDeadline } from '../deadline.ts';
import { AccessUnavailable, type Question, type RemoteLimiter } from '../limiter.ts';
import { isPlanName, PLAN_FIELDS, PLAN_NAMES, type PlanTable } from '../plans.ts';
import { type BucketState, DAY, MINUTE, type Verdict } from '../verdict.ts';
import type { CallCounts } from './call-counts.ts';
import type { RedisConnection } from './connection.ts';
import { keyOf } from './key-hash.ts';
import { runDecide } from './script.ts';

const MAX_BATCH = 256;

export interface RedisLimiterOptions {
  /** For tests; Redis' own clock decides otherwise. */
  readonly clock?: Clock | undefined;
  /** Told of every call. */
  readonly calls?: CallCounts | undefined;
  /** Deadline of a call in milliseconds: past it, those who wait are told. Without one they just wait. */
  readonly timeoutMs?: number | undefined;
  /** Called when nothing is under way any more. */
  readonly onIdle?: (() => void) | undefined;
}

type Group = [Question, ...Question[]];

/**
 * Decides in Redis, with decide.lua. One call is under way at a time; what arrives meanwhile, and in the turn of the event
 * loop in which it ends, goes out together in the next one: the busier it is, the cheaper a decision becomes. A batch is
 * sent once and never again; what fails may have been charged and is not admitted.
 */
export class RedisLimiter implements RemoteLimiter {
  readonly #redis: RedisConnection;
  readonly #plans: () => PlanTable;
  readonly #options: RedisLimiterOptions;
  #waiting: Question[] = [];
  #isUnderWay = false;
  #table: PlanTable | undefined;
  #tableText = '';

  constructor(redis: RedisConnection, plans: () => PlanTable, options: RedisLimiterOptions = {}) {
    this.#redis = redis;
    this.#plans = plans;
    this.#options = options;
  }

  decide(credential: Credential): Promise<Verdict> {
    const { promise, resolve, reject } = Promise.withResolvers<Verdict>();
    this.ask({ credential, isOpen: true, answered: resolve, failed: reject, late: () => {} });
    return promise;
  }

  ask(question: Question): void {
    if (this.#waiting.push(question) === 1 && !this.#isUnderWay) setImmediate(() => this.#flush());
  }

  /** In a call of its own: peeks are few, and none of them waits for decisions. */
  async peek({ id, digest }: Credential): Promise<Verdict> {
    try {
      const [reply = ''] = await runDecide(this.#redis, 1, [keyOf(id), this.#now(), this.#planText(), digest, '0']);
      return readVerdict(reply);
    } catch (cause) {
      throw new AccessUnavailable(`Redis did not say where a key stands: ${(cause as Error).message}`);
    }
  }

  async #flush(): Promise<void> {
    const batch = this.#nextBatch();
    if (batch.length > 0) {
      this.#isUnderWay = true;
      await this.#call(batch);
      this.#isUnderWay = false;
    }
    if (this.#waiting.length > 0) setImmediate(() => this.#flush());
    else this.#options.onIdle?.();
  }

  #nextBatch(): Question[] {
    const batch = this.#waiting.slice(0, MAX_BATCH).filter(({ isOpen }) => isOpen);
    // A new list, for the reason that a Ring has.
    this.#waiting = this.#waiting.slice(MAX_BATCH);
    return batch;
  }

  async #call(batch: readonly Question[]): Promise<void> {
    const { calls, timeoutMs } = this.#options;
    const askedAt = performance.now();
    let isLate = false;
    const endDeadline =
      timeoutMs === undefined
        ? undefined
        : startDeadline(timeoutMs, (since) => {
            if (!isLate) calls?.missed();
            isLate = true;
            for (const question of [...batch, ...this.#waiting]) question.late(since);
          });
    try {
      const grouped = inGroups(batch);
      const replies = await this.#run(grouped);
      let at = 0;
      for (const group of grouped)
        for (const question of group) question.answered(readVerdict(replies[at++] ?? ''), isLate);
    } catch (cause) {
      // Those who waited for this call have waited long enough: they are not made to wait for another one.
      const fault = new AccessUnavailable(`Redis gave no decision: ${(cause as Error).message}`);
      for (const question of [...batch, ...this.#waiting.splice(0)]) question.failed(fault);
    }
    endDeadline?.();
    calls?.ended(batch.length, performance.now() - askedAt);
  }

  #run(groups: readonly Group[]): Promise<string[]> {
    const keys = groups.map(([{ credential }]) => keyOf(credential.id));
    const presented = groups.flatMap(([{ credential }, ...more]) => [credential.digest, String(1 + more.length)]);
    return runDecide(this.#redis, groups.length, [...keys, this.#now(), this.#planText(), ...presented]);
  }

  /** Empty for Redis' own clock. */
  #now(): string {
    const { clock } = this.#options;
    return clock === undefined ? '' : String(clock());
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
function inGroups(batch: readonly Question[]): Group[] {
  const groups = new Map<string, Group>();
  for (const question of batch) {
    const { cacheKey } = question.credential;
    const group = groups.get(cacheKey);
    if (group === undefined) groups.set(cacheKey, [question]);
    else group.push(question);
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
      const [minute, minuteTokens, minuteParts, day, dayTokens, dayParts, bannedUntil, retryAt, endsAt] = rest;
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
        endsAt: Number(endsAt),
        mode: 'shared',
        isShadowed: outcome === 'shadowed',
        rejected: rest.slice(9).join(' '),
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
