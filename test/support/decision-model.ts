import { BlockList, isIPv6 } from 'node:net';
import type { Plan } from '../../gateway/limiter/plans.ts';
import { MINUTE, ModelQueue, SECOND } from './queue-model.ts';

/**
 * The rules of a decision in a second form, to compare both limiters with. A level is one exact integer in shares of a
 * token; a queue is a list of waiting clients (queue-model.ts). Verdicts are the texts of decide.lua.
 */

const DAY = 86_400 * SECOND;

/** The operators' data of a key; times are Unix microseconds. */
export interface ModelRecord {
  plan: string;
  /** By what is presented. */
  secrets: Readonly<Record<string, ModelSecret>>;
  expiresAt?: number | undefined;
  isDisabled?: boolean;
  minute?: number | undefined;
  day?: number | undefined;
}

/** What a secret opens: operations, from blocks in CIDR notation, until an end. */
export interface ModelSecret {
  readonly until?: number | undefined;
  readonly scope?: 'read' | 'write' | undefined;
  readonly networks?: readonly string[] | undefined;
}

/** What is presented, what for, and from where. */
export interface ModelUse {
  readonly secret: string;
  readonly scope: 'read' | 'write' | undefined;
  readonly address: string;
}

/** By Node's own lists of addresses, which take an IPv4 address for a part of `::/0`. */
function isAmong(networks: readonly string[], address: string): boolean {
  const list = new BlockList();
  for (const network of networks) {
    const [base = '', prefix] = network.split('/');
    if (isIPv6(base) === isIPv6(address)) list.addSubnet(base, Number(prefix), isIPv6(base) ? 'ipv6' : 'ipv4');
  }
  return address !== '' && list.check(address, isIPv6(address) ? 'ipv6' : 'ipv4');
}

interface Ban {
  readonly until: number;
  readonly isByOperator: boolean;
}

/** A bucket whose level counts shares of a token. One token has as many shares as its window has ticks. */
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

  /** Ticks until it has this many tokens, or is full. */
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
  /** Records which rules applied. */
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

  decide(use: ModelUse, plans: Readonly<Record<string, Plan>>, now: number): string {
    const verdict = this.#say(use, plans, now, false);
    this.#met.add(verdict.split(' ', 1)[0] as string);
    return verdict;
  }

  peek(use: ModelUse, plans: Readonly<Record<string, Plan>>, now: number): string {
    const verdict = this.#say(use, plans, now, true);
    this.#met.add(`peek ${verdict.split(' ', 1)[0]}`);
    return verdict;
  }

  #say(use: ModelUse, plans: Readonly<Record<string, Plan>>, now: number, isPeek: boolean): string {
    const { record } = this;
    const secret = record.secrets[use.secret];
    if (secret === undefined) return 'unknown';
    if (secret.until !== undefined && secret.until <= now) return 'expired';
    if (secret.networks !== undefined && !isAmong(secret.networks, use.address)) return 'elsewhere';
    if (record.isDisabled) return 'disabled';
    if (record.expiresAt !== undefined && record.expiresAt <= now) return 'expired';

    const plan = plans[record.plan] ?? {};
    const [minute, day] = [record.minute ?? plan.minute, record.day ?? plan.day];
    const { ban_after, ban_within_seconds, ban_seconds } = plan;
    if (minute === undefined || day === undefined) return 'misconfigured';
    if (ban_after === undefined || ban_within_seconds === undefined || ban_seconds === undefined)
      return 'misconfigured';

    // Stored times keep their age when the clock is set back.
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
    const ends = [record.expiresAt, secret.until].filter((end) => end !== undefined);

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
    if (secret.scope !== undefined && use.scope !== undefined && secret.scope !== use.scope) {
      if (!isPeek && setBack > 0) {
        this.#asOf = now;
        this.#ban = ban;
        this.#queue = queue;
      }
      return tell('forbidden', 0, ban.until, 0);
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
