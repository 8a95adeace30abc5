import type { Limits, PlanMode } from '../../gateway/access/plans.ts';
import { MINUTE, ModelQueue, SECOND } from './queue-model.ts';

/**
 * The rules of a decision once more, in another shape than the limiters have them, to compare both with. A level is one exact
 * integer, in shares of a token; a queue is a list of who waits (queue-model.ts). Verdicts are the texts of decide.lua.
 */

const DAY = 86_400 * SECOND;

export interface ModelPlan extends Limits {
  readonly mode?: PlanMode;
}

/** What operators hold of a key; times are Unix microseconds. */
export interface ModelRecord {
  plan: string;
  secret: string;
  oldSecret?: { readonly secret: string; readonly until: number } | undefined;
  expiresAt?: number | undefined;
  isDisabled?: boolean;
  minute?: number | undefined;
  day?: number | undefined;
}

interface Ban {
  readonly until: number;
  readonly isByOperator: boolean;
}

/** A bucket whose level is in shares of a token, as many to a token as its window has ticks. */
class Bucket {
  readonly #limit: bigint;
  readonly #window: bigint;
  readonly #level: bigint;

  constructor(limit: number, window: number, before: bigint | undefined, elapsed: number) {
    this.#limit = BigInt(limit);
    this.#window = BigInt(window);
    const full = this.#limit * this.#window;
    const level = before === undefined ? full : before + BigInt(elapsed) * this.#limit;
    this.#level = level < full ? level : full;
  }

  level(taken = 0): bigint {
    return this.#level - BigInt(taken) * this.#window;
  }

  hasToken(): boolean {
    return this.#level >= this.#window;
  }

  /** Ticks until it has as many tokens, or all that it holds. */
  ticksUntil(tokens: number): number {
    const wanted = BigInt(tokens) < this.#limit ? BigInt(tokens) : this.#limit;
    const missing = wanted * this.#window - this.#level;
    return missing <= 0n ? 0 : Number((missing + this.#limit - 1n) / this.#limit);
  }

  text(taken: number): string {
    const level = this.level(taken);
    return `${this.#limit} ${level / this.#window} ${level % this.#window}`;
  }
}

export class ModelKey {
  readonly record: ModelRecord;
  /** Which rules were met. */
  readonly #met: Set<string>;
  #levels: readonly [minute: bigint, day: bigint] | undefined;
  #asOf: number | undefined;
  #queue: ModelQueue | undefined;
  #ban: Ban = { until: 0, isByOperator: false };
  #bansInSeries = 0;

  constructor(record: ModelRecord, met: Set<string>) {
    this.record = record;
    this.#met = met;
  }

  banUntil(until: number): void {
    this.#ban = { until, isByOperator: true };
  }

  liftBan(): void {
    this.#ban = { until: 0, isByOperator: false };
    this.#bansInSeries = 0;
    this.#queue = undefined;
  }

  decide(secret: string, plans: Readonly<Record<string, ModelPlan>>, now: number): string {
    const verdict = this.#say(secret, plans, now, false);
    this.#met.add(verdict.split(' ', 1)[0] as string);
    return verdict;
  }

  peek(secret: string, plans: Readonly<Record<string, ModelPlan>>, now: number): string {
    const verdict = this.#say(secret, plans, now, true);
    this.#met.add(`peek ${verdict.split(' ', 1)[0]}`);
    return verdict;
  }

  #say(secret: string, plans: Readonly<Record<string, ModelPlan>>, now: number, isPeek: boolean): string {
    const { record } = this;
    const old = record.oldSecret?.secret === secret ? record.oldSecret : undefined;
    if (secret !== record.secret && !(old !== undefined && old.until > now)) return 'unknown';
    if (record.isDisabled) return 'disabled';
    if (record.expiresAt !== undefined && record.expiresAt <= now) return 'expired';

    const plan = plans[record.plan] ?? {};
    const [minute, day] = [record.minute ?? plan.minute, record.day ?? plan.day];
    const { ban_after, ban_within_seconds, ban_seconds } = plan;
    if (minute === undefined || day === undefined) return 'misconfigured';
    if (ban_after === undefined || ban_within_seconds === undefined || ban_seconds === undefined)
      return 'misconfigured';

    // Whatever is kept is as old as it was when the clock was set back.
    const setBack = this.#asOf !== undefined && this.#asOf > now ? this.#asOf - now : 0;
    const elapsed = now + setBack - (this.#asOf ?? now);
    const buckets = [
      new Bucket(minute, MINUTE, this.#levels?.[0], elapsed),
      new Bucket(day, DAY, this.#levels?.[1], elapsed),
    ] as const;
    const ban = this.#ban.isByOperator ? this.#ban : { ...this.#ban, until: Math.max(0, this.#ban.until - setBack) };
    const standard = plan.minute ?? 1_000;
    const judged = { ban_after, ban_within_seconds, minute, standard };
    const queue = ModelQueue.asOf(this.#queue, now, setBack, judged, this.#met);
    const ends = [record.expiresAt, secret === record.secret ? undefined : old?.until].filter(
      (end) => end !== undefined,
    );

    const tell = (outcome: string, taken: number, bannedUntil: number, retryAt: number) => {
      const levels = buckets.map((bucket) => bucket.text(taken)).join(' ');
      return `${outcome} ${record.plan} ${now} ${levels} ${bannedUntil} ${retryAt} ${ends.length > 0 ? Math.min(...ends) : 0}`;
    };
    const keep = (taken: number, after: ModelQueue | undefined, newBan = ban) => {
      if (isPeek) return;
      this.#levels = [buckets[0].level(taken), buckets[1].level(taken)];
      this.#asOf = now;
      this.#ban = newBan;
      this.#queue = after;
    };

    if (ban.until > now) {
      if (!isPeek && setBack > 0) {
        this.#met.add(ban.isByOperator ? 'set back while banned by hand' : 'set back while banned');
        this.#asOf = now;
        this.#ban = ban;
        this.#queue = queue;
      }
      return tell('banned', 0, ban.until, ban.until);
    }
    const isThere = buckets.every((bucket) => bucket.hasToken());
    if (plan.mode === 'shadow') {
      if (isPeek) return tell('admitted', 0, ban.until, 0);
      keep(isThere ? 1 : 0, queue);
      return tell(isThere ? 'admitted' : 'shadowed', isThere ? 1 : 0, ban.until, 0);
    }

    const isEarly = isPeek ? queue.isEarly() : queue.arrive(isThere);
    const isHeld = isEarly && queue.isOnNotice();
    if (isThere && !isHeld) {
      if (isPeek) return tell('admitted', 0, ban.until, 0);
      queue.served();
      keep(1, queue);
      return tell('admitted', 1, ban.until, 0);
    }
    if (isThere) this.#met.add('held on notice');
    if (!isPeek && isHeld && queue.isTooMany()) {
      const isInSeries = ban.until > 0 && now < ban.until + DAY;
      this.#bansInSeries = isInSeries ? this.#bansInSeries + 1 : 1;
      if (this.#bansInSeries > 1) this.#met.add('ban doubled');
      const length = BigInt(ban_seconds * SECOND) * 2n ** BigInt(Math.min(this.#bansInSeries - 1, 17));
      const until = now + Number(length < BigInt(DAY) ? length : BigInt(DAY));
      keep(0, undefined, { until, isByOperator: false });
      return tell('banned', 0, until, until);
    }
    const told = queue.tell({ minute, day }, buckets);
    if (!isPeek) queue.join(told, Math.min(minute, day));
    keep(0, queue);
    return tell('refused', 0, ban.until, told.at);
  }
}
