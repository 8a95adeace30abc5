import { z } from 'zod';
import { HttpError } from '../../../shared/http/errors.ts';
import { must } from '../../../shared/schemas/must.ts';
import type { KeyChange, KeyEntry, KeyRecord } from '../../limiter/key-record.ts';
import type { WithActivity } from '../../stores/audit.ts';
import { hasLimits, keyName } from '../../stores/key-hash.ts';
import { differences, entry, keyTexts, readChange } from './activity-of-call.ts';
import { describe, findKey, planName, toMicroseconds } from './keys.ts';
import type { AdminDependencies, AdminOperation } from './operation.ts';
import { limitValue, tags, time, who } from './values.ts';

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
