import { BlockList, isIPv6 } from 'node:net';
import type { Plan } from '../../gateway/limiter/plans.ts';

/**
 * An independent implementation of the decision rules, with which both limiters are compared. Levels are exact integers
 * that count fractions of a token. Times of refusals are exact, and undefined once they are forgotten. Verdicts have
 * the text format of decide.lua.
 */

const SECOND = 1_000_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 86_400 * SECOND;

/** The data of a key that operators set. Times are Unix microseconds. */
export interface ModelRecord {
  plan: string;
  /** The secrets by digest. */
  secrets: Readonly<Record<string, ModelSecret>>;
  expiresAt?: number | undefined;
  isDisabled?: boolean;
  minute?: number | undefined;
  day?: number | undefined;
}

/** The restrictions on a secret: operations, networks in CIDR notation, and an expiry. */
export interface ModelSecret {
  readonly until?: number | undefined;
  readonly scope?: 'read' | 'write' | undefined;
  readonly networks?: readonly string[] | undefined;
}

/** The presented secret, the required scope, and the client's address. */
export interface ModelUse {
  readonly secret: string;
  readonly scope: 'read' | 'write' | undefined;
  readonly address: string;
}

/** Uses Node's BlockList, which counts IPv4 addresses as part of `::/0`. */
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

interface Before {
  readonly level: bigint;
  readonly limit: number;
}

/** The quotient, rounded up. */
const up = (a: bigint, b: bigint): bigint => (a + b - 1n) / b;

/**
 * A bucket whose level counts fractions of a token. The number of fractions in a token is the number of microseconds in
 * the window.
 */
class Bucket {
  readonly #limit: bigint;
  readonly #window: bigint;
  readonly #level: bigint;

  /** @param before the level and the limit at the last decision. Tokens refill at the lower of the two limits */
  constructor(limit: number, window: number, before: Before | undefined, elapsed: number) {
    this.#limit = BigInt(limit);
    this.#window = BigInt(window);
    const slower = before !== undefined && before.limit < limit ? BigInt(before.limit) : this.#limit;
    const full = slower * this.#window;
    const level = before === undefined ? full : before.level + BigInt(elapsed) * slower;
    this.#level = level < full ? level : full;
  }

  level(taken = 0): bigint {
    return this.#level - BigInt(taken) * this.#window;
  }

  hasToken(): boolean {
    return this.#level >= this.#window;
  }

  /** Microseconds until the bucket has a token. */
  get wait(): bigint {
    const missing = this.#window - this.#level;
    return missing <= 0n ? 0n : up(missing, this.#limit);
  }

  get tokenTime(): bigint {
    return up(this.#window, this.#limit);
  }

  text(taken: number): string {
    const level = this.level(taken);
    return `${this.#limit} ${level / this.#window} ${level % this.#window}`;
  }
}

/** The remembered state of refusals. */
interface Memory {
  /** The retry time of the last request in line. */
  readonly lineUntil: bigint | undefined;
  /** The time at which the last strike is forgotten. */
  readonly forgottenAt: bigint | undefined;
  /** The time since which the key has had as many strikes as it can hold. */
  readonly fullSince: bigint | undefined;
}

const NOTHING: Memory = { lineUntil: undefined, forgottenAt: undefined, fullSince: undefined };

export class ModelKey {
  readonly record: ModelRecord;
  /** Records which rules applied. */
  readonly #met: Set<string>;
  #levels: readonly [minute: Before, day: Before] | undefined;
  #asOf: number | undefined;
  #memory = NOTHING;
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
    this.#memory = NOTHING;
  }

  /** The three remembered times, each 0 if undefined. */
  get remembered(): string {
    const { lineUntil = 0, forgottenAt = 0, fullSince = 0 } = this.#memory;
    return `${lineUntil} ${forgottenAt} ${fullSince}`;
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
    if (secret.until !== undefined && secret.until <= now) return 'ended';
    if (secret.networks !== undefined && !isAmong(secret.networks, use.address)) return 'elsewhere';
    if (record.isDisabled) return 'disabled';
    if (record.expiresAt !== undefined && record.expiresAt <= now) return 'expired';

    const plan = plans[record.plan] ?? {};
    const [minute, day] = [record.minute ?? plan.minute, record.day ?? plan.day];
    if (minute === undefined || day === undefined || plan.ban_seconds === undefined) return 'misconfigured';

    // Stored times keep their age when the clock is set back.
    const setBack = this.#asOf !== undefined && this.#asOf > now ? this.#asOf - now : 0;
    const elapsed = now + setBack - (this.#asOf ?? now);
    const buckets = [
      new Bucket(minute, MINUTE, this.#levels?.[0], elapsed),
      new Bucket(day, DAY, this.#levels?.[1], elapsed),
    ] as const;
    if (this.#levels !== undefined && elapsed > 0 && this.#levels[0].limit < minute) this.#met.add('raised meanwhile');
    const ban = this.#ban.isByOperator ? this.#ban : { ...this.#ban, until: Math.max(0, this.#ban.until - setBack) };
    const rule = { minute: BigInt(minute), holds: BigInt(plan.ban_after ?? 5 * minute) };
    const memory = this.#remembered(BigInt(now), BigInt(setBack), rule, buckets);
    const ends = [record.expiresAt, secret.until].filter((end) => end !== undefined);
    const isIgnored = plan.mode === 'shadow' && ban.until > now && !ban.isByOperator;
    if (isIgnored) this.#met.add('ban ignored in shadow mode');
    const inForce = isIgnored ? 0 : ban.until;

    const decided = (outcome: string, taken: number, bannedUntil: number, retryAt: number | bigint) => {
      const levels = buckets.map((bucket) => bucket.text(taken)).join(' ');
      return `${outcome} ${record.plan} ${now} ${levels} ${bannedUntil} ${retryAt} ${ends.length > 0 ? Math.min(...ends) : 0}`;
    };
    const keep = (taken: number, after: Memory, newBan = ban) => {
      if (isPeek) return;
      this.#levels = [
        { level: buckets[0].level(taken), limit: minute },
        { level: buckets[1].level(taken), limit: day },
      ];
      this.#asOf = now;
      this.#ban = newBan;
      this.#memory = after;
    };
    /** A decision that takes no token stores nothing, unless the clock was set back. */
    const keepTimes = () => {
      if (setBack > 0) keep(0, memory);
    };

    if (inForce > now) {
      if (setBack > 0) this.#met.add(ban.isByOperator ? 'set back while banned by hand' : 'set back while banned');
      keepTimes();
      return decided('banned', 0, inForce, inForce);
    }
    if (secret.scope !== undefined && use.scope !== undefined && secret.scope !== use.scope) {
      keepTimes();
      return decided('forbidden', 0, ban.until, 0);
    }
    const isThere = buckets.every((bucket) => bucket.hasToken());
    if (isThere || plan.mode === 'shadow') {
      if (isPeek) return decided('admitted', 0, ban.until, 0);
      if (memory.lineUntil !== undefined && isThere) this.#met.add('a token before those in line');
      keep(isThere ? 1 : 0, memory);
      return decided(isThere ? 'admitted' : 'shadowed', isThere ? 1 : 0, ban.until, 0);
    }

    const place = this.#place(BigInt(now), buckets, BigInt(minute), memory);
    if (isPeek) return decided('refused', 0, ban.until, place);
    const after = this.#struck(BigInt(now), { ...memory, lineUntil: place }, rule);
    const grace = BigInt(plan.ban_grace_seconds ?? 30) * BigInt(SECOND);
    if (after.isFull && BigInt(now) - (after.memory.fullSince ?? 0n) >= grace) {
      const isInSeries = ban.until > 0 && now < ban.until + DAY;
      this.#bansInSeries = isInSeries ? this.#bansInSeries + 1 : 1;
      if (this.#bansInSeries > 1) this.#met.add('ban doubled');
      const length = BigInt(plan.ban_seconds * SECOND) * 2n ** BigInt(Math.min(this.#bansInSeries - 1, 17));
      const longest = BigInt(Math.max(plan.ban_seconds * SECOND, DAY));
      const until = now + Number(length < longest ? length : longest);
      keep(0, NOTHING, { until, isByOperator: false });
      return decided('banned', 0, until, until);
    }
    if (after.isFull) this.#met.add('full, but within the grace period');
    keep(0, after.memory);
    return decided('refused', 0, ban.until, place);
  }

  /**
   * The refusals that still count. If a key has more strikes than the current limit allows, their number is reduced to
   * one below the maximum.
   */
  #remembered(now: bigint, setBack: bigint, rule: Rule, buckets: readonly [Bucket, Bucket]): Memory {
    const back = (time: bigint | undefined) => (time === undefined ? undefined : time - setBack);
    const alive = (time: bigint | undefined) => (time !== undefined && time > now ? time : undefined);
    const excused = this.#excused(alive(back(this.#memory.lineUntil)), alive(back(this.#memory.fullSince)), rule);
    const lineUntil = this.#inPlaces(alive(back(this.#memory.lineUntil)), now, buckets);
    const forgottenAt = alive(this.#inNumber(back(this.#memory.forgottenAt), now, rule));
    if (setBack > 0 && (lineUntil ?? forgottenAt) !== undefined) this.#met.add('set back with refusals');
    if (lineUntil === undefined && this.#memory.lineUntil !== undefined) this.#met.add('line forgotten');
    if (forgottenAt === undefined) {
      if (this.#memory.forgottenAt !== undefined) this.#met.add('strikes forgotten');
      return { lineUntil, forgottenAt, fullSince: excused };
    }
    const most = rule.holds * strikeTime(rule);
    const before = this.#levels?.[0].limit;
    const isChanged = before !== undefined && BigInt(before) !== rule.minute;
    if (forgottenAt <= now + most - (isChanged ? strikeTime(rule) : 0n))
      return { lineUntil, forgottenAt, fullSince: excused ?? back(this.#memory.fullSince) };
    this.#met.add('strikes clamped');
    const left = most - strikeTime(rule);
    return { lineUntil, forgottenAt: left > 0n ? now + left : undefined, fullSince: excused };
  }

  /**
   * The time until which no refusal causes a ban. After a limit is more than halved, clients that respect the retry
   * times of earlier refusals send again before their strikes are forgotten.
   */
  #excused(lineUntil: bigint | undefined, before: bigint | undefined, rule: Rule): bigint | undefined {
    const limit = this.#levels?.[0].limit;
    if (lineUntil === undefined || limit === undefined || 2n * rule.minute >= BigInt(limit)) return before;
    this.#met.add('refused under a higher limit');
    return before === undefined || lineUntil > before ? lineUntil : before;
  }

  /** The retry time for the same number of places in line under the current limit, if that is earlier. */
  #inPlaces(
    lineUntil: bigint | undefined,
    now: bigint,
    [ofMinute, ofDay]: readonly [Bucket, Bucket],
  ): bigint | undefined {
    if (lineUntil === undefined || this.#levels === undefined) return lineUntil;
    const isOfDay = ofDay.level() < BigInt(DAY);
    const [bucket, { limit }] = isOfDay ? [ofDay, this.#levels[1]] : [ofMinute, this.#levels[0]];
    const before = up(BigInt(isOfDay ? DAY : MINUTE), BigInt(limit));
    const shorter = now + up(lineUntil - now, before) * bucket.tokenTime;
    if (shorter >= lineUntil) return lineUntil;
    this.#met.add(`places in line kept after the ${isOfDay ? 'day' : 'minute'} limit was raised`);
    return shorter;
  }

  /** The time at which the strikes of the last decision are forgotten under the current limit. */
  #inNumber(until: bigint | undefined, now: bigint, rule: Rule): bigint | undefined {
    const before = this.#levels?.[0].limit;
    if (until === undefined || until <= now || before === undefined || BigInt(before) === rule.minute) return until;
    this.#met.add('strikes at another limit');
    return now + ((until - now) * strikeTime(rule)) / strikeTime({ ...rule, minute: BigInt(before) });
  }

  #place(now: bigint, buckets: readonly [Bucket, Bucket], minute: bigint, { lineUntil }: Memory): bigint {
    const [ofMinute, ofDay] = buckets;
    const slower = ofDay.wait > ofMinute.wait ? ofDay : ofMinute;
    const token = now + slower.wait;
    if (lineUntil === undefined) return token;
    const [places, hour] = [15n * minute * slower.tokenTime, BigInt(HOUR)];
    const end = now + (places < hour ? places : hour);
    const behind = lineUntil + slower.tokenTime;
    if (behind > end) this.#met.add(places < hour ? 'beyond the places in line' : 'line longer than an hour');
    const inLine = behind < end ? behind : end;
    this.#met.add(inLine > token ? 'behind those in line' : 'at the next token');
    return inLine > token ? inLine : token;
  }

  #struck(now: bigint, memory: Memory, rule: Rule): { memory: Memory; isFull: boolean } {
    const most = now + rule.holds * strikeTime(rule);
    const forgottenAt = (memory.forgottenAt ?? now) + strikeTime(rule);
    if (forgottenAt <= most) return { memory: { ...memory, forgottenAt }, isFull: false };
    return { memory: { ...memory, forgottenAt: most, fullSince: memory.fullSince ?? now }, isFull: true };
  }
}

interface Rule {
  readonly minute: bigint;
  readonly holds: bigint;
}

/** A strike is forgotten after an eighth of the time that a token takes to refill, rounded down. */
function strikeTime({ minute }: Rule): bigint {
  const time = BigInt(MINUTE) / (8n * minute);
  return time > 0n ? time : 1n;
}
