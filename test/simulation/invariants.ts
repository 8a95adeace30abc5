import type { Decision, Verdict } from '../../gateway/limiter/limiter.ts';
import type { DecideCall, Observer } from './network.ts';
import { HAMMERED_KEY, HAMMERED_MINUTE, LONE_KEY } from './plan.ts';
import { ReferenceBucket } from './reference-bucket.ts';
import type { VirtualTime } from './virtual-time.ts';

/** What must hold after every step, and the judge that checks it. */

export const INVARIANTS = {
  exact: 'Redis admits a request exactly when both buckets hold a token, and refuses it otherwise',
  'asked once': 'Redis decides on a request at most once, and each admitted answer is one that Redis admitted',
  'slow is not away': 'a gateway whose calls are answered in time decides with Redis, and answers every request',
  'told time': 'the time in a refusal suffices for a lone client, and the first one is tight',
  'local limit': 'without Redis, a gateway admits at most the limit, from the level that it last knew',
  'never charged twice': 'no local admission is charged twice',
  charged: 'a local admission is charged within 2 s of contact, to at most a minute below zero',
  'binds here': 'an acknowledged change binds every later answer of the gateway that acknowledged it',
  'binds everywhere': 'it binds every other gateway within 1 s of contact, and losing contact does not undo it',
  'polite is not banned': 'nobody who waits as told is banned',
  'hammer is banned': 'a client that keeps on at 10 or 100 times the limit is banned at the computed time',
  'never 401': 'a valid key is never rejected as invalid',
  answered: 'every request is answered within 2.5 s',
  recovers: 'within 3 s of the last fault, every gateway decides with Redis again',
} as const;

export type Invariant = keyof typeof INVARIANTS;

export interface Violation {
  readonly invariant: Invariant;
  readonly at: number;
  readonly message: string;
}

/** A request that a client has sent. */
export interface Request {
  readonly gateway: number;
  readonly key: number;
  readonly id: string;
  readonly digest: string;
  readonly scope: 'read' | 'write';
  readonly address: string;
  readonly at: number;
  /** It was sent while its gateway was not connected to Redis, so Redis does not know of it. */
  readonly isOffline: boolean;
  /** When the refusal came in whose time the client has waited. */
  readonly waitedSince: number | undefined;
}

/** Undefined: 503. */
export type Answer = Verdict | undefined;

/** An acknowledged change. */
export interface Bond {
  readonly id: string;
  /** A later change of the same group replaces it. */
  readonly group: string;
  readonly gateway: number;
  readonly what: string;
  /** When it binds, in virtual ms. Until it is acknowledged, that is not known. */
  from: number;
  until: number;
  isBroken(request: Request, verdict: Verdict): boolean;
}

interface Interval {
  readonly from: number;
  to: number;
}

const [MINUTE, DAY] = [60_000_000, 86_400_000_000];
const [LONGEST_ANSWER_MS, SETTLED_MS, CHARGED_MS, HEARD_MS] = [2_500, 2_000, 2_000, 1_000];

class Buckets {
  minute = new ReferenceBucket(MINUTE);
  day = new ReferenceBucket(DAY);

  copy(): Buckets {
    return Object.assign(new Buckets(), { minute: this.minute.copy(), day: this.day.copy() });
  }
}

/** The beginning of a verdict of decide.lua, as numbers. */
function read(text: string) {
  const [outcome = '', , ...numbers] = text.split(' ');
  const [now = 0, minute = 0, tokens = 0, fraction = 0, day = 0, dayTokens = 0, dayFraction = 0, , retryAt = 0] =
    numbers.map(Number);
  return {
    outcome,
    now,
    minute,
    left: tokens * MINUTE + fraction,
    day,
    dayLeft: dayTokens * DAY + dayFraction,
    retryAt,
  };
}

type Told = ReturnType<typeof read>;

export class Judge implements Observer {
  violation: Violation | undefined;
  readonly #time: VirtualTime;
  readonly #ids: readonly string[];
  readonly #off: ReadonlySet<Invariant>;
  readonly #open = new Set<Request>();
  readonly #bonds: Bond[] = [];
  readonly #contacts: Interval[][];
  /** By the key's id. */
  #inRedis = new Map<string, Buckets>();
  readonly #counts = new Map<string, number>();
  /** By gateway and key: what Redis last said, and what was admitted without it. */
  readonly #lastHeard = new Map<string, Buckets>();
  readonly #localOnly = new Map<string, Buckets>();
  readonly #mayBeInvalid = new Set<string>();
  readonly #lastOutcome = new Map<string, string>();
  #lastLocalAt = 0;
  /** How many times the limit the hammer sends, if there is one. */
  hammerTimes: number | undefined;
  #hammerSince: number | undefined;
  #isHammerBanned = false;

  constructor(time: VirtualTime, ids: readonly string[], gateways: number, off: readonly Invariant[]) {
    this.#time = time;
    this.#ids = ids;
    this.#off = new Set(off);
    this.#contacts = Array.from({ length: gateways }, () => []);
  }

  fail(invariant: Invariant, message: string): void {
    if (!this.#off.has(invariant)) this.violation ??= { invariant, at: this.#time.now, message };
  }

  // What Redis did.

  decided({ now, asked, verdicts }: DecideCall): void {
    const rest = [...verdicts];
    for (const { id, count } of asked)
      for (const text of rest.splice(0, Math.max(count, 1))) if (count > 0) this.#check(id, now, read(text));
  }

  #check(id: string, now: number, told: Told): void {
    const { outcome, minute, day } = told;
    if (!['admitted', 'shadowed', 'refused', 'banned', 'forbidden'].includes(outcome)) return;
    this.#count(`${id} decided`);
    if (this.#total(`${id} decided`) > this.#total(`${id} asked`))
      this.fail('asked once', `More decisions than requests.`);
    const [before, buckets] = [this.#lastOutcome.get(id), this.#bucketsIn(this.#inRedis, id)];
    this.#lastOutcome.set(id, outcome);
    if (outcome === 'banned' || outcome === 'forbidden') return;
    const cost = outcome === 'admitted' ? 1 : 0;
    // What is missing beyond the cost was charged for local admissions.
    const [left, dayLeft] = [buckets.minute.levelAt(now, minute), buckets.day.levelAt(now, day)];
    const debit = (left - cost * MINUTE - told.left) / MINUTE;
    const dayDebit = (dayLeft - cost * DAY - told.dayLeft) / DAY;
    if (debit > 0) this.#charge(id, debit);
    if (debit < 0 || dayDebit < 0 || !Number.isInteger(debit) || dayDebit > debit)
      this.fail(
        'exact',
        `Redis says ${outcome} with ${told.left / MINUTE} and ${told.dayLeft / DAY} left: ${debit} and ${dayDebit} unlike the reference.`,
      );
    buckets.minute.set(told.left, now, minute);
    buckets.day.set(told.dayLeft, now, day);
    const isThere = told.left + cost * MINUTE >= MINUTE && told.dayLeft + cost * DAY >= DAY;
    if ((outcome === 'admitted') !== isThere)
      this.fail('exact', `Redis says ${outcome} at a level of ${told.left / MINUTE}.`);
    if (outcome === 'admitted') this.#count(`${id} admitted`);
    if (outcome === 'refused') this.#checkTold(id, now, told, before, buckets);
  }

  #checkTold(id: string, now: number, { minute, day, retryAt }: Told, before: string | undefined, buckets: Buckets) {
    const [wait, dayWait] = [buckets.minute.waitAt(now, minute), buckets.day.waitAt(now, day)];
    const token = now + Math.max(wait, dayWait);
    if (retryAt < token) this.fail('told time', `A refusal tells ${(token - retryAt) / 1e6} s too little.`);
    const tokenTime = dayWait > wait ? DAY / day : MINUTE / minute;
    const isFirst = id === this.#ids[LONE_KEY] && before === 'admitted';
    if (isFirst && retryAt > token + tokenTime + 1e6)
      this.fail('told time', `A first refusal tells ${(retryAt - token) / 1e6} s too much.`);
  }

  #charge(id: string, debit: number): void {
    this.#count(`${id} charged`, debit);
    if (this.#total(`${id} charged`) > this.#total(`${id} local`))
      this.fail(
        'never charged twice',
        `${this.#total(`${id} charged`)} charged for ${this.#total(`${id} local`)} local admissions.`,
      );
  }

  heard({ gateway, asked, verdicts }: DecideCall): void {
    const rest = [...verdicts];
    for (const { id, count } of asked) {
      const told = read(rest.splice(0, Math.max(count, 1)).at(-1) ?? '');
      if (!Number.isFinite(told.minute) || told.minute === 0) continue;
      const buckets = this.#bucketsIn(this.#lastHeard, `${gateway} ${id}`);
      buckets.minute.set(told.left, told.now, told.minute);
      buckets.day.set(told.dayLeft, told.now, told.day);
    }
  }

  copied = (): unknown => new Map([...this.#inRedis].map(([id, buckets]) => [id, buckets.copy()]));

  restored(known: unknown): void {
    this.#inRedis = known as Map<string, Buckets>;
  }

  // What clients saw.

  asked(request: Request): void {
    this.#open.add(request);
    this.#count(`${request.id} asked`);
    if (request.key === HAMMERED_KEY) this.#hammerSince ??= request.at;
  }

  /** A gateway that starts again knows nothing, and owes nothing. */
  restartedGateway(gateway: number): void {
    for (const id of this.#ids) this.#localOnly.delete(`g${gateway} ${id}`);
  }

  /** Its gateway was ended. */
  dropped(request: Request): void {
    this.#open.delete(request);
  }

  answered(request: Request, answer: Answer): void {
    this.#open.delete(request);
    const { id, key, gateway } = request;
    const isLocal = answer === undefined || ('mode' in answer && answer.mode === 'local');
    if (isLocal && this.#hasContact(gateway, request.at - SETTLED_MS, this.#time.now))
      this.fail(
        'slow is not away',
        `g${gateway} answered k${key} ${answer === undefined ? 'with 503' : 'without Redis'} although Redis answers it.`,
      );
    if (answer?.outcome === 'admitted' && !answer.isShadowed) {
      if (isLocal) this.#checkLocal(request, answer);
      else {
        this.#count(`${id} admitted here`);
        if (this.#total(`${id} admitted here`) > this.#total(`${id} admitted`))
          this.fail('asked once', `k${key} was admitted more often than Redis did.`);
      }
    }
    if (answer?.outcome === 'unauthorized' && !this.#mayBeInvalid.has(id))
      this.fail('never 401', `k${key} is valid, and ${answer.reason} for g${gateway}.`);
    if (key === LONE_KEY) this.#checkLone(request, answer);
    if (key === HAMMERED_KEY && answer?.outcome === 'banned') this.#checkBan();
    if (answer !== undefined && answer.outcome !== 'undecided') this.#checkBonds(request, answer);
  }

  #checkLocal({ gateway, id, key, isOffline }: Request, { buckets: [minute, day], now }: Decision): void {
    this.#lastLocalAt = this.#time.now;
    this.#count(`${id} local`);
    if (isOffline) this.#count(`${id} owed`);
    const name = `g${gateway} ${id}`;
    const limits = [minute?.limit ?? 0, day?.limit ?? 0] as const;
    for (const [known, since] of [
      [this.#bucketsIn(this.#lastHeard, name), 'since it last heard from Redis'],
      [this.#bucketsIn(this.#localOnly, name), 'without Redis'],
    ] as const) {
      // A gateway knows Redis' time as of when the reply was sent, at the earliest.
      const at = Math.max(now, this.#time.microseconds);
      if (!known.minute.takeToken(at, limits[0]) || !known.day.takeToken(at, limits[1]))
        this.fail('local limit', `g${gateway} admitted more of k${key} than it may ${since}.`);
    }
  }

  #checkLone({ waitedSince, gateway }: Request, answer: Answer): void {
    if (answer?.outcome === 'banned')
      this.fail('polite is not banned', 'The lone client waits as told, and is banned.');
    const isUndisturbed =
      waitedSince !== undefined &&
      this.#contacts.every((_, at) => this.#hasContact(at, waitedSince - SETTLED_MS, this.#time.now));
    if (isUndisturbed && answer?.outcome !== 'admitted')
      this.fail('told time', `The lone client has waited as told, and g${gateway} says ${answer?.outcome}.`);
  }

  /** The bucket empties, then strikes fill up at X - 9 times the limit, then the grace passes. */
  #hammerExpectedMs(times: number): number {
    return 60_000 / (times - 1) + (5 * 60_000) / (times - 9) + 30_000;
  }

  /** Strikes are whole: one of them takes this long, beside two seconds for the network. */
  #hammerToleranceMs(times: number): number {
    return 60_000 / (HAMMERED_MINUTE * (times - 9)) + 2_000;
  }

  #checkBan(): void {
    if (this.#isHammerBanned || this.#hammerSince === undefined || this.hammerTimes === undefined) return;
    this.#isHammerBanned = true;
    const [took, expected] = [this.#time.now - this.#hammerSince, this.#hammerExpectedMs(this.hammerTimes)];
    if (Math.abs(took - expected) > this.#hammerToleranceMs(this.hammerTimes))
      this.fail('hammer is banned', `It was banned after ${took / 1_000} s; ${expected / 1_000} s are expected.`);
  }

  // What operators did.

  /** A change begins. What it replaces may bind no longer. @returns what to call when it is acknowledged, or failed */
  begin(bond: Omit<Bond, 'from' | 'until'>, mayInvalidate: boolean): { acknowledge(): void; fail(): void } {
    if (mayInvalidate) this.#mayBeInvalid.add(bond.id);
    const begun: Bond = Object.assign({}, bond, { from: Number.POSITIVE_INFINITY, until: Number.POSITIVE_INFINITY });
    const others = this.#bonds.filter(({ id, group }) => id === bond.id && group === bond.group);
    for (const other of others) {
      // Two at the same time: nobody knows which is the later one.
      if (other.from === Number.POSITIVE_INFINITY) begun.until = 0;
      other.until = Math.min(other.until, this.#time.now);
    }
    this.#bonds.push(begun);
    return {
      acknowledge: () => {
        begun.from = this.#time.now;
      },
      fail: () => void this.#bonds.splice(this.#bonds.indexOf(begun), 1),
    };
  }

  #checkBonds(request: Request, verdict: Verdict): void {
    for (const bond of this.#bonds) {
      if (bond.id !== request.id || bond.from >= request.at || bond.until <= this.#time.now) continue;
      const isHere = bond.gateway === request.gateway;
      if (!isHere && !this.#hasHeard(request.gateway, bond.from, request.at)) continue;
      if (bond.isBroken(request, verdict))
        this.fail(
          isHere ? 'binds here' : 'binds everywhere',
          `“${bond.what}” of k${request.key}, acknowledged by g${bond.gateway} at ${bond.from} ms, and g${request.gateway} says ${verdict.outcome}${'mode' in verdict ? ` (${verdict.mode})` : ''} at ${request.at} ms.`,
        );
    }
  }

  // The passing of time.

  /** To be called whenever the contact of a gateway with Redis may have changed. */
  sees(gateway: number, isWell: boolean): void {
    const intervals = this.#contacts[gateway] as Interval[];
    const last = intervals.at(-1);
    const now = this.#time.now;
    if (last !== undefined && last.to === Number.POSITIVE_INFINITY) {
      if (!isWell) last.to = now;
    } else if (isWell) intervals.push({ from: now, to: Number.POSITIVE_INFINITY });
  }

  sweep(): void {
    for (const { at, key, gateway } of this.#open)
      if (this.#time.now - at > LONGEST_ANSWER_MS)
        this.fail('answered', `A request with k${key} at g${gateway} is not answered.`);
  }

  /** What is owed for keys, once every gateway had contact for long enough. @param levelOf shares left, from Redis */
  async checkCharges(
    levelOf: (
      id: string,
    ) => Promise<{ readonly left: number; readonly asOf: number; readonly limit: number } | undefined>,
  ) {
    const from = this.#time.now - CHARGED_MS;
    if (this.#off.has('charged') || this.#lastLocalAt > from) return;
    if (!this.#contacts.every((_, at) => this.#hasContact(at, from, this.#time.now))) return;
    for (const [key, id] of this.#ids.entries()) {
      const owed = this.#total(`${id} owed`);
      if (owed === 0) continue;
      this.#counts.set(`${id} owed`, 0);
      const level = await levelOf(id);
      if (level === undefined) continue;
      const { minute } = this.#bucketsIn(this.#inRedis, id);
      const debit = (minute.levelAt(level.asOf, level.limit) - level.left) / MINUTE;
      if (debit > 0) this.#charge(id, debit);
      const isForgiven = level.left / MINUTE <= -level.limit * (1 - CHARGED_MS / 60_000);
      if (this.#total(`${id} charged`) < owed && !isForgiven)
        this.fail('charged', `${owed} local admissions of k${key}, and ${this.#total(`${id} charged`)} are charged.`);
    }
  }

  end(): void {
    const { hammerTimes } = this;
    if (hammerTimes === undefined || this.#hammerSince === undefined || this.#isHammerBanned) return;
    if (this.#time.now - this.#hammerSince > this.#hammerExpectedMs(hammerTimes) + this.#hammerToleranceMs(hammerTimes))
      this.fail('hammer is banned', `It is not banned after ${(this.#time.now - this.#hammerSince) / 1_000} s.`);
  }

  #hasContact(gateway: number, from: number, to: number): boolean {
    return (this.#contacts[gateway] ?? []).some((interval) => interval.from <= from && interval.to > to);
  }

  /** Whether it had contact for long enough between two times. */
  #hasHeard(gateway: number, from: number, to: number): boolean {
    const inside = (interval: Interval) => Math.min(interval.to, to) - Math.max(interval.from, from);
    return (this.#contacts[gateway] ?? []).some((interval) => inside(interval) > HEARD_MS);
  }

  #bucketsIn(map: Map<string, Buckets>, name: string): Buckets {
    const buckets = map.get(name) ?? new Buckets();
    map.set(name, buckets);
    return buckets;
  }

  #count(name: string, more = 1): void {
    this.#counts.set(name, this.#total(name) + more);
  }

  #total(name: string): number {
    return this.#counts.get(name) ?? 0;
  }
}
