import { z } from 'zod';
import { announcesBody } from '../../../shared/http/request-head.ts';
import { must } from '../../../shared/schemas/must.ts';
import { SECOND } from '../../limiter/bucket.ts';
import type { KeyEntry } from '../../limiter/key-record.ts';
import type { Activity, FieldChange } from '../../stores/audit.ts';
import { aboutCall, allOf, entry, readChange } from './activity-of-call.ts';
import type { BansAnswer } from './answers.ts';
import { withBanRefusals } from './ban-refusals.ts';
import { apply } from './key-changes.ts';
import { describeKey, toTime } from './key-view.ts';
import { describe, findKey } from './keys.ts';
import type { AdminCall, AdminOperation } from './operation.ts';
import { offset, readQuery } from './query.ts';
import { who } from './values.ts';

const PAGE = 100;
/** To lock a key out for longer, disable or revoke it. */
const LONGEST_SECONDS = 366 * 86_400;
const LENGTH = must(`be a whole number of seconds from 1 to ${LONGEST_SECONDS}`);

export const NewBan = z.strictObject({
  seconds: z.int({ error: LENGTH }).min(1, { error: LENGTH }).max(LONGEST_SECONDS, { error: LENGTH }),
  ...who,
});

export const BansQuery = z.object({ offset });

/** Running bans, the newest keys first. One call checks a few thousand keys; the next one continues at `next`. */
export const listBans: AdminOperation = async ({ deps, query }) => {
  const { offset } = readQuery(BansQuery, query);
  const now = await deps.keys.now();
  const { keys, next } = await deps.keys.list({
    offset,
    limit: PAGE,
    isWanted: ({ bannedUntil }) => bannedUntil > now,
  });
  const bans = keys.map((key) => describeKey(key, now));
  return { status: 200, body: { bans: await withBanRefusals(deps, bans), next } satisfies BansAnswer };
};

/** Bans a key from now on. Replaces a running ban. */
export const setBan: AdminOperation = async (call) => {
  const { deps, params } = call;
  const { id } = await findKey(deps, params[0]);
  const { about, given } = await readChange(call, NewBan);
  const { seconds } = given;
  const now = await deps.keys.now();
  const until = now + seconds * SECOND;
  const activity = entry(about, 'ban.set', id, allOf({ seconds: String(seconds) }));
  const key = await apply(deps, id, () => ({ ban: { until, text: about.reason }, activity }));
  return { status: 200, body: await describe(deps, key, now) };
};

/** Lifts a ban and clears the line, the strikes and the series. Other gateways drop the ban within a second. */
export const liftBan: AdminOperation = async (call) => {
  const { id } = await findKey(call.deps, call.params[0]);
  const about = aboutCall(call);
  return await forgive(call, id, 'lift', (ended) => {
    const action = ended.some(({ field }) => field === 'bannedUntil') ? 'ban.lift' : 'key.change';
    return ended.length === 0 ? undefined : entry(about, action, id, ended);
  });
};

export const NewReset = z.strictObject(who);

/** Lifts a ban and fills both buckets, for a fresh start. The counts of use stay. The body can be left out. */
export const resetKey: AdminOperation = async (call) => {
  const { id } = await findKey(call.deps, call.params[0]);
  const about = announcesBody(call.request) ? (await readChange(call, NewReset)).about : aboutCall(call);
  return await forgive(call, id, 'reset', (ended) => entry(about, 'key.reset', id, ended));
};

/** The fields that a key loses: its ban, and the memory of its refusals. */
const endedOf = ({ bannedUntil, bans, refusals }: KeyEntry, now: number): FieldChange[] => [
  ...(bannedUntil > now ? [{ field: 'bannedUntil', from: toTime(bannedUntil) }] : []),
  ...(bans > 0 || refusals.lineUntil > now || refusals.strikesUntil > now
    ? [{ field: 'refusals', from: 'remembered' }]
    : []),
];

async function forgive(
  { deps }: AdminCall,
  id: string,
  ban: 'lift' | 'reset',
  activityOf: (ended: readonly FieldChange[]) => Activity | undefined,
) {
  const now = await deps.keys.now();
  const key = await apply(deps, id, (_, before) => ({ ban, activity: activityOf(endedOf(before, now)) }));
  return { status: 200, body: await describe(deps, key, now) };
}
