import type { Level } from './bucket.ts';
import type { Credential } from './credential.ts';
import { decide } from './decide.ts';
import { FRESH, type KeyRecord, type KeyState } from './keys.ts';
import { MAX_LIMIT, PLAN_NAMES, type PlanMode, type PlanTable } from './plans.ts';
import { UNUSED } from './usage.ts';
import { type BucketState, type Decision, SECOND, type Unauthorized, type Verdict } from './verdict.ts';

/** For so long a key that Redis knew of is still believed; a key that is revoked while Redis is away works on as long. */
const BELIEVED = 15 * 60 * SECOND;
const MAX_KEYS = 50_000;

interface KnownKey {
  /** What Redis last said, and when that was by our clock. */
  readonly decision: Decision;
  readonly saidAt: number;
  /** What is left after the decisions that were taken here; undefined once that is no less than what Redis said. */
  readonly state: KeyState | undefined;
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
 * What Redis last said of each of the keys that came by, so that the next ones can be taken here while Redis is
 * away: by the same rules, from the levels that were left, with the bans that ran.
 * @param monotonic microseconds that only ever grow
 */
export class KnownKeys {
  readonly #keys = new Map<string, KnownKey>();
  readonly #plans: () => PlanTable;
  readonly #monotonic: () => number;

  constructor(plans: () => PlanTable, monotonic = () => Math.floor(performance.now() * 1_000)) {
    this.#plans = plans;
    this.#monotonic = monotonic;
  }

  /** Notes what Redis said. A key that opens nothing is forgotten. */
  note(credential: Credential, verdict: Decision | Unauthorized): void {
    const { name } = credential;
    if (verdict.outcome === 'unauthorized') {
      this.#keys.delete(name);
      return;
    }
    const state = this.#keys.get(name)?.state;
    const owing = state && stillOwing(credential, state, verdict);
    this.#keys.set(name, { decision: verdict, saidAt: this.#monotonic(), state: owing });
    if (this.#keys.size > MAX_KEYS) this.#keys.delete(this.#keys.keys().next().value as string);
  }

  /** The decision as it would be taken here; undefined for a key that is not known, or not any more. */
  decide(credential: Credential): Verdict | undefined {
    const known = this.#keys.get(credential.name);
    const elapsed = this.#monotonic() - (known?.saidAt ?? 0);
    if (known === undefined || elapsed > BELIEVED) return undefined;
    const now = known.decision.now + elapsed;
    const state = known.state ?? stateAfter(known.decision);
    const record = recordOf(credential, known.decision);
    const { mode = 'enforce' } = this.#plans()[record.plan];
    const decided = decide(record, state, credential.digest, LOCAL_PLANS[mode], now);
    // What was used in an outage is counted nowhere: its marks would only take room.
    if (decided.state !== undefined)
      this.#keys.set(credential.name, { ...known, state: { ...decided.state, usage: UNUSED } });
    return 'buckets' in decided.verdict ? { ...decided.verdict, mode: 'local' } : decided.verdict;
  }
}

/**
 * Redis was never charged for what was decided here. Until that has refilled, the levels that are kept here go on beside
 * those in Redis: a Redis that comes and goes must not hand out at each going what was spent at the one before.
 */
function stillOwing(credential: Credential, state: KeyState, said: Decision): KeyState | undefined {
  const levels = { ...state, bannedUntil: said.bannedUntil };
  const decided = decide(recordOf(credential, said), levels, credential.digest, LOCAL_PLANS.enforce, said.now);
  const here = stateAfter(decided.verdict as Decision);
  const there = stateAfter(said);
  const owing = { ...there, minute: lower(here.minute, there.minute), day: lower(here.day, there.day) };
  return owing.minute === there.minute && owing.day === there.day ? undefined : owing;
}

const lower = (a: Level, b: Level): Level =>
  a.tokens < b.tokens || (a.tokens === b.tokens && a.parts < b.parts) ? a : b;

const stateAfter = ({ now, buckets: [minute, day], bannedUntil }: Decision): KeyState => ({
  ...FRESH,
  minute: minute as BucketState,
  day: day as BucketState,
  asOf: now,
  bannedUntil,
});

const recordOf = ({ digest }: Credential, { plan, buckets: [minute, day] }: Decision): KeyRecord => ({
  plan,
  name: '',
  secret: digest,
  createdAt: 0,
  minute: minute?.limit,
  day: day?.limit,
});
