import { z } from 'zod';
import { Unavailable } from '../../../shared/domain-errors.ts';
import { HttpError } from '../../../shared/http/errors.ts';
import { must } from '../../../shared/schemas/must.ts';
import { createApiKey, createSecretId, isKeyId, SCOPES, type Secret } from '../../limiter/credential.ts';
import { FRESH, type KeyEntry, type KeyRecord } from '../../limiter/key-record.ts';
import { PLAN_NAMES } from '../../limiter/plans.ts';
import { hasLimits, keyName } from '../../stores/key-hash.ts';
import { Unconfirmed, Unknown } from '../../stores/storage.ts';
import { aboutCall, allOf, differences, entry, keyTexts, readChange } from './activity-of-call.ts';
import { withBanRefusals } from './ban-refusals.ts';
import { describeKeyInFull } from './key-view.ts';
import type { AdminDependencies, AdminOperation } from './operation.ts';
import { limitValue, tags, time, who } from './values.ts';

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
