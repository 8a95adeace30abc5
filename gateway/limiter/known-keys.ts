import { boundedMap } from '../../shared/bounded-map.ts';
import type { Level } from './bucket.ts';
import { ChangedKeys } from './changed-keys.ts';
import { monotonicClock, SECOND } from './clock.ts';
import { type Bounds, type Credential, SCOPES } from './credential.ts';
import { bucketsAt, decide, peek } from './decide.ts';
import { FRESH, type KeyRecord, type KeyState } from './key-record.ts';
import type { BucketState, Decision, Unauthorized, Verdict } from './limiter.ts';
import { MAX_LIMIT, PLAN_NAMES, type PlanMode, type PlanTable } from './plans.ts';
import { UNUSED } from './usage-marks.ts';

/** A secret accepted by Redis is trusted this long. If it is revoked while Redis is away, it stays valid as long. */
const BELIEVED = 15 * 60 * SECOND;
const MAX_KEYS = 50_000;
/** Secrets that are remembered per key. */
const MAX_KNOWN_SECRETS = 8;

/** Decides in place of Redis. */
export interface LocalDecisions {
  /**
   * Notes a verdict of Redis.
   * @param wasDecided `decide` decided the request meanwhile, because Redis' answer was late
   * @param askedAt when Redis was asked, in microseconds that never go back
   */
  note(credential: Credential, verdict: Decision | Unauthorized, wasDecided: boolean, askedAt: number): void;
  /** The decision without Redis; undefined for a key that is not known, or no longer. */
  decide(credential: Credential): Verdict | undefined | Promise<Verdict | undefined>;
  /** The status of a key without Redis; nothing is taken. Undefined as for `decide`. */
  peek(credential: Credential): Verdict | undefined | Promise<Verdict | undefined>;
}

/** A secret that Redis accepted. */
interface KnownSecret {
  readonly digest: string;
  readonly saidAt: number;
  /** By Redis' clock; 0 for never. */
  readonly endsAt: number;
  readonly bounds: Bounds | undefined;
}

interface KnownKey {
  /** The last decision of Redis, and its time on our clock. */
  decision: Decision;
  saidAt: number;
  /** The levels after local decisions. Undefined if they are no lower than those of Redis. */
  state: KeyState | undefined;
  secrets: readonly KnownSecret[];
}

/** What one process knows of a key, for another process: ages instead of times, in microseconds. */
export interface ToldKey {
  readonly decision: Decision;
  readonly age: number;
  readonly secrets: readonly (Pick<KnownSecret, 'digest' | 'endsAt' | 'bounds'> & { readonly age: number })[];
}

interface Believed {
  readonly known: KnownKey;
  readonly secret: KnownSecret;
  readonly now: number;
  readonly hasEnded: boolean;
}

const UNBOUND: Bounds = { scope: SCOPES, networks: [] };

/** An outage must not ban anyone: who is refused is told a place, but it is no strike. */
const withoutBans = (mode: PlanMode): PlanTable =>
  Object.fromEntries(
    PLAN_NAMES.map((name) => [name, { ban_after: MAX_LIMIT, ban_grace_seconds: MAX_LIMIT, ban_seconds: 1, mode }]),
  ) as unknown as PlanTable;

/** Nor must an outage enforce a plan in shadow mode. Created once, because it is needed for every request. */
const LOCAL_PLANS: Readonly<Record<PlanMode, PlanTable>> = {
  enforce: withoutBans('enforce'),
  shadow: withoutBans('shadow'),
};

/**
 * The last decision of Redis on each key in use. While Redis is away, the next decisions are taken locally: with the
 * same rules, from the last levels, with the running bans. All secrets of a key share its levels. A key that an operator
 * has changed is not decided locally until Redis has accepted it again.
 * @param monotonic microseconds that never go back
 */
export class KnownKeys implements LocalDecisions {
  readonly #keys = boundedMap<string, KnownKey>(MAX_KEYS);
  readonly #plans: () => PlanTable;
  readonly #monotonic: () => number;
  readonly #changed: ChangedKeys;

  constructor(plans: () => PlanTable, monotonic = monotonicClock, changed = new ChangedKeys(monotonic)) {
    this.#plans = plans;
    this.#monotonic = monotonic;
    this.#changed = changed;
  }

  /** Notes a verdict of Redis. An invalid secret is forgotten. */
  note(
    { id, digest }: Credential,
    verdict: Decision | Unauthorized,
    wasDecided = false,
    askedAt = this.#monotonic(),
  ): void {
    if (verdict.outcome === 'unauthorized') {
      // A secret used from a wrong network is still valid from its own.
      if (verdict.reason !== 'elsewhere') this.#forget(id, digest);
      return;
    }
    if (this.#changed.hasChangedSince(id, askedAt)) return;
    const saidAt = this.#monotonic();
    const known = this.#noteDecision(id, verdict, saidAt, wasDecided || verdict.outcome !== 'admitted' ? 0 : 1);
    known.secrets = withSecret(known.secrets, { digest, saidAt, endsAt: verdict.endsAt, bounds: verdict.bounds });
  }

  /** The local decision; undefined for a key or secret that is not known, or no longer. */
  decide(credential: Credential): Verdict | undefined {
    const believed = this.#believed(credential);
    if (believed === undefined) return undefined;
    const { known, secret, now, hasEnded } = believed;
    if (hasEnded) return EXPIRED;
    const record = recordOf(known.decision, secret);
    const decided = decide(record, stateOf(known), credential, this.#plansFor(record), now);
    // Use during an outage is not counted, so its marks would only take memory.
    if (decided.state !== undefined) known.state = { ...decided.state, usage: UNUSED, used: {} };
    return local(decided.verdict);
  }

  /** The local status of the key; nothing is taken. Undefined as for `decide`. */
  peek(credential: Credential): Verdict | undefined {
    const believed = this.#believed(credential);
    if (believed === undefined) return undefined;
    const { known, secret, now, hasEnded } = believed;
    const record = recordOf(known.decision, secret);
    return hasEnded ? EXPIRED : local(peek(record, stateOf(known), credential, this.#plansFor(record), now));
  }

  /** What is known of a key whose secret Redis accepted recently, and the time by Redis' clock. */
  #believed({ id, digest }: Credential): Believed | undefined {
    const known = this.#keys.get(id);
    const secret = known?.secrets.find((one) => one.digest === digest);
    const at = this.#monotonic();
    if (known === undefined || secret === undefined || !this.#isBelieved(id, secret, at)) return undefined;
    const now = known.decision.now + at - known.saidAt;
    return { known, secret, now, hasEnded: secret.endsAt !== 0 && secret.endsAt <= now };
  }

  #isBelieved(id: string, { saidAt }: KnownSecret, at: number): boolean {
    return at - saidAt <= BELIEVED && !this.#changed.hasChangedSince(id, saidAt);
  }

  #plansFor({ plan }: KeyRecord): PlanTable {
    return LOCAL_PLANS[this.#plans()[plan].mode ?? 'enforce'];
  }

  /** The time of the last verdict of Redis on a key, by its clock; 0 for never. */
  heardAt(id: string): number {
    return this.#keys.get(id)?.decision.now ?? 0;
  }

  /** What is known of a key, for another process. */
  tell(id: string): ToldKey | undefined {
    const known = this.#keys.get(id);
    if (known === undefined) return undefined;
    const at = this.#monotonic();
    const believed = known.secrets.filter((secret) => this.#isBelieved(id, secret, at));
    const secrets = believed.map(({ saidAt, ...secret }) => ({ ...secret, age: at - saidAt }));
    return { decision: known.decision, age: at - known.saidAt, secrets };
  }

  /**
   * Takes over what another process knows of a key, if it is newer.
   * @param askedAt when that process was asked
   */
  learn(id: string, { decision, age, secrets }: ToldKey, askedAt: number): void {
    if (this.#changed.hasChangedSince(id, askedAt)) return;
    const at = this.#monotonic();
    const before = this.#keys.get(id);
    const isNewer = before === undefined || before.decision.now < decision.now;
    const known = isNewer ? this.#noteDecision(id, decision, at - age, 0) : before;
    for (const { age: secretAge, ...secret } of secrets)
      known.secrets = withSecret(known.secrets, { ...secret, saidAt: at - secretAge });
  }

  /** @param cost tokens that Redis took for a request that was not decided here */
  #noteDecision(id: string, decision: Decision, saidAt: number, cost: number): KnownKey {
    const known = this.#keys.get(id);
    if (known === undefined) {
      const key = { decision, saidAt, state: undefined, secrets: [] };
      this.#keys.set(id, key);
      return key;
    }
    known.state &&= stillOwing(known.state, decision, cost);
    known.decision = decision;
    known.saidAt = saidAt;
    return known;
  }

  /** The levels stay: they belong to the key, which may have another secret. */
  #forget(id: string, digest: string): void {
    const known = this.#keys.get(id);
    if (known !== undefined) known.secrets = known.secrets.filter((secret) => secret.digest !== digest);
  }
}

/** Adds a secret, or updates it with newer data. The one accepted longest ago is dropped. */
function withSecret(secrets: readonly KnownSecret[], secret: KnownSecret): readonly KnownSecret[] {
  const [first] = secrets;
  if (secrets.length <= 1 && (first === undefined || first.digest === secret.digest))
    return first !== undefined && first.saidAt > secret.saidAt ? secrets : [secret];
  const same = secrets.find(({ digest }) => digest === secret.digest);
  if (same !== undefined && same.saidAt > secret.saidAt) return secrets;
  const others = secrets.filter((one) => one !== same).sort((a, b) => b.saidAt - a.saidAt);
  return [secret, ...others.slice(0, MAX_KNOWN_SECRETS - 1)];
}

/**
 * Redis never charged for local decisions. Until those tokens have refilled, the lower local levels are kept beside
 * those of Redis. Otherwise a Redis that comes and goes would give away the same tokens in each outage.
 */
function stillOwing(state: KeyState, said: Decision, cost: number): KeyState | undefined {
  const levels = bucketsAt(limitsIn(said), state, LOCAL_PLANS.enforce[said.plan], said.now);
  if (levels === undefined) return undefined;
  const there = stateAfter(said);
  const minute = lower(less(levels[0], cost), there.minute);
  const day = lower(less(levels[1], cost), there.day);
  if (minute === there.minute && day === there.day) return undefined;
  // A late answer is older than the last local decision. The levels already contain the refill between the two.
  const asOf = Math.max(said.now, Math.min(state.asOf ?? 0, said.now + SECOND));
  return { ...there, minute, day, asOf };
}

const less = ({ tokens, fraction }: Level, cost: number): Level => ({ tokens: Math.max(tokens - cost, 0), fraction });

const lower = (a: Level, b: Level): Level =>
  a.tokens < b.tokens || (a.tokens === b.tokens && a.fraction < b.fraction) ? a : b;

const stateAfter = ({ now, buckets: [minute, day], bannedUntil }: Decision): KeyState => ({
  ...FRESH,
  minute: minute as BucketState,
  day: day as BucketState,
  asOf: now,
  bannedUntil,
  // A decision reports only bans that bind.
  banReason: { text: '', until: bannedUntil },
});

const stateOf = ({ state, decision }: KnownKey): KeyState => state ?? stateAfter(decision);

const EXPIRED: Unauthorized = { outcome: 'unauthorized', reason: 'expired', mode: 'local' };

const local = (verdict: Verdict): Verdict =>
  verdict.outcome === 'undecided' ? verdict : { ...verdict, mode: 'local' };

const limitsIn = ({ buckets: [minute, day] }: Decision) => ({ minute: minute?.limit, day: day?.limit });

/** The key with only the presented secret. */
const recordOf = (decision: Decision, { digest, bounds = UNBOUND }: KnownSecret): KeyRecord => ({
  plan: decision.plan,
  name: '',
  secrets: [{ id: '', name: '', digest, createdAt: 0, ...bounds }],
  createdAt: 0,
  ...limitsIn(decision),
});
