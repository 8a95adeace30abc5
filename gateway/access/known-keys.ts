import type { Credential } from './credential.ts';
import { decide } from './decide.ts';
import { FRESH, type KeyRecord, type KeyState } from './keys.ts';
import { MAX_LIMIT, PLAN_NAMES, type PlanTable } from './plans.ts';
import { type BucketState, type Decision, SECOND, type Verdict } from './verdict.ts';

/** For so long a key that Redis knew of is still believed; a key that is revoked while Redis is away works on as long. */
const BELIEVED = 15 * 60 * SECOND;
const MAX_KEYS = 50_000;

interface KnownKey {
  /** What Redis last said, and when that was by our clock. */
  readonly decision: Decision;
  readonly saidAt: number;
  /** What is left after the decisions that were taken here since. */
  readonly state: KeyState | undefined;
}

/** A local refusal is no strike: an outage must not ban anybody. */
const NO_BANS: PlanTable = Object.fromEntries(
  PLAN_NAMES.map((name) => [name, { ban_after: MAX_LIMIT, ban_within_seconds: 1, ban_seconds: 1 }]),
) as unknown as PlanTable;

/**
 * What Redis last said of each of the keys that came by, so that the next ones can be taken here while Redis is
 * away: by the same rules, from the levels that were left, with the bans that ran.
 * @param monotonic microseconds that only ever grow
 */
export class KnownKeys {
  readonly #keys = new Map<string, KnownKey>();
  readonly #monotonic: () => number;

  constructor(monotonic = () => Math.floor(performance.now() * 1_000)) {
    this.#monotonic = monotonic;
  }

  /** Notes what Redis said. A key that opens nothing is forgotten. */
  note(credential: Credential, verdict: Verdict): void {
    const name = nameOf(credential);
    if (verdict.outcome === 'unauthorized' || verdict.outcome === 'undecided') {
      this.#keys.delete(name);
      return;
    }
    this.#keys.set(name, { decision: verdict, saidAt: this.#monotonic(), state: undefined });
    if (this.#keys.size > MAX_KEYS) this.#keys.delete(this.#keys.keys().next().value as string);
  }

  /** The decision as it would be taken here; undefined for a key that is not known, or not any more. */
  decide(credential: Credential): Verdict | undefined {
    const known = this.#keys.get(nameOf(credential));
    const elapsed = this.#monotonic() - (known?.saidAt ?? 0);
    if (known === undefined || elapsed > BELIEVED) return undefined;
    const now = known.decision.now + elapsed;
    const state = known.state ?? stateAfter(known.decision);
    const decided = decide(recordOf(credential, known.decision), state, credential.digest, NO_BANS, now);
    if (decided.state !== undefined) this.#keys.set(nameOf(credential), { ...known, state: decided.state });
    return 'buckets' in decided.verdict ? { ...decided.verdict, mode: 'local' } : decided.verdict;
  }
}

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

const nameOf = ({ id, digest }: Credential): string => id + digest;
