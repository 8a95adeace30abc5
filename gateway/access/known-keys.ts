import type { Credential } from './credential.ts';
import { decide } from './decide.ts';
import { FRESH, type KeyRecord, type KeyState } from './keys.ts';
import { MAX_LIMIT, PLAN_NAMES, type PlanTable } from './plans.ts';
import { type Decision, SECOND, type Verdict } from './verdict.ts';

/** For so long a key that Redis knew of is still believed; a key that is revoked while Redis is away works on as long. */
const BELIEVED = 15 * 60 * SECOND;
const MAX_KEYS = 50_000;

interface KnownKey {
  readonly record: KeyRecord;
  readonly state: KeyState;
  /** Redis' clock at the last decision, and ours. */
  readonly redisClock: number;
  readonly ownClock: number;
}

/** A local refusal is no strike: an outage must not ban anybody. */
const NO_BANS: PlanTable = Object.fromEntries(
  PLAN_NAMES.map((name) => [name, { ban_after: MAX_LIMIT, ban_within_seconds: 1, ban_seconds: 1 }]),
) as unknown as PlanTable;

/**
 * What the last decisions in Redis said of the keys that came last, so that the next ones can be taken here while Redis is
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
    this.#keys.delete(name);
    if (verdict.outcome === 'unauthorized' || verdict.outcome === 'undecided') return;
    if (this.#keys.size >= MAX_KEYS) this.#keys.delete(this.#keys.keys().next().value as string);
    this.#keys.set(name, this.#fromDecision(credential, verdict));
  }

  /** The decision as it would be taken here; undefined for a key that is not known, or not any more. */
  decide(credential: Credential): Verdict | undefined {
    const known = this.#keys.get(nameOf(credential));
    const elapsed = this.#monotonic() - (known?.ownClock ?? 0);
    if (known === undefined || elapsed > BELIEVED) return undefined;
    const { verdict, state } = decide(
      known.record,
      known.state,
      credential.digest,
      NO_BANS,
      known.redisClock + elapsed,
    );
    if (state !== undefined) this.#keys.set(nameOf(credential), { ...known, state });
    return 'buckets' in verdict ? { ...verdict, mode: 'local' } : verdict;
  }

  #fromDecision({ digest }: Credential, { plan, now, buckets, bannedUntil }: Decision): KnownKey {
    const [minute, day] = buckets as [Decision['buckets'][number], Decision['buckets'][number]];
    const record = { plan, name: '', secret: digest, createdAt: 0, minute: minute.limit, day: day.limit };
    return {
      record,
      state: { ...FRESH, minute, day, asOf: now, bannedUntil },
      redisClock: now,
      ownClock: this.#monotonic(),
    };
  }
}

const nameOf = ({ id, digest }: Credential): string => id + digest;
