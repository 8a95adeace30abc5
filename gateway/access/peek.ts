import { look, timesOf, unauthorized } from './decide.ts';
import type { KeyRecord, KeyState } from './keys.ts';
import type { PlanTable } from './plans.ts';
import type { Verdict } from './verdict.ts';

/** Where a key stands, by the rules of decide.lua for a count of 0: nothing is taken. */
export function peek(record: KeyRecord, state: KeyState, digest: string, plans: PlanTable, clock: number): Verdict {
  const { now } = timesOf(state, clock);
  const reason = unauthorized(record, digest, now);
  if (reason !== undefined) return { outcome: 'unauthorized', reason };
  const buckets = look(record, state, plans[record.plan], clock);
  if (buckets === undefined) return { outcome: 'undecided', reason: 'misconfigured' };
  const { plan } = record;
  const { bannedUntil } = state;
  return {
    outcome: bannedUntil > now ? 'banned' : 'admitted',
    plan,
    now,
    buckets,
    bannedUntil,
    mode: 'shared',
    rejected: '',
  };
}
