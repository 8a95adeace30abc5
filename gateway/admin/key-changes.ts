import { z } from 'zod';
import { HttpError } from '../../shared/errors.ts';
import { must } from '../../shared/must.ts';
import { readBody } from '../../shared/typed-body.ts';
import { createApiKey } from '../access/credential.ts';
import type { KeyChange, KeyRecord } from '../access/keys.ts';
import { SECOND } from '../access/verdict.ts';
import { answerWithKey, describe, findKey, hasLimits, keyName, planName, time, toMicroseconds } from './keys.ts';
import { limitValue } from './limit-value.ts';
import { ADMIN_BODY_LIMIT_BYTES, type AdminOperation, type AdminParts } from './parts.ts';

/** Changes of a key. None of them touches its buckets: what was used stays used, and a lower limit cuts what is left. */

/** null takes an own limit or an end away. An end in the past ends the key at once. */
const Changes = z.strictObject({
  name: keyName.optional(),
  plan: planName.optional(),
  minute: limitValue.nullable().optional(),
  day: limitValue.nullable().optional(),
  expiresAt: time
    .refine((text) => toMicroseconds(text) > 0 && text < '2255', 'must lie between 1970 and 2255')
    .nullable()
    .optional(),
  disabled: z.boolean({ error: must('be true or false') }).optional(),
});

/** Changes what an operator may change of a key. */
export const changeKey: AdminOperation = async ({ parts, params, request, response }) => {
  const { id } = await findKey(parts, params[0]);
  const given = await readBody(Changes, request, response, ADMIN_BODY_LIMIT_BYTES);
  if (Object.keys(given).length === 0) throw new HttpError('invalid_request', 'Nothing to change was given.');
  await apply(parts, id, (record) => {
    const changes = toRecord(given);
    if (!hasLimits({ ...record, ...changes }))
      throw new HttpError('invalid_request', 'minute and day are required: an enterprise key carries its own limits.');
    return { record: changes };
  });
  return { status: 200, body: await describe(parts, await findKey(parts, id)) };
};

function toRecord({ expiresAt, ...given }: z.infer<typeof Changes>): Partial<KeyRecord> {
  const changes = expiresAt === undefined ? given : { ...given, expiresAt: expiresAt && toMicroseconds(expiresAt) };
  return Object.fromEntries(Object.entries(changes).map(([member, value]) => [member, value ?? undefined]));
}

const LONGEST_GRACE_SECONDS = 90 * 86_400;
const GRACE = must(`be a whole number of seconds from 0 to ${LONGEST_GRACE_SECONDS}`);

const Rotation = z.strictObject({
  graceSeconds: z.int({ error: GRACE }).min(0, { error: GRACE }).max(LONGEST_GRACE_SECONDS, { error: GRACE }),
});

/**
 * Gives a key a new secret. The one before is good for the grace time, on the same buckets; one that was still in grace
 * from an earlier rotation ends now.
 */
export const rotateKey: AdminOperation = async ({ parts, params, request, response }) => {
  const { id } = await findKey(parts, params[0]);
  const { graceSeconds } = await readBody(Rotation, request, response, ADMIN_BODY_LIMIT_BYTES);
  const { apiKey, credential } = createApiKey(id);
  const until = (await parts.keys.now()) + graceSeconds * SECOND;
  await apply(parts, id, ({ secret }) => ({
    record: {
      secret: credential.digest,
      oldSecret: graceSeconds === 0 ? undefined : secret,
      oldSecretUntil: graceSeconds === 0 ? undefined : until,
    },
  }));
  return await answerWithKey(parts, id, apiKey);
};

/** @throws {HttpError} 404 for a key that was revoked meanwhile, 409 for one that cannot be read */
export async function apply({ keys }: AdminParts, id: string, make: (record: KeyRecord) => KeyChange): Promise<void> {
  if (!(await keys.change(id, make))) throw new HttpError('not_found', 'There is no such key.');
}
