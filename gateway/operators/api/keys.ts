import { z } from 'zod';
import { Unavailable } from '../../../shared/domain-errors.ts';
import { announcesBody } from '../../../shared/http/body.ts';
import { HttpError } from '../../../shared/http/errors.ts';
import { must } from '../../../shared/schemas/must.ts';
import { SECOND } from '../../limiter/clock.ts';
import { createApiKey, createSecretId, isKeyId, SCOPES, type Secret } from '../../limiter/credential.ts';
import { FRESH, type KeyChange, type KeyEntry, type KeyRecord } from '../../limiter/key-record.ts';
import { PLAN_NAMES } from '../../limiter/plans.ts';
import type { Activity, FieldChange, WithActivity } from '../../stores/audit.ts';
import { hasLimits } from '../../stores/key-hash.ts';
import { keyName } from '../../stores/line.ts';
import { Unconfirmed, Unknown } from '../../stores/storage.ts';
import { aboutCall, allOf, differences, entry, keyTexts, readChange } from './activity.ts';
import type { BansAnswer } from './answers.ts';
import { describeKey, describeKeyInFull, toTime, withBanRefusals } from './key-view.ts';
import {
  type AdminCall,
  type AdminDependencies,
  type AdminOperation,
  limitValue,
  offset,
  readQuery,
  tags,
  time,
  who,
} from './operation.ts';

/** Later times are not exact in microseconds. */
const LATEST = '2255-01-01T00:00:00Z';

export const planName = z.enum(PLAN_NAMES, { error: must(`be one of ${PLAN_NAMES.join(', ')}`) });
export const futureTime = time.refine(isWithinReach, `must lie in the future, before ${LATEST}`);

export const NewKey = z
  .strictObject({
    name: keyName,
    plan: planName,
    minute: limitValue.optional(),
    day: limitValue.optional(),
    expiresAt: futureTime.optional(),
    tags: tags.optional(),
    ...who,
  })
  .refine(hasLimits, { path: ['minute'], error: 'and day are required: an enterprise key carries its own limits' });

function isWithinReach(text: string): boolean {
  const at = Date.parse(text);
  return at > Date.now() && at < Date.parse(LATEST);
}

/** Issues a key. Only this answer ever shows the whole key. */
export const createKey: AdminOperation = async (call) => {
  const { deps } = call;
  const { about, given } = await readChange(call, NewKey);
  const { expiresAt } = given;
  const { apiKey, credential } = createApiKey();
  const createdAt = await deps.keys.now();
  const record: KeyRecord = {
    ...given,
    secrets: [makeSecret(credential.digest, createdAt)],
    createdAt,
    expiresAt: expiresAt === undefined ? undefined : toMicroseconds(expiresAt),
  };
  const activity = entry(about, 'key.create', credential.id, allOf(keyTexts(record)));
  await orUnclaimed(deps.keys.create(credential.id, record, activity), `key ${credential.id}`);
  return answerWithKey(deps, { id: credential.id, isReadable: true, record, ...FRESH }, record.createdAt, apiKey);
};

/** Waits until something is issued. If the outcome is unknown, nobody has the secret, and a retry issues another. */
export async function orUnclaimed(issued: Promise<unknown>, what: string): Promise<void> {
  try {
    await issued;
  } catch (fault) {
    if (!(fault instanceof Unknown || fault instanceof Unconfirmed)) throw fault;
    throw new Unavailable(fault, `${fault.shown} If the ${what} exists, nobody has received it: revoke it.`);
  }
}

/** Answers with a whole key, uncached. It makes no further calls: if one failed, a valid key would be lost. */
export function answerWithKey({ planCache }: AdminDependencies, key: KeyEntry, now: number, apiKey: string) {
  const body = { ...describeKeyInFull(key, planCache.table, now), key: apiKey };
  return { status: 201, body };
}

export const toMicroseconds = (text: string): number => Date.parse(text) * 1_000;

/** A key with the current state of its buckets. */
export const getKey: AdminOperation = async ({ deps, params }) => {
  const key = await describe(deps, await findKey(deps, params[0]));
  return { status: 200, body: (await withBanRefusals(deps, [key]))[0] };
};

/** Puts keys that work but are missing from the list back into it, each by the time of its creation. */
export const reindexKeys: AdminOperation = async (call) => {
  const { deps } = call;
  const about = aboutCall(call);
  const reindexed = await deps.keys.relist();
  if (reindexed > 0) {
    await deps.activity.record(entry(about, 'key.reindex', '*', allOf({ keys: String(reindexed) })));
  }
  return { status: 200, body: { reindexed } };
};

/** Revokes a key permanently. The next decision refuses it. */
export const revokeKey: AdminOperation = async (call) => {
  const { deps, params } = call;
  const about = aboutCall(call);
  const id = checkedId(params[0]);
  const key = await deps.keys.get(id);
  const activity = key && entry(about, 'key.revoke', id, differences(keyTexts(key.record), {}));
  if (!(await deps.keys.remove(id, activity))) throw noSuchKey();
  return { status: 204, body: undefined };
};

/**
 * Describes a key with the state of its buckets.
 * @param now given if it is known already: after a change no further call is made, because it could fail
 */
export async function describe(deps: AdminDependencies, key: KeyEntry, now?: number) {
  return describeKeyInFull(key, deps.planCache.table, now ?? (await deps.keys.now()));
}

/** @throws {HttpError} 404 for an unknown id */
export async function findKey({ keys }: AdminDependencies, id?: string): Promise<KeyEntry> {
  const key = await keys.get(checkedId(id));
  if (key === undefined) throw noSuchKey();
  return key;
}

const noSuchKey = () => new HttpError('not_found', 'There is no such key.');

function checkedId(id = ''): string {
  if (!isKeyId(id)) throw noSuchKey();
  return id;
}

/** Creates the first or a later secret of a key. */
export const makeSecret = (
  digest: string,
  createdAt: number,
  { name = 'first', scope = SCOPES, networks = [], expiresAt }: AboutSecret = {},
): Secret => ({ id: createSecretId(), digest, createdAt, name, scope, networks, expiresAt });

type AboutSecret = { readonly [member in 'name' | 'scope' | 'networks' | 'expiresAt']?: Secret[member] | undefined };

/** Changes of a key. They never refill its buckets: used tokens stay used, and a lower limit cuts what is left. */

/** null removes the key's own limit, its expiry or its tags. An expiry in the past takes effect at once. */
export const KeyChanges = z.strictObject({
  name: keyName.optional(),
  plan: planName.optional(),
  minute: limitValue.nullable().optional(),
  day: limitValue.nullable().optional(),
  expiresAt: time
    .refine((text) => toMicroseconds(text) > 0 && text < '2255', 'must lie between 1970 and 2255')
    .nullable()
    .optional(),
  disabled: z.boolean({ error: must('be true or false') }).optional(),
  tags: tags.nullable().optional(),
  ...who,
});

/** Changes the fields of a key that an operator may change. */
export const changeKey: AdminOperation = async (call) => {
  const { deps, params } = call;
  const { id } = await findKey(deps, params[0]);
  const { about, given } = await readChange(call, KeyChanges);
  if (Object.keys(given).length === 0) throw new HttpError('invalid_request', 'The body contains no changes.');
  const now = await deps.keys.now();
  const key = await apply(deps, id, (record) => {
    const changes = toRecord(given);
    const after = { ...record, ...changes };
    // A key without limits after an edit by hand can still be disabled.
    if (('plan' in changes || 'minute' in changes || 'day' in changes) && !hasLimits(after))
      throw new HttpError('invalid_request', 'minute and day are required: an enterprise key carries its own limits.');
    const changed = differences(keyTexts(record), keyTexts(after));
    return { record: changes, activity: changed.length === 0 ? undefined : entry(about, 'key.change', id, changed) };
  });
  return { status: 200, body: await describe(deps, key, now) };
};

function toRecord({ expiresAt, ...given }: Omit<z.infer<typeof KeyChanges>, keyof typeof who>): Partial<KeyRecord> {
  const changes = expiresAt === undefined ? given : { ...given, expiresAt: expiresAt && toMicroseconds(expiresAt) };
  return Object.fromEntries(Object.entries(changes).map(([member, value]) => [member, value ?? undefined]));
}

/**
 * Changes a key.
 * @returns the key after the change
 * @throws {HttpError} 404 for a key that was revoked meanwhile, 409 for an unreadable key
 */
export async function apply(
  deps: AdminDependencies,
  id: string,
  make: (record: KeyEntry['record'], before: KeyEntry) => KeyChange & WithActivity,
): Promise<KeyEntry> {
  const key = await deps.keys.change(id, make);
  if (key === undefined) throw new HttpError('not_found', 'There is no such key.');
  return key;
}

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
