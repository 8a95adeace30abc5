import { z } from 'zod';
import { Unavailable } from '../../../shared/domain-errors.ts';
import { HttpError } from '../../../shared/http/errors.ts';
import { must } from '../../../shared/schemas/must.ts';
import { SECOND } from '../../limiter/bucket.ts';
import { createApiKey, createSecretId, isKeyId, SCOPES, type Secret } from '../../limiter/credential.ts';
import { FRESH, type KeyChange, type KeyEntry, type KeyRecord } from '../../limiter/key-record.ts';
import { PLAN_NAMES, type PlanTable } from '../../limiter/plans.ts';
import type { FieldChange, WithActivity } from '../../stores/audit.ts';
import { hasLimits, keyName } from '../../stores/key-hash.ts';
import { Unconfirmed, Unknown, writeCursor } from '../../stores/storage.ts';
import { allOf, differences, entry, keyTexts } from './activity.ts';
import { BansAnswer, IssuedKey, KeyView, ReindexAnswer } from './answers.ts';
import { bucketsIn, describeKeys, isBanned, toTime } from './key-view.ts';
import { type AdminCall, type AdminDependencies, operation, refuseEmpty, who } from './operation.ts';
import { choice, integer, limitValue, offset, tagChanges, tags, time, withTagChanges } from './values.ts';

/** Later times cannot be represented exactly in microseconds. */
const LATEST = '2255-01-01T00:00:00Z';

export const planName = choice(PLAN_NAMES);

const toMicroseconds = (text: string): number => Date.parse(text) * 1_000;

const IN_FUTURE = `must be in the future, before ${LATEST}`;

/** The expiry of a new key or secret, in microseconds. `timeBefore` checks that it is in the future. */
export const futureTime = time
  .refine((text) => Date.parse(text) < Date.parse(LATEST), { error: IN_FUTURE })
  .transform(toMicroseconds);

/** The current time by the store's clock. @throws {HttpError} 400 if a given expiry is not later */
export async function timeBefore({ keys }: AdminDependencies, expiresAt: number | null | undefined): Promise<number> {
  const now = await keys.now();
  if ((expiresAt ?? Infinity) > now) return now;
  throw new HttpError('invalid_request', `The body is not valid: expiresAt ${IN_FUTURE}.`);
}

const LIMITS_REQUIRED = 'and day are required: an enterprise key carries its own limits';

const NewKey = z
  .strictObject({
    name: keyName,
    plan: planName,
    minute: limitValue.optional(),
    day: limitValue.optional(),
    expiresAt: futureTime.optional(),
    tags: tags.optional(),
    ...who,
  })
  .refine(hasLimits, { path: ['minute'], error: LIMITS_REQUIRED });

export const createKey = operation(
  { body: NewKey, answer: IssuedKey, creates: true },
  async ({ deps, given, about }) => {
    const { apiKey, credential } = createApiKey();
    const { id, digest } = credential;
    const createdAt = await timeBefore(deps, given.expiresAt);
    const record: KeyRecord = { ...given, secrets: [makeSecret(digest, createdAt)], createdAt };
    await orUnclaimed(
      deps.keys.create(id, record, entry(about, 'key.create', id, allOf(keyTexts(record)))),
      `key ${id}`,
    );
    const key = { id, isReadable: true, record, ...FRESH };
    return { ...(await describe(deps, key, createdAt)), key: apiKey };
  },
);

/**
 * Waits until a key or token is stored. If the outcome is uncertain, the error says to revoke it: nobody has received
 * it, and a retry issues another one.
 */
export async function orUnclaimed(issued: Promise<unknown>, what: string): Promise<void> {
  try {
    await issued;
  } catch (fault) {
    if (!(fault instanceof Unknown || fault instanceof Unconfirmed)) throw fault;
    throw new Unavailable(fault, `${fault.shown} If the ${what} exists, nobody has received it: revoke it.`);
  }
}

export const getKey = operation({ target: findKey, answer: KeyView }, ({ deps, target }) => describe(deps, target));

/** Adds working keys that are missing from the list of keys, each with its time of creation. */
export const reindexKeys = operation({ answer: ReindexAnswer }, async ({ deps, about }) => {
  const reindexed = await deps.keys.relist();
  if (reindexed > 0) await deps.activity.record(entry(about, 'key.reindex', '*', allOf({ keys: String(reindexed) })));
  return { reindexed };
});

export const revokeKey = operation({}, async ({ deps, params: [id = ''], about }) => {
  if (!isKeyId(id)) throw noSuchKey();
  const isRemoved = await deps.keys.remove(id, (record) =>
    entry(about, 'key.revoke', id, differences(keyTexts(record), {})),
  );
  if (!isRemoved) throw noSuchKey();
});

/**
 * Describes a key with the state of its buckets and its ban.
 * @param now the time, if already known. After a change it must be passed: a further call could fail, and the only
 *   response that shows a new key would be lost
 */
export async function describe(deps: AdminDependencies, key: KeyEntry, now?: number) {
  const [described] = await describeKeys(deps, [key], now ?? (await deps.keys.now()));
  return described!;
}

/** Finds the key named in the path of a call. @throws {HttpError} 404 for an unknown id */
export async function findKey({ deps, params: [id = ''] }: AdminCall): Promise<KeyEntry> {
  const key = isKeyId(id) ? await deps.keys.get(id) : undefined;
  if (key === undefined) throw noSuchKey();
  return key;
}

const noSuchKey = () => new HttpError('not_found', 'There is no such key.');

/** Creates a secret. The defaults are those of the first secret of a key. */
export const makeSecret = (
  digest: string,
  createdAt: number,
  {
    name = 'first',
    scope = SCOPES,
    networks = [],
    expiresAt,
  }: { readonly [M in keyof Secret]?: Secret[M] | undefined } = {},
): Secret => ({ id: createSecretId(), digest, createdAt, name, scope, networks, expiresAt });

/**
 * null removes the key's own limit, its expiry or its tags. An expiry in the past takes effect at once. `tags` replaces
 * all tags, and `tagChanges` changes single ones, so that concurrent changes are kept.
 */
const KeyChanges = z
  .strictObject({
    name: keyName.optional(),
    plan: planName.optional(),
    minute: limitValue.nullable().optional(),
    day: limitValue.nullable().optional(),
    expiresAt: time
      .refine((text) => toMicroseconds(text) > 0 && text < '2255', 'must be between 1970 and 2255')
      .transform(toMicroseconds)
      .nullable()
      .optional(),
    disabled: z.boolean({ error: must('be true or false') }).optional(),
    tags: tags.nullable().optional(),
    tagChanges: tagChanges.optional(),
    ...who,
  })
  .refine(({ tags, tagChanges }) => tags === undefined || tagChanges === undefined, {
    path: ['tagChanges'],
    error: 'cannot be used with tags',
  });

/**
 * Changes the fields of a key that an operator may change. This never refills its buckets, and a lower limit reduces
 * the remaining tokens.
 */
export const changeKey = operation(
  { target: findKey, body: KeyChanges, answer: KeyView },
  async ({ deps, target: { id }, given: { tagChanges, ...given }, about }) => {
    refuseEmpty(tagChanges ?? given);
    // Undefined removes a field.
    const fields = Object.fromEntries(Object.entries(given).map(([member, value]) => [member, value ?? undefined]));
    return changed(deps, id, ({ record }) => {
      const changes = { ...fields, ...(tagChanges && { tags: withTagChanges(record.tags, tagChanges) }) };
      const after = { ...record, ...changes };
      // A key that lost its limits when it was edited by hand can still be disabled.
      if (('plan' in changes || 'minute' in changes || 'day' in changes) && !hasLimits(after))
        throw new HttpError('invalid_request', `minute ${LIMITS_REQUIRED}.`);
      const made = differences(keyTexts(record), keyTexts(after));
      return { record: changes, activity: made.length === 0 ? undefined : entry(about, 'key.change', id, made) };
    });
  },
);

/** Changes a key, and describes it after the change. @throws {HttpError} as `apply` does */
async function changed(
  deps: AdminDependencies,
  id: string,
  make: (before: KeyEntry, now: number) => KeyChange & WithActivity,
) {
  const now = await deps.keys.now();
  return describe(deps, await apply(deps, id, (_, before) => make(before, now)), now);
}

/**
 * Changes a key.
 * @returns the key after the change
 * @throws {HttpError} 404 if the key was revoked in the meantime, 409 if it is unreadable
 */
export async function apply(
  deps: AdminDependencies,
  id: string,
  make: (record: KeyEntry['record'], before: KeyEntry) => KeyChange & WithActivity,
): Promise<KeyEntry> {
  const key = await deps.keys.change(id, make);
  if (key === undefined) throw noSuchKey();
  return key;
}

const PAGE = 100;
/** To block a key for longer, disable or revoke it. */
const LONGEST_SECONDS = 366 * 86_400;

const NewBan = z.strictObject({
  seconds: integer(1, LONGEST_SECONDS, 'a whole number of seconds'),
  ...who,
});

/** Lists active bans, newest key first. One call checks a few thousand keys; the next one continues after `next`. */
export const listBans = operation(
  { query: z.object({ offset }), answer: BansAnswer },
  async ({ deps, query: { offset } }) => {
    const now = await deps.keys.now();
    const isWanted = (key: KeyEntry) => isBanned(key, deps.planCache.table, now);
    const { keys, next } = await deps.keys.list({ offset, limit: PAGE, isWanted });
    return { bans: await describeKeys(deps, keys, now), next: next && writeCursor(next) };
  },
);

/** Bans a key from now on. Replaces an active ban. */
export const setBan = operation(
  { target: findKey, body: NewBan, answer: KeyView },
  async ({ deps, target: { id }, given: { seconds }, about }) =>
    changed(deps, id, (_, now) => ({
      ban: { until: now + seconds * SECOND, text: about.reason, since: now },
      activity: entry(about, 'ban.set', id, allOf({ seconds: String(seconds) })),
    })),
);

/** Lifts a ban, and clears the key's line, strikes and series of bans. */
export const liftBan = operation({ target: findKey, answer: KeyView }, async ({ deps, target: { id }, about }) =>
  changed(deps, id, (before, now) => {
    const ended = endedOf(before, now);
    const action = ended.some(({ field }) => field === 'bannedUntil') ? 'ban.lift' : 'key.change';
    return { ban: 'lift', activity: ended.length === 0 ? undefined : entry(about, action, id, ended) };
  }),
);

/** Does what `liftBan` does, and also fills both buckets. The usage counts are kept. The body is optional. */
export const resetKey = operation(
  { target: findKey, body: z.strictObject(who), isBodyOptional: true, answer: KeyView },
  async ({ deps, target: { id }, about }) =>
    changed(deps, id, (before, now) => ({
      ban: 'reset',
      activity: entry(about, 'key.reset', id, [...endedOf(before, now), ...filled(before, deps.planCache.table, now)]),
    })),
);

/** The buckets that a reset fills, with the number of requests left before and after. */
const filled = (key: KeyEntry, plans: PlanTable, now: number): FieldChange[] =>
  (bucketsIn(key, plans, now) ?? []).flatMap(({ name, tokens, limit }) =>
    tokens < limit ? [{ field: `${name}Remaining`, from: String(Math.max(0, tokens)), to: String(limit) }] : [],
  );

/** The fields that lifting a ban clears: the key's active ban, and its record of earlier refusals. */
const endedOf = ({ bannedUntil, bans, refusals }: KeyEntry, now: number): FieldChange[] => [
  ...(bannedUntil > now ? [{ field: 'bannedUntil', from: toTime(bannedUntil) }] : []),
  ...(bans > 0 || refusals.lineUntil > now || refusals.strikesUntil > now
    ? [{ field: 'refusals', from: 'remembered' }]
    : []),
];
