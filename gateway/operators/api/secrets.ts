import { z } from 'zod';
import { HttpError } from '../../../shared/http/errors.ts';
import { must } from '../../../shared/schemas/must.ts';
import { SECOND } from '../../limiter/bucket.ts';
import { createApiKey, MAX_SECRETS, SCOPES, type Secret, type UnreadablePart } from '../../limiter/credential.ts';
import type { KeyChange, KeyEntry, KeyRecord } from '../../limiter/key-record.ts';
import { parseNetwork } from '../../limiter/networks.ts';
import type { WithActivity } from '../../stores/audit.ts';
import { keyName, MAX_NETWORKS, ownExpiry, type StoredSecret } from '../../stores/key-hash.ts';
import { Unreadable } from '../../stores/keys.ts';
import { allOf, differences, entry, secretTexts } from './activity.ts';
import { IssuedKey, IssuedSecret, SecretView } from './answers.ts';
import { describeSecret } from './key-view.ts';
import { apply, describe, findKey, futureTime, makeSecret, orUnclaimed, timeBefore } from './keys.ts';
import { type AdminDependencies, operation, refuseEmpty, who } from './operation.ts';
import { integer } from './values.ts';

/** The secrets of a key. Each can have its own scope, networks, name and expiry. A change affects no other secret. */

type Secrets = Pick<KeyRecord, 'secrets'>;

const SCOPE = must(`contain ${SCOPES.join(' or ')}`);

const scope = z
  .array(z.enum(SCOPES, { error: SCOPE }), { error: must('be a list, such as ["read"] or ["read", "write"]') })
  .min(1, { error: SCOPE })
  .transform((given) => SCOPES.filter((one) => given.includes(one)));

const NETWORK = must(
  'contain addresses, or blocks such as 10.0.0.0/8 or 2001:db8::/32 with no bits set after the prefix',
);

const networks = z
  .array(z.string({ error: NETWORK }), { error: must('be a list of networks, such as ["10.0.0.0/8"]') })
  .max(MAX_NETWORKS, { error: must(`have at most ${MAX_NETWORKS} entries`) })
  .refine((given) => given.every((text) => parseNetwork(text) !== undefined), { error: NETWORK })
  .transform((given) => [...new Set(given.map((text) => parseNetwork(text) as string))]);

const NewSecret = z.strictObject({
  name: keyName,
  scope: scope.optional(),
  networks: networks.optional(),
  expiresAt: futureTime.optional(),
  ...who,
});

const SecretChanges = NewSecret.extend({ name: keyName.optional(), expiresAt: futureTime.nullable().optional() });

export const addSecret = operation(
  { target: findKey, body: NewSecret, answer: IssuedSecret, creates: true },
  async ({ deps, target: { id }, given, about }) => {
    const { apiKey, credential } = createApiKey(id);
    const now = await timeBefore(deps, given.expiresAt);
    const secret = makeSecret(credential.digest, now, given);
    const activity = entry(about, 'secret.create', id, allOf(secretTexts(secret)));
    const added = apply(deps, id, (record) => ({ record: { secrets: [...roomIn(record, now), secret] }, activity }));
    await orUnclaimed(added, `secret ${secret.id}`);
    return { id: secret.id, key: apiKey };
  },
);

export const changeSecret = operation(
  { target: findKey, body: SecretChanges, answer: SecretView },
  async ({ deps, params, target: { id }, given, about }) => {
    refuseEmpty(given);
    await timeBefore(deps, given.expiresAt);
    const key = await applyTo(deps, id, secretIn(params[1]), (old, record) => {
      const { name = old.name, scope = old.scope, networks = old.networks } = given;
      const expiry = given.expiresAt !== undefined && { expiresAt: given.expiresAt ?? undefined, own: undefined };
      checkUnreadable(old, given);
      const changed: StoredSecret = { ...old, name, scope, networks, ...expiry };
      const fields = differences(secretTexts(old), secretTexts(changed));
      const changes = [{ field: 'secret', to: old.id }, ...fields];
      const activity = fields.length === 0 ? undefined : entry(about, 'secret.change', id, changes);
      return { record: { secrets: record.secrets.map((one) => (one === old ? changed : one)) }, activity };
    });
    return describeSecret(secretIn(params[1])(key.record)!, key.used);
  },
);

export const revokeSecret = operation({ target: findKey }, async ({ deps, params, target: { id }, about }) => {
  await applyTo(deps, id, secretIn(params[1]), (old, record) => {
    const others = record.secrets.filter(({ id }) => id !== old.id);
    if (others.length === 0)
      throw new HttpError('conflict', 'This is the only secret of the key. Add another one first, or revoke the key.');
    const activity = entry(about, 'secret.revoke', id, differences(secretTexts(old), {}));
    return { record: { secrets: others }, activity, isUrgent: true };
  });
});

const LONGEST_GRACE_SECONDS = 90 * 86_400;

const Rotation = z.strictObject({
  graceSeconds: integer(0, LONGEST_GRACE_SECONDS, 'a whole number of seconds'),
  /** The secret to replace. Optional if the key has only one secret, or only one that never expires. */
  secretId: z.string({ error: must('be the id of a secret') }).optional(),
  scope: scope.optional(),
  networks: networks.optional(),
  /** null if the new secret does not expire. */
  expiresAt: futureTime.nullable().optional(),
  ...who,
});

/**
 * Replaces a secret: adds one with the same name, scope, networks and expiry, unless the call sets others, and lets the
 * old one expire after the grace period. A rotation is safe to repeat: if the response was lost, the next call replaces
 * the unclaimed secret.
 */
export const rotateKey = operation(
  { target: findKey, body: Rotation, answer: IssuedKey, creates: true },
  async ({ deps, target: { id }, given, about }) => {
    const { graceSeconds, secretId, scope, networks, expiresAt } = given;
    const { apiKey, credential } = createApiKey(id);
    const now = await timeBefore(deps, expiresAt);
    const toReplace = secretId === undefined ? (record: Secrets) => theOneToReplace(record, now) : secretIn(secretId);
    const rotated = await applyTo(deps, id, toReplace, (old, record) => {
      checkUnreadable(old, { scope, networks, expiresAt, name: old.name, digest: old.digest });
      const fresh = makeSecret(credential.digest, now, {
        name: old.unreadable?.includes('name') ? undefined : old.name,
        scope: scope ?? old.scope,
        networks: networks ?? old.networks,
        expiresAt: expiryOf(ownExpiry(old), expiresAt, now),
      });
      const endsAt = Math.min(old.expiresAt ?? Infinity, now + graceSeconds * SECOND);
      const others = (graceSeconds === 0 ? record.secrets : roomIn(record, now)).filter((one) => one !== old);
      const replaced: StoredSecret = { ...old, expiresAt: endsAt, own: { expiresAt: ownExpiry(old) } };
      const kept = graceSeconds === 0 || old.unreadable !== undefined ? [] : [replaced];
      const activity = entry(about, 'key.rotate', id, [
        { field: 'secret', from: old.id, to: fresh.id },
        { field: 'graceSeconds', to: String(graceSeconds) },
      ]);
      return { record: { secrets: [...others, ...kept, fresh] }, activity, isUrgent: true };
    });
    return { ...(await describe(deps, rotated, now)), key: apiKey };
  },
);

/**
 * Unreadable parts of a secret must be set again, because they may have been restrictions.
 * @throws {HttpError} 409
 */
function checkUnreadable({ id, unreadable = [] }: Secret, given: Partial<Record<UnreadablePart, unknown>>): void {
  const missing = unreadable.filter((part) => part !== 'createdAt' && given[part] === undefined);
  if (missing.length === 0) return;
  const what = missing.includes('digest') ? 'Revoke it.' : `Set ${missing.join(', ')} again, or revoke it.`;
  throw new HttpError('conflict', `The secret ${id} cannot be read; it may have been edited by hand. ${what}`);
}

/**
 * The expiry of the new secret: the given one, or by default that of the replaced secret.
 * @throws {HttpError} 409 if that time has passed
 */
function expiryOf(old: number | undefined, given: number | null | undefined, now: number): number | undefined {
  if (given !== undefined) return given ?? undefined;
  if (old === undefined || old > now) return old;
  throw new HttpError('conflict', 'This secret has expired. Set the expiry of the new one with expiresAt.');
}

/**
 * Chooses the secret without an expiry if there is exactly one. If there is none, chooses the newest secret, provided
 * that all have the same name, as the secrets of earlier rotations do.
 * @throws {HttpError} 409 if several are possible, {Unreadable} if the key has no secret
 */
function theOneToReplace({ secrets }: Secrets, now: number): Secret {
  const [only, ...others] = secrets.filter(({ expiresAt }) => expiresAt === undefined);
  if (only !== undefined && others.length === 0) return only;
  const live = secrets.filter(({ expiresAt = Infinity }) => expiresAt > now);
  const [newest] = (live.length > 0 ? live : secrets).toSorted((a, b) => b.createdAt - a.createdAt);
  if (newest === undefined) throw new Unreadable();
  if (only === undefined && live.every(({ name }) => name === newest.name)) return newest;
  const names = secrets.map((one) => `${one.id} (${one.name})`).join(', ');
  throw new HttpError('conflict', `This key has several secrets. Choose the one to replace with secretId: ${names}.`);
}

/**
 * Returns the secrets that have not expired, if there is room for one more.
 * @throws {HttpError} 409 if there is no room
 */
function roomIn({ secrets }: Secrets, now: number): Secret[] {
  const live = secrets.filter(({ expiresAt = Infinity }) => expiresAt > now);
  if (live.length < MAX_SECRETS) return live;
  throw new HttpError('conflict', `A key has at most ${MAX_SECRETS} secrets. Revoke an unused one first.`);
}

const secretIn =
  (id: string | undefined) =>
  ({ secrets }: Secrets): Secret | undefined =>
    secrets.find((one) => one.id === id);

/**
 * Changes one secret of a key.
 * @throws {HttpError} 404 if there is no such secret. The store must confirm its absence as it would a change, because
 *   the call may repeat a revocation whose response was lost
 */
async function applyTo(
  deps: AdminDependencies,
  id: string,
  find: ReturnType<typeof secretIn>,
  make: (old: StoredSecret, record: Secrets) => KeyChange & WithActivity,
): Promise<KeyEntry> {
  let isThere = false;
  const key = await apply(deps, id, (record) => {
    const old = find(record);
    isThere = old !== undefined;
    return old === undefined ? { isUrgent: true } : make(old, record);
  });
  if (!isThere) throw new HttpError('not_found', 'The key has no such secret.');
  return key;
}
