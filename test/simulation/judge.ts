import type { Decision, Verdict } from '../../gateway/limiter/limiter.ts';
import { readReply } from '../support/decide-reply.ts';
import { sum } from '../support/statistics.ts';
import type { Answer, Bond, Invariant, Request, Violation } from './invariants.ts';
import { HAMMERED_KEY, HAMMERED_MINUTE, LONE_KEY } from './plan.ts';
import { ReferenceBucket } from './reference-bucket.ts';
import type { DecideCall, Observer } from './server.ts';
import type { VirtualTime } from './virtual-time.ts';

const [MINUTE, DAY] = [60_000_000, 86_400_000_000];
const [LONGEST_ANSWER_MS, SETTLED_MS, CHARGED_MS, HEARD_MS] = [2_500, 2_000, 2_000, 1_000];
/** Verdicts that depend on the buckets. */
const DECIDED = ['admitted', 'shadowed', 'refused', 'banned', 'forbidden', 'charged'];

interface Interval {
  readonly from: number;
  to: number;
}

class Buckets {
  minute = new ReferenceBucket(MINUTE);
  day = new ReferenceBucket(DAY);

  copy(): Buckets {
    return Object.assign(new Buckets(), { minute: this.minute.copy(), day: this.day.copy() });
  }
}

/** Reads the numbers in a verdict from decide.lua, with the levels in fractions of a token. */
function read(text: string) {
  const { outcome = text, now = 0, buckets, retryAt = 0, isBannedByOperator = false } = readReply(text) ?? {};
  const [minute, day] = buckets ?? [NO_BUCKET, NO_BUCKET];
  return {
    outcome,
    now,
    minute: minute.limit,
    left: minute.tokens * MINUTE + minute.fraction,
    day: day.limit,
    dayLeft: day.tokens * DAY + day.fraction,
    retryAt,
    isBannedByOperator,
  };
}

const NO_BUCKET = { limit: 0, tokens: 0, fraction: 0 };

type Reply = ReturnType<typeof read>;
type Charge = NonNullable<DecideCall['asked'][number]['charge']>;

/** Checks what Redis does and what clients and operators see. Keeps the first violation of an invariant. */
export class Judge implements Observer {
  violation: Violation | undefined;
  /** The rate of the client that ignores its limit, if there is one, as a multiple of that limit. */
  hammerTimes: number | undefined;
  readonly #time: VirtualTime;
  readonly #ids: readonly string[];
  readonly #open = new Set<Request>();
  readonly #bonds: Bond[] = [];
  readonly #contacts: readonly Interval[][];
  readonly #counts = new Map<string, number>();
  /** The reference buckets by key. */
  #inRedis = new Map<string, Buckets>();
  /**
   * The levels by gateway and key: those of the last reply from Redis minus later admissions, and those that result
   * from local admissions alone.
   */
  readonly #lastReplies = new Map<string, Buckets>();
  readonly #localOnly = new Map<string, Buckets>();
  readonly #lastOutcome = new Map<string, string>();
  readonly #mayBeInvalid = new Set<string>();
  #lastLocalAt = 0;
  #unknownFates = () => 0;
  #hammerSince: number | undefined;
  #isHammerBanned = false;

  constructor(time: VirtualTime, ids: readonly string[], gateways: number) {
    this.#time = time;
    this.#ids = ids;
    this.#contacts = Array.from({ length: gateways }, () => []);
  }

  fail(invariant: Invariant, message: string): void {
    this.violation ??= { invariant, at: this.#time.now, message };
  }

  // What Redis does.

  decided({ gateway, now, asked, verdicts }: DecideCall): void {
    const rest = [...verdicts];
    for (const { id, count, charge } of asked)
      for (const text of rest.splice(0, Math.max(count, 1)))
        if (charge !== undefined) this.#checkCharge(`${gateway} ${id}`, id, now, charge, read(text));
        else if (count > 0) this.#checkDecision(id, now, read(text));
  }

  /**
   * A charge takes all its tokens, but the minute bucket falls no further than one limit below zero, and the day bucket
   * no further than zero. If the minute bucket is less than one token short of full, the charge takes only what the
   * gateway's own bucket now lacks. The clocks differ by less than the time that a token takes to refill. Returned
   * tokens fill the buckets at most to their limits.
   */
  #checkCharge(name: string, id: string, now: number, { taken: tokens, due, returned }: Charge, reply: Reply): void {
    if (this.#count(`${id} returned`, returned) > this.#total(`${id} admitted`) - this.#total(`${id} admitted here`))
      this.fail('never charged twice', 'More tokens were returned than Redis took for requests that were not served.');
    const [charged, admitted] = [this.#count(`${id} charged`, tokens), this.#total(`${id} local`)];
    if (charged > admitted)
      this.fail('never charged twice', `${charged} tokens were charged for ${admitted} local admissions.`);
    // The key no longer exists.
    if (reply.outcome !== 'charged') return;
    const { minute, day } = this.#in(this.#inRedis, id);
    const [before, dayBefore] = [minute.levelAt(now, reply.minute), day.levelAt(now, reply.day)];
    const isFull = before >= (reply.minute - 1) * MINUTE;
    const taken = isFull ? due : tokens;
    const owing = Math.max(before - taken * MINUTE, Math.min(before, -reply.minute * MINUTE));
    const dayOwing = Math.max(dayBefore - tokens * DAY, Math.min(dayBefore, 0));
    const left = returned === 0 ? owing : Math.min(owing + returned * MINUTE, reply.minute * MINUTE);
    const dayLeft = returned === 0 ? dayOwing : Math.min(dayOwing + returned * DAY, reply.day * DAY);
    if (reply.left !== left || reply.dayLeft !== dayLeft)
      this.fail('charged', `A charge of ${tokens} leaves ${reply.left / MINUTE} instead of ${left / MINUTE} tokens.`);
    const lacking = reply.minute * MINUTE - this.#in(this.#lastReplies, name).minute.levelAt(now, reply.minute);
    const what = `A charge of ${tokens} takes ${due} from the minute bucket, which lacks ${lacking / MINUTE}.`;
    if (isFull && (due > tokens || (due + 1) * MINUTE <= Math.min(tokens * MINUTE, lacking)))
      this.fail('charged', what);
    minute.set(reply.left, now, reply.minute);
    day.set(reply.dayLeft, now, reply.day);
  }

  #checkDecision(id: string, now: number, reply: Reply): void {
    const { outcome, minute, day } = reply;
    if (!DECIDED.includes(outcome)) return;
    if (this.#count(`${id} decided`) > this.#total(`${id} asked`))
      this.fail('decided once', 'Redis has decided more requests than were sent.');
    const buckets = this.#in(this.#inRedis, id);
    const before = this.#lastOutcome.get(id);
    this.#lastOutcome.set(id, outcome);
    // A decision that causes a ban stores the levels. Decisions on banned keys do not.
    const isStored =
      outcome !== 'forbidden' && (outcome !== 'banned' || (before !== 'banned' && !reply.isBannedByOperator));
    if (!isStored) return;
    const cost = outcome === 'admitted' ? 1 : 0;
    const missing = (buckets.minute.levelAt(now, minute) - reply.left - cost * MINUTE) / MINUTE;
    const dayMissing = (buckets.day.levelAt(now, day) - reply.dayLeft - cost * DAY) / DAY;
    if (missing !== 0 || dayMissing !== 0)
      this.fail('exact', `Redis decides ${outcome}, with levels ${missing} and ${dayMissing} below the reference.`);
    buckets.minute.set(reply.left, now, minute);
    buckets.day.set(reply.dayLeft, now, day);
    if (outcome === 'banned') return;
    const isThere = reply.left >= (1 - cost) * MINUTE && reply.dayLeft >= (1 - cost) * DAY;
    if ((outcome === 'admitted') !== isThere)
      this.fail('exact', `Redis decides ${outcome} with ${reply.left / MINUTE} tokens left.`);
    if (outcome === 'admitted') this.#count(`${id} admitted`);
    if (outcome === 'refused') this.#checkPlace(id, now, reply, before === 'admitted');
  }

  #checkPlace(id: string, now: number, { minute, day, retryAt }: Reply, isFirst: boolean): void {
    const buckets = this.#in(this.#inRedis, id);
    const [wait, dayWait] = [buckets.minute.waitAt(now, minute), buckets.day.waitAt(now, day)];
    const more = retryAt - now - Math.max(wait, dayWait);
    const most = (dayWait > wait ? DAY / day : MINUTE / minute) + 1e6;
    if (more < 0) this.fail('retry time', `The retry time of a refusal is ${-more / 1e6} s too early.`);
    if (isFirst && id === this.#ids[LONE_KEY] && more > most)
      this.fail('retry time', `The retry time of a first refusal is ${more / 1e6} s later than the next token.`);
  }

  noteReplies({ gateway, asked, verdicts }: DecideCall): void {
    const rest = [...verdicts];
    for (const { id, count } of asked) {
      const reply = read(rest.splice(0, Math.max(count, 1)).at(-1) ?? '');
      if (!DECIDED.includes(reply.outcome)) continue;
      const buckets = this.#in(this.#lastReplies, `${gateway} ${id}`);
      buckets.minute.set(reply.left, reply.now, reply.minute);
      buckets.day.set(reply.dayLeft, reply.now, reply.day);
    }
  }

  copied = (): unknown => new Map([...this.#inRedis].map(([id, buckets]) => [id, buckets.copy()]));

  restored(known: unknown): void {
    this.#inRedis = known as Map<string, Buckets>;
    // Charges for local admissions may be lost in the failover.
    this.#localOnly.clear();
  }

  // What clients observe.

  asked(request: Request): void {
    this.#open.add(request);
    this.#count(`${request.id} asked`);
    if (request.key === HAMMERED_KEY) this.#hammerSince ??= request.at;
  }

  /** Call this if the gateway of a request was killed. */
  dropped(request: Request): void {
    this.#open.delete(request);
  }

  answered(request: Request, answer: Answer): void {
    this.#open.delete(request);
    const { id, key, gateway } = request;
    const isLocal = answer === undefined || ('mode' in answer && answer.mode === 'local');
    const said = answer?.outcome ?? 503;
    if (isLocal && this.#hasContact(gateway, request.at - SETTLED_MS))
      this.fail('slow is not down', `g${gateway} decides ${said} without Redis, although Redis replies.`);
    if (answer?.outcome === 'admitted' && !answer.isShadowed) {
      if (isLocal) this.#checkLocal(request, answer);
      else if (this.#count(`${id} admitted here`) > this.#total(`${id} admitted`))
        this.fail('decided once', `The gateways admitted k${key} more often than Redis did.`);
    }
    if (answer?.outcome === 'unauthorized' && !this.#mayBeInvalid.has(id))
      this.fail('never 401', `k${key} is valid, but g${gateway} rejects it as ${answer.reason}.`);
    if (key === LONE_KEY) this.#checkLone(request, answer);
    if (key === HAMMERED_KEY && answer?.outcome === 'banned') this.#checkBan();
    if (answer !== undefined && answer.outcome !== 'undecided') this.#checkBonds(request, answer);
  }

  #checkLocal({ gateway, id, key, isOffline }: Request, { buckets: [minute, day] }: Decision): void {
    this.#lastLocalAt = this.#time.now;
    this.#count(`${id} local`);
    if (isOffline) this.#count(`${id} owed`);
    const now = this.#time.microseconds;
    const limits = [minute?.limit ?? 0, day?.limit ?? 0] as const;
    const name = `g${gateway} ${id}`;
    // After a change to the limit, the count restarts, because it is unknown how long each limit was in force.
    const bounds = {
      "since Redis' last reply": this.#in(this.#lastReplies, name),
      'without Redis': this.#in(this.#localOnly, `${name} ${limits}`),
    };
    for (const [since, buckets] of Object.entries(bounds)) {
      if (buckets.minute.takeToken(now, limits[0]) && buckets.day.takeToken(now, limits[1])) continue;
      // A charge with an unknown outcome is never repeated, so its tokens may never be taken. Such charges are counted.
      const isExcused = since === 'without Redis' && this.#count(`${name} given back`) <= this.#unknownFates();
      if (!isExcused)
        this.fail('local limit', `g${gateway} admitted more requests with k${key} ${since} than allowed.`);
    }
  }

  #checkLone({ waitedSince, gateway }: Request, answer: Answer): void {
    if (answer?.outcome === 'banned')
      this.fail('polite is not banned', 'The lone client waits as long as each refusal requires, but is banned.');
    if (waitedSince === undefined || answer?.outcome === 'admitted') return;
    if (this.#contacts.every((_, at) => this.#hasContact(at, waitedSince - SETTLED_MS)))
      this.fail('retry time', `The lone client has waited, but g${gateway} decides ${answer?.outcome ?? 503}.`);
  }

  /**
   * The time until a client that sends at `times` times its limit is banned. It empties the bucket and then collects
   * strikes at `times - 9` times the limit; then the grace period passes. The ban may be early or late by
   * the time of one strike plus two seconds.
   */
  #hammerMs(times: number): { expected: number; tolerance: number } {
    const expected = 60_000 / (times - 1) + (5 * 60_000) / (times - 9) + 30_000;
    return { expected, tolerance: 60_000 / (HAMMERED_MINUTE * (times - 9)) + 2_000 };
  }

  #checkBan(): void {
    if (this.#isHammerBanned || this.#hammerSince === undefined || this.hammerTimes === undefined) return;
    this.#isHammerBanned = true;
    const took = this.#time.now - this.#hammerSince;
    const { expected, tolerance } = this.#hammerMs(this.hammerTimes);
    if (Math.abs(took - expected) > tolerance)
      this.fail('hammer is banned', `It was banned after ${took} ms instead of ${expected} ms.`);
  }

  // Changes by operators.

  /**
   * Begins a change. From now on, the change that it replaces need not be in force.
   * @returns functions that record the outcome
   */
  begin(bond: Omit<Bond, 'from' | 'until'>, mayInvalidate: boolean): { acknowledge(): void; fail(): void } {
    if (mayInvalidate) this.#mayBeInvalid.add(bond.id);
    const begun: Bond = Object.assign({}, bond, { from: Infinity, until: Infinity });
    for (const other of this.#bonds) {
      if (other.id !== bond.id || other.group !== bond.group) continue;
      // The order of two simultaneous changes is unknown.
      if (other.from === Infinity) begun.until = 0;
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
    const { id, gateway, at } = request;
    for (const bond of this.#bonds) {
      if (bond.id !== id || bond.from >= at || bond.until <= this.#time.now) continue;
      const isHere = bond.gateway === gateway;
      if ((!isHere && !this.#hasReply(gateway, bond.from, at)) || !bond.isBroken(request, verdict)) continue;
      const mode = 'mode' in verdict ? ` (${verdict.mode})` : '';
      const says = `g${gateway}, asked at ${at} ms, decides ${verdict.outcome}${mode}`;
      const invariant = isHere ? 'binds here' : 'binds everywhere';
      this.fail(invariant, `“${bond.what}” was acknowledged at ${bond.from} ms; ${says}.`);
    }
  }

  // The passage of time.

  /** Call this whenever a gateway's contact with Redis may have changed. */
  sees(gateway: number, isWell: boolean): void {
    const intervals = this.#contacts[gateway] ?? [];
    const last = intervals.at(-1);
    if (last?.to === Infinity) {
      if (!isWell) last.to = this.#time.now;
    } else if (isWell) intervals.push({ from: this.#time.now, to: Infinity });
  }

  /** Call this after a restart, in which a gateway loses its levels and outstanding charges. */
  restarted(gateway: number): void {
    for (const id of this.#ids)
      this.#counts.set(`${id} owed`, Math.min(this.#total(`${id} owed`), this.#total(`${id} charged`)));
    for (const name of this.#localOnly.keys()) if (name.startsWith(`g${gateway} `)) this.#localOnly.delete(name);
  }

  /** @param unknownFates the number of local admissions whose charge the gateways count as unknown */
  sweep(unknownFates: () => number): void {
    this.#unknownFates = unknownFates;
    for (const { at, key, gateway } of this.#open)
      if (this.#time.now - at > LONGEST_ANSWER_MS) this.fail('answered', `g${gateway} does not answer k${key}.`);
    const from = this.#time.now - CHARGED_MS;
    const isDue = this.#lastLocalAt <= from && this.#contacts.every((_, at) => this.#hasContact(at, from));
    if (!isDue) return;
    const missing = this.#ids.map((id) => Math.max(0, this.#total(`${id} owed`) - this.#total(`${id} charged`)));
    const [lost, unknown] = [sum(missing), unknownFates()];
    if (lost > 0 && lost > unknown)
      this.fail('charged', `${lost} local admissions were not charged, and the outcome of ${unknown} is unknown.`);
  }

  end(): void {
    if (this.hammerTimes === undefined || this.#hammerSince === undefined || this.#isHammerBanned) return;
    const { expected, tolerance } = this.#hammerMs(this.hammerTimes);
    const took = this.#time.now - this.#hammerSince;
    if (took > expected + tolerance) this.fail('hammer is banned', `It was not banned within ${took} ms.`);
  }

  /** Whether a gateway has been in contact with Redis without interruption since that time. */
  #hasContact(gateway: number, since: number): boolean {
    const last = this.#contacts[gateway]?.at(-1);
    return last !== undefined && last.from <= since && last.to === Infinity;
  }

  /** Whether a gateway had contact between two times for long enough to be notified of a change. */
  #hasReply(gateway: number, from: number, to: number): boolean {
    const inside = (interval: Interval) => Math.min(interval.to, to) - Math.max(interval.from, from);
    return (this.#contacts[gateway] ?? []).some((interval) => inside(interval) > HEARD_MS);
  }

  #in(map: Map<string, Buckets>, name: string): Buckets {
    const buckets = map.get(name) ?? new Buckets();
    map.set(name, buckets);
    return buckets;
  }

  #count(name: string, more = 1): number {
    const count = this.#total(name) + more;
    this.#counts.set(name, count);
    return count;
  }

  #total(name: string): number {
    return this.#counts.get(name) ?? 0;
  }
}
