import { z } from 'zod';
import { HttpError } from '../../shared/errors.ts';
import { must } from '../../shared/must.ts';
import { readBody } from '../../shared/typed-body.ts';
import { createApiKey } from '../access/credential.ts';
import type { KeyChange, KeyRecord } from '../access/keys.ts';
import { SECOND } from '../access/verdict.ts';
import { toTime } from './key-view.ts';
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
  /** Of a key whose last rotation is in its grace: which of its two secrets ends now. */
  ends: z.enum(['new', 'old'], { error: must('be new or old') }).optional(),
});

/**
 * Gives a key a new secret. The one before is good for the grace time, on the same buckets. A key has two secrets at most: to
 * rotate again within the grace, say which of them ends. Nobody else can know: the newer one may never have reached anyone,
 * because its answer was lost, or may be the one in use. Without grace both end.
 */
export const rotateKey: AdminOperation = async ({ parts, params, request, response }) => {
  const entry = await findKey(parts, params[0]);
  const rotation = await readBody(Rotation, request, response, ADMIN_BODY_LIMIT_BYTES);
  const { apiKey, credential } = createApiKey(entry.id);
  const now = await parts.keys.now();
  const hasGrace = rotation.graceSeconds > 0;
  const oldSecretUntil = hasGrace ? now + rotation.graceSeconds * SECOND : undefined;
  await apply(parts, entry.id, (record) => ({
    record: {
      secret: credential.digest,
      oldSecret: hasGrace ? survivor(record, rotation.ends, now) : undefined,
      oldSecretUntil,
    },
  }));
  return answerWithKey(parts, { ...entry, record: { ...entry.record, oldSecretUntil } }, now, apiKey);
};

/**
 * The secret that works on beside the new one.
 * @throws {HttpError} 409 where a secret would end that nobody named
 */
function survivor(
  { secret, oldSecret, oldSecretUntil = 0 }: KeyRecord,
  ends: z.infer<typeof Rotation>['ends'],
  now: number,
): string {
  if (oldSecret === undefined || oldSecretUntil <= now) {
    if (ends !== undefined) throw new HttpError('conflict', 'This key has one secret only: leave `ends` out.');
    return secret;
  }
  if (ends !== undefined) return ends === 'new' ? oldSecret : secret;
  throw new HttpError(
    'conflict',
    `This key has two secrets: one of its last rotation, and the one before until ${toTime(oldSecretUntil)}. ` +
      'Say which ends now: `ends` is new, where that one has reached nobody, or old.',
  );
}

/** @throws {HttpError} 404 for a key that was revoked meanwhile, 409 for one that cannot be read */
export async function apply({ keys }: AdminParts, id: string, make: (record: KeyRecord) => KeyChange): Promise<void> {
  if (!(await keys.change(id, make))) throw new HttpError('not_found', 'There is no such key.');
}
