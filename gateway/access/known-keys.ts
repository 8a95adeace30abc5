import { RecentlyUsed } from '../../shared/recently-used.ts';
import type { Level } from './bucket.ts';
import type { Credential } from './credential.ts';
import { decide, look, peek } from './decide.ts';
import { FRESH, type KeyRecord, type KeyState } from './keys.ts';
import { MAX_LIMIT, PLAN_NAMES, type PlanMode, type PlanTable } from './plans.ts';
import { UNUSED } from './usage.ts';
import { type BucketState, type Decision, SECOND, type Unauthorized, type Verdict } from './verdict.ts';

/** A secret that Redis took is believed for this long; one that is revoked while Redis is away works on as long. */
const BELIEVED = 15 * 60 * SECOND;
const MAX_KEYS = 50_000;
/** Secrets of one key that are remembered. */
const MAX_SECRETS = 8;

/** Decides in Redis' place. */
export interface LocalDecisions {
  /**
   * Notes what Redis said.
   * @param wasDecided the request was decided by `decide` meanwhile: Redis' answer came late
   */
  note(credential: Credential, verdict: Decision | Unauthorized, wasDecided: boolean): void;
  /** The decision without Redis; undefined for a key that is not known, or not any more. */
  decide(credential: Credential): Verdict | undefined | Promise<Verdict | undefined>;
  /** Where a key stands without Redis, with nothing taken; undefined as for `decide`. */
  peek(credential: Credential): Verdict | undefined | Promise<Verdict | undefined>;
}

/** A secret that Redis took. */
interface KnownSecret {
  readonly digest: string;
  readonly saidAt: number;
  /** By Redis' clock; 0 for never. */
  readonly endsAt: number;
}

interface KnownKey {
  /** What Redis last said, and when that was by our clock. */
  decision: Decision;
  saidAt: number;
  /** What is left after the decisions that were taken here; undefined once that is no less than what Redis said. */
  state: KeyState | undefined;
  secrets: readonly KnownSecret[];
}

/** What one process knows of a key, in a form that another one can read: ages instead of times, in microseconds. */
export interface ToldKey {
  readonly decision: Decision;
  readonly age: number;
  readonly secrets: readonly { readonly digest: string; readonly age: number; readonly endsAt: number }[];
}

/** An outage must not ban anybody. */
const withoutBans = (mode: PlanMode): PlanTable =>
  Object.fromEntries(
    PLAN_NAMES.map((name) => [name, { ban_after: MAX_LIMIT, ban_within_seconds: 1, ban_seconds: 1, mode }]),
  ) as unknown as PlanTable;

/** Nor must an outage enforce what is in shadow mode. Made once: there is a decision for every request. */
const LOCAL_PLANS: Readonly<Record<PlanMode, PlanTable>> = {
  enforce: withoutBans('enforce'),
  shadow: withoutBans('shadow'),
};

/**
 * What Redis last said of each key in use, so that the next decisions can be taken here while Redis is away: by the same
 * rules, from the levels that were left, with the bans that ran. Levels belong to the key, whichever of its secrets comes.
 * @param monotonic microseconds that only ever grow
 */
export class KnownKeys implements LocalDecisions {
  readonly #keys = new RecentlyUsed<string, KnownKey>(MAX_KEYS);
  readonly #plans: () => PlanTable;
  readonly #monotonic: () => number;

  constructor(plans: () => PlanTable, monotonic = () => Math.floor(performance.now() * 1_000)) {
    this.#plans = plans;
    this.#monotonic = monotonic;
  }

  /** Notes what Redis said. A secret that opens nothing is forgotten. */
  note({ id, digest }: Credential, verdict: Decision | Unauthorized, wasDecided = false): void {
    if (verdict.outcome === 'unauthorized') {
      this.#forget(id, digest);
      return;
    }
    const saidAt = this.#monotonic();
    const known = this.#noteDecision(id, verdict, saidAt, wasDecided || verdict.outcome !== 'admitted' ? 0 : 1);
    known.secrets = withSecret(known.secrets, { digest, saidAt, endsAt: verdict.endsAt });
  }

  /** The decision as it would be taken here; undefined for a key or a secret that is not known, or not any more. */
  decide(credential: Credential): Verdict | undefined {
    const believed = this.#believed(credential);
    if (believed === undefined) return undefined;
    const { known, now, hasEnded } = believed;
    if (hasEnded) return EXPIRED;
    const record = recordOf(known.decision);
    const decided = decide(record, stateOf(known), '', this.#plansFor(record), now);
    // What was used in an outage is counted nowhere: its marks would only take room.
    if (decided.state !== undefined) known.state = { ...decided.state, usage: UNUSED };
    return local(decided.verdict);
  }

  /** Where the key would stand here, with nothing taken; undefined as for `decide`. */
  peek(credential: Credential): Verdict | undefined {
    const believed = this.#believed(credential);
    if (believed === undefined) return undefined;
    const { known, now, hasEnded } = believed;
    const record = recordOf(known.decision);
    return hasEnded ? EXPIRED : local(peek(record, stateOf(known), '', this.#plansFor(record), now));
  }

  /** What is known of a key, with a secret that Redis took lately, and the time by Redis' clock. */
  #believed({ id, digest }: Credential): { known: KnownKey; now: number; hasEnded: boolean } | undefined {
    const known = this.#keys.get(id);
    const secret = known?.secrets.find((one) => one.digest === digest);
    const at = this.#monotonic();
    if (known === undefined || secret === undefined || at - secret.saidAt > BELIEVED) return undefined;
    const now = known.decision.now + at - known.saidAt;
    return { known, now, hasEnded: secret.endsAt !== 0 && secret.endsAt <= now };
  }

  #plansFor({ plan }: KeyRecord): PlanTable {
    return LOCAL_PLANS[this.#plans()[plan].mode ?? 'enforce'];
  }

  /** When Redis last said something of a key, by its clock; 0 for never. */
  heardAt(id: string): number {
    return this.#keys.get(id)?.decision.now ?? 0;
  }

  /** What is known of a key, for another process. */
  tell(id: string): ToldKey | undefined {
    const known = this.#keys.get(id);
    if (known === undefined) return undefined;
    const at = this.#monotonic();
    const secrets = known.secrets.map(({ digest, saidAt, endsAt }) => ({ digest, age: at - saidAt, endsAt }));
    return { decision: known.decision, age: at - known.saidAt, secrets };
  }

  /** Takes over what another process knows of a key, where that is newer. */
  learn(id: string, { decision, age, secrets }: ToldKey): void {
    const at = this.#monotonic();
    const before = this.#keys.get(id);
    const isNewer = before === undefined || before.decision.now < decision.now;
    const known = isNewer ? this.#noteDecision(id, decision, at - age, 0) : before;
    for (const { digest, age: secretAge, endsAt } of secrets)
      known.secrets = withSecret(known.secrets, { digest, saidAt: at - secretAge, endsAt });
  }

  /** @param cost what Redis charged for a request that was not decided here, in tokens */
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

  /** The levels stay: they belong to the key, and it may have another secret. */
  #forget(id: string, digest: string): void {
    const known = this.#keys.get(id);
    if (known !== undefined) known.secrets = known.secrets.filter((secret) => secret.digest !== digest);
  }
}

/** Adds a secret, or what is newer of one that is there. The one that was taken longest ago makes room. */
function withSecret(secrets: readonly KnownSecret[], secret: KnownSecret): readonly KnownSecret[] {
  const [first] = secrets;
  if (secrets.length <= 1 && (first === undefined || first.digest === secret.digest))
    return first !== undefined && first.saidAt > secret.saidAt ? secrets : [secret];
  const same = secrets.find(({ digest }) => digest === secret.digest);
  if (same !== undefined && same.saidAt > secret.saidAt) return secrets;
  const others = secrets.filter((one) => one !== same).sort((a, b) => b.saidAt - a.saidAt);
  return [secret, ...others.slice(0, MAX_SECRETS - 1)];
}

/**
 * Redis was never charged for what was decided here. Until that has refilled, the levels that are kept here go on beside
 * those in Redis: a Redis that comes and goes must not hand out at each going what was spent at the one before.
 */
function stillOwing(state: KeyState, said: Decision, cost: number): KeyState | undefined {
  const levels = look(recordOf(said), state, LOCAL_PLANS.enforce[said.plan], said.now);
  if (levels === undefined) return undefined;
  const there = stateAfter(said);
  const minute = lower(less(levels[0], cost), there.minute);
  const day = lower(less(levels[1], cost), there.day);
  if (minute === there.minute && day === there.day) return undefined;
  // An answer that is late is older than the last decision here: what has refilled between them is in the levels already.
  const asOf = Math.max(said.now, Math.min(state.asOf ?? 0, said.now + SECOND));
  return { ...there, minute, day, asOf };
}

const less = ({ tokens, parts }: Level, cost: number): Level => ({ tokens: Math.max(tokens - cost, 0), parts });

const lower = (a: Level, b: Level): Level =>
  a.tokens < b.tokens || (a.tokens === b.tokens && a.parts < b.parts) ? a : b;

const stateAfter = ({ now, buckets: [minute, day], bannedUntil }: Decision): KeyState => ({
  ...FRESH,
  minute: minute as BucketState,
  day: day as BucketState,
  asOf: now,
  bannedUntil,
});

/** Which secret it is was looked at before: here there is but one, the empty text. */
const stateOf = ({ state, decision }: KnownKey): KeyState => state ?? stateAfter(decision);

const EXPIRED: Unauthorized = { outcome: 'unauthorized', reason: 'expired', mode: 'local' };

const local = (verdict: Verdict): Verdict =>
  verdict.outcome === 'undecided' ? verdict : { ...verdict, mode: 'local' };

const recordOf = ({ plan, buckets: [minute, day] }: Decision): KeyRecord => ({
  plan,
  name: '',
  secret: '',
  createdAt: 0,
  minute: minute?.limit,
  day: day?.limit,
});
