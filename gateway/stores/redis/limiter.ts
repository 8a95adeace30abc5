import { type BoundedMap, boundedMap } from '../../../shared/bounded-map.ts';
import { type Clock, DAY, MINUTE, readLevel, SECOND } from '../../limiter/bucket.ts';
import { type Debt, owedBy } from '../../limiter/client.ts';
import { type Credential, credentialOf, readBounds, type Use } from '../../limiter/credential.ts';
import {
  type Decision,
  NO_DECISION,
  NOT_READ,
  type Question,
  type RemoteLimiter,
  StoreUnavailable,
  type Verdict,
} from '../../limiter/limiter.ts';
import { addressDigits } from '../../limiter/networks.ts';
import { type Charged, type Charger, startDeadline } from '../../limiter/outage.ts';
import { type PlanName, type PlansInForce, type PlanTable, planText } from '../../limiter/plans.ts';
import { type CallCounts, inWords, keyOf, mayHaveRun, type RedisConnection, runDecide } from './calls.ts';
import type { ClusterConnection } from './connection.ts';

const MAX_BATCH = 256;
/**
 * If the last call took longer than this, the next one does not wait for the current one, so that no request waits for
 * both.
 */
const SLOW_MS = 20;

interface RedisLimiterOptions {
  /** By default, the Redis clock applies. */
  readonly clock?: Clock | undefined;
  readonly calls?: CallCounts | undefined;
  /** The deadline of a call in milliseconds, after which waiting requests are answered. There is none by default. */
  readonly timeoutMs?: number | undefined;
  /** The secrets known to be bound, shared by the limiters of one process. */
  readonly bound?: BoundedMap<string, true>;
  readonly onIdle?: (() => void) | undefined;
}

const MAX_BOUND_SECRETS = 10_000;

const boundSecrets = () => boundedMap<string, true>(MAX_BOUND_SECRETS);

type Group = [Question, ...Question[]];

/**
 * Decides in Redis with decide.lua. One call runs at a time, unless Redis is slow. Requests that arrive during a call,
 * or in the turn of the event loop in which it ends, share the next call, so a decision becomes cheaper under load. A
 * batch is never sent twice, because a failed one may have been charged.
 */
export class RedisLimiter implements RemoteLimiter, Charger {
  readonly atOnce: number = MAX_BATCH;
  readonly #redis: RedisConnection;
  readonly #plans: PlansInForce;
  readonly #options: RedisLimiterOptions;
  readonly #bound: BoundedMap<string, true>;
  #waiting: Question[] = [];
  readonly #underWay = new Set<readonly Question[]>();
  #lastMs = 0;
  #table: PlanTable | undefined;
  #tableText = '';

  constructor(redis: RedisConnection, plans: PlansInForce, options: RedisLimiterOptions = {}) {
    this.#redis = redis;
    this.#plans = plans;
    this.#options = options;
    this.#bound = options.bound ?? boundSecrets();
  }

  decide(credential: Credential): Promise<Verdict> {
    const { promise, resolve, reject } = Promise.withResolvers<Verdict>();
    this.ask({ credential, isOpen: true, answered: resolve, failed: reject, late: () => {} });
    return promise;
  }

  ask(question: Question): void {
    if (this.#waiting.push(question) === 1 && this.#underWay.size === 0) setImmediate(() => this.#flush());
  }

  /** A peek has its own call: peeks are rare, and need not wait for decisions. */
  async peek({ id, digest, use }: Credential): Promise<Verdict> {
    const { promise, reject } = Promise.withResolvers<never>();
    const { timeoutMs } = this.#options;
    const late = () => reject(new Error('Redis did not answer in time.'));
    const end = timeoutMs === undefined ? () => {} : startDeadline(timeoutMs, late);
    try {
      const asked = [keyOf(id), this.#now(), this.#planText(), digest, countText(0, use)];
      const [reply = ''] = await Promise.race([runDecide(this.#redis, 1, asked), promise]);
      return readVerdict(reply);
    } catch (cause) {
      throw new StoreUnavailable(`Redis did not return the state of the key: ${(cause as Error).message}`);
    } finally {
      end();
    }
  }

  answers = (id: string): Promise<boolean> =>
    this.peek(credentialOf(id, '')).then(
      () => true,
      () => false,
    );

  /** Has no deadline: a late reply is better than an unknown outcome. Without a reply, the connection is closed. */
  async charge(debts: Parameters<Charger['charge']>[0]): Promise<readonly Charged[]> {
    const presented = debts.flatMap((debt) => ['', chargeText(debt)]);
    const asked = [...debts.map(({ id }) => keyOf(id)), this.#now(), this.#planText(), ...presented];
    try {
      return (await runDecide(this.#redis, debts.length, asked)).map(readCharged);
    } catch (cause) {
      return debts.map(() => (mayHaveRun(cause as Error) ? 'unknown' : 'not run'));
    }
  }

  #flush(): void {
    const batch = this.#nextBatch();
    if (batch.length > 0) this.#call(batch);
    else this.#goOn();
  }

  #goOn(): void {
    if (this.#waiting.length > 0) setImmediate(() => this.#flush());
    else if (this.#underWay.size === 0) this.#options.onIdle?.();
  }

  #nextBatch(): Question[] {
    const batch = this.#waiting.slice(0, MAX_BATCH).filter(({ isOpen }) => isOpen);
    // A new list frees memory: after shift() or splice() of a long list, V8 keeps the removed entries for a long time.
    this.#waiting = this.#waiting.slice(MAX_BATCH);
    return batch;
  }

  #call(batch: readonly Question[]): void {
    this.#underWay.add(batch);
    const askedAt = performance.now();
    let endDeadline = this.#startDeadline();
    const grouped = this.#inGroups(batch);
    const end = (cause?: Error) => {
      if (cause !== undefined) this.#fail(batch, cause);
      endDeadline();
      this.#lastMs = performance.now() - askedAt;
      this.#options.calls?.ended(batch.length, this.#lastMs);
      this.#underWay.delete(batch);
      this.#goOn();
    };
    const onText = () => {
      endDeadline();
      endDeadline = this.#startDeadline();
    };
    try {
      this.#run(grouped, onText).then((replies) => end(this.#answer(grouped, replies)), end);
    } catch (fault) {
      // The plans have not been read yet.
      end(fault as Error);
    }
  }

  /** @returns the fault if a reply cannot be read */
  #answer(groups: readonly Group[], replies: readonly string[]): Error | undefined {
    let at = 0;
    try {
      for (const group of groups)
        for (const question of group) {
          const reply = replies[at++] ?? '';
          if (reply === BOUND) this.#askAgain(question);
          else question.answered(readVerdict(reply));
        }
      return undefined;
    } catch (cause) {
      return cause as Error;
    }
  }

  /** Also fails the requests that wait for the next call, so that they do not wait for another deadline. */
  #fail(batch: readonly Question[], cause: Error): void {
    const fault = new StoreUnavailable(`Redis made no decision: ${inWords(cause.message)}`, NO_DECISION);
    const isUnknown = mayHaveRun(cause);
    for (const question of batch) if (question.isOpen) question.failed(fault, isUnknown);
    for (const question of this.#waiting.splice(0)) if (question.isOpen) question.failed(fault, false);
  }

  /** Starts a call's deadline. When it passes, Redis counts as unavailable, and all waiting requests are answered. */
  #startDeadline(): () => void {
    const { calls, timeoutMs } = this.#options;
    if (timeoutMs === undefined) return () => {};
    let isLate = false;
    const onMissed = () => {
      if (!isLate) calls?.missed();
      isLate = true;
      for (const batch of this.#underWay) for (const question of batch) if (question.isOpen) question.late(true);
      for (const question of this.#waiting) if (question.isOpen) question.late(false);
    };
    return startDeadline(timeoutMs, onMissed, () => {
      if (this.#lastMs > SLOW_MS && this.#waiting.length > 0) this.#flush();
    });
  }

  /** Asks again, because the secret is bound. From now on, calls for this secret include scope and address. */
  #askAgain(question: Question): void {
    this.#bound.set(question.credential.cacheKey, true);
    if (question.isOpen) this.#waiting.push(question);
  }

  #isBound(cacheKey: string): boolean {
    return this.#bound.size > 0 && this.#bound.has(cacheKey);
  }

  #run(groups: readonly Group[], onText: () => void): Promise<string[]> {
    const words = groups.map(([{ credential }]) => keyOf(credential.id));
    words.push(this.#now(), this.#planText());
    for (const group of groups) {
      const { digest, cacheKey, use } = group[0].credential;
      words.push(digest, countText(group.length, this.#isBound(cacheKey) ? use : undefined));
    }
    return runDecide(this.#redis, groups.length, words, onText);
  }

  /** Groups requests by key, secret and (if it matters) use, in the order of arrival. */
  #inGroups(batch: readonly Question[]): Group[] {
    const groups = new Map<string, Group>();
    for (const question of batch) {
      const { cacheKey, use } = question.credential;
      const name = this.#isBound(cacheKey) ? `${cacheKey} ${use.scope} ${use.address}` : cacheKey;
      const group = groups.get(name);
      if (group === undefined) groups.set(name, [question]);
      else group.push(question);
    }
    return [...groups.values()];
  }

  /** An empty string selects the Redis clock. */
  #now(): string {
    const { clock } = this.#options;
    return clock === undefined ? '' : String(clock());
  }

  /** The plan table in the script's format, rebuilt only when the table changes. */
  #planText(): string {
    const { table } = this.#plans;
    if (table === undefined) throw new StoreUnavailable(NOT_READ);
    if (table !== this.#table) {
      this.#table = table;
      this.#tableText = planText(table);
    }
    return this.#tableText;
  }
}

/** decide.lua's reply for a bound secret if the call lacks scope and address. */
const BOUND = 'bound';

const countText = (count: number, use: Use | undefined): string =>
  use === undefined ? String(count) : `${count} ${use.scope ?? '-'} ${addressDigits(use.address) || '-'}`;

const chargeText = (debt: Debt): string =>
  `charge ${owedBy(debt)} ${debt.shadowed} ${debt.refused} ${debt.retryAt} ${debt.asOf} ${debt.spared} ${debt.due} ${debt.returned}`;

/** Reads one verdict from decide.lua's reply. The comment at the top of decide.lua describes the format. */
function readVerdict(reply: string): Verdict {
  const words = reply.split(' ');
  const outcome = words[0] as string;
  switch (outcome) {
    case 'admitted':
    case 'shadowed':
    case 'refused':
    case 'banned':
    case 'forbidden': {
      const isShadowed = outcome === 'shadowed';
      const decision = readDecision(isShadowed ? 'admitted' : outcome, words, isShadowed);
      if (decision === undefined) break;
      return decision;
    }
    case 'unknown':
    case 'elsewhere':
      return { outcome: 'unauthorized', reason: outcome };
    case 'disabled':
    case 'expired':
      return { outcome: 'unauthorized', reason: outcome, isOfKey: true };
    case 'gone':
      return { outcome: 'unauthorized', reason: 'unknown', isOfKey: true };
    case 'ended':
      return { outcome: 'unauthorized', reason: 'expired' };
    case 'misconfigured':
    case 'unreadable':
      return { outcome: 'undecided', reason: outcome };
  }
  throw new Error(`decide.lua returned an unknown reply: ${reply}`);
}

function readCharged(reply: string): Charged {
  const words = reply.split(' ');
  const decision = words[0] === 'charged' ? readDecision('admitted', words) : undefined;
  return decision === undefined ? 'gone' : { decision: { ...decision, retryAt: 0 }, forgiven: Number(words[6]) };
}

/** @returns undefined if a word is missing or unreadable */
function readDecision(
  outcome: Decision['outcome'],
  words: readonly string[],
  isShadowed = false,
): Decision | undefined {
  const [, plan, now, minuteText = '', dayText = '', bannedUntil, retryAt, endsAt, bounds, own] = words;
  const minute = readLevel(minuteText, MINUTE);
  const day = readLevel(dayText, DAY);
  if (minute === undefined || day === undefined || own === undefined) return undefined;
  return {
    outcome,
    plan: plan as PlanName,
    now: Math.round(Number(now) * SECOND),
    buckets: [
      { name: 'minute', window: MINUTE, limit: minute.limit, tokens: minute.tokens, fraction: minute.fraction },
      { name: 'day', window: DAY, limit: day.limit, tokens: day.tokens, fraction: day.fraction },
    ],
    bannedUntil: Number(bannedUntil),
    retryAt: Number(retryAt),
    own: { minute: own.includes('m'), day: own.includes('d') },
    isBannedByOperator: own.includes('b'),
    endsAt: Number(endsAt),
    bounds: readBounds(bounds as string),
    mode: 'shared',
    isShadowed,
    rejected: words.length > 10 ? words.slice(10).join(' ') : '',
  };
}

/**
 * Decides in a cluster: one call per API key, and one call at a time for each. No call has two keys: two keys rarely
 * share a slot, and while that slot migrates, Redis refuses a call with both (TRYAGAIN) until both have moved. Keys do
 * not wait for each other, so that a slow node delays only its own keys.
 */
export class ClusterLimiter extends RedisLimiter {
  override readonly atOnce = 1;
  /** A limiter for each key with a decision in progress. */
  readonly #lanes = new Map<string, RedisLimiter>();
  readonly #newLane: (onIdle: () => void) => RedisLimiter;

  constructor(cluster: ClusterConnection, plans: PlansInForce, given: RedisLimiterOptions = {}) {
    const options = { ...given, bound: boundSecrets() };
    super(cluster, plans, options);
    this.#newLane = (onIdle) => new RedisLimiter(cluster, plans, { ...options, onIdle });
  }

  override ask(question: Question): void {
    const { id } = question.credential;
    const lane = this.#lanes.get(id) ?? this.#newLane(() => void this.#lanes.delete(id));
    this.#lanes.set(id, lane);
    lane.ask(question);
  }
}
