import { z } from 'zod';
import { HttpError } from '../../shared/errors.ts';
import { must } from '../../shared/must.ts';
import { readBody } from '../../shared/typed-body.ts';
import { systemClock } from '../access/clock.ts';
import { createApiKey, isKeyId } from '../access/credential.ts';
import type { KeyEntry, KeyRecord } from '../access/keys.ts';
import { PLAN_NAMES } from '../access/plans.ts';
import { limitValue } from './limit-value.ts';
import { ADMIN_BODY_LIMIT_BYTES, type AdminOperation } from './parts.ts';

const MAX_NAME_CHARACTERS = 100;
const PAGE = 100;
/** Times are counted in microseconds, exactly; past this they would not be. */
const LATEST = '2255-01-01T00:00:00Z';

const NewKey = z
  .strictObject({
    name: z
      .string({ error: must('be a string') })
      .regex(/^\P{Cc}+$/u, 'must not be empty or have control characters')
      .max(MAX_NAME_CHARACTERS, `must have at most ${MAX_NAME_CHARACTERS} characters`),
    plan: z.enum(PLAN_NAMES, { error: must(`be one of ${PLAN_NAMES.join(', ')}`) }),
    minute: limitValue.optional(),
    day: limitValue.optional(),
    expiresAt: z.iso
      .datetime({ offset: true, error: must('be an RFC 3339 time') })
      .refine(isWithinReach, `must lie in the future, before ${LATEST}`)
      .optional(),
  })
  .refine(({ plan, minute, day }) => plan !== 'enterprise' || (minute !== undefined && day !== undefined), {
    path: ['minute'],
    error: 'and day are required: an enterprise key carries its own limits',
  });

function isWithinReach(time: string): boolean {
  const at = Date.parse(time);
  return at > Date.now() && at < Date.parse(LATEST);
}

/** Issues a key. The answer is the only time that the whole key is ever shown. */
export const createKey: AdminOperation = async ({ parts, request, response }) => {
  const { expiresAt, ...given } = await readBody(NewKey, request, response, ADMIN_BODY_LIMIT_BYTES);
  const { apiKey, credential } = createApiKey();
  const record: KeyRecord = {
    ...given,
    secret: credential.digest,
    createdAt: systemClock(),
    expiresAt: expiresAt === undefined ? undefined : Date.parse(expiresAt) * 1_000,
  };
  await parts.keys.create(credential.id, record);
  const created = await find(parts.keys, credential.id);
  return { status: 201, body: { ...describe(created), key: apiKey }, headers: ['Cache-Control', 'no-store'] };
};

/** The newest keys, or those before them with `offset`. */
export const listKeys: AdminOperation = async ({ parts, query }) => {
  const offset = Number(/^\d{1,9}$/.exec(query.get('offset') ?? '0')?.[0] ?? Number.NaN);
  if (Number.isNaN(offset)) throw new HttpError('invalid_parameter', 'offset must be a whole number.');
  const { total, keys } = await parts.keys.list(offset, PAGE);
  return { status: 200, body: { total, offset, keys: keys.map(describe) } };
};

export const getKey: AdminOperation = async ({ parts, params }) => {
  return { status: 200, body: describe(await find(parts.keys, params[0])) };
};

/** Revokes a key for good. The next decision already refuses it. */
export const revokeKey: AdminOperation = async ({ parts, params }) => {
  const { id } = await find(parts.keys, params[0]);
  await parts.keys.remove(id);
  return { status: 204, body: undefined };
};

async function find(keys: { get(id: string): Promise<KeyEntry | undefined> }, id = ''): Promise<KeyEntry> {
  const entry = isKeyId(id) ? await keys.get(id) : undefined;
  if (entry === undefined) throw new HttpError('not_found', 'There is no such key.');
  return entry;
}

function describe(entry: KeyEntry) {
  const { id, record, bannedUntil, admitted, refused } = entry;
  const isBanned = bannedUntil > systemClock();
  return {
    id,
    name: record.name,
    plan: record.plan,
    minute: record.minute,
    day: record.day,
    state: stateOf(entry),
    createdAt: toTime(record.createdAt),
    expiresAt: record.expiresAt === undefined ? undefined : toTime(record.expiresAt),
    bannedUntil: isBanned ? toTime(bannedUntil) : undefined,
    admitted,
    refused,
  };
}

/** In the order in which a decision asks. */
function stateOf({ isReadable, record: { disabled, expiresAt }, bannedUntil }: KeyEntry): string {
  const now = systemClock();
  if (!isReadable) return 'unreadable';
  if (disabled) return 'disabled';
  if (expiresAt !== undefined && expiresAt <= now) return 'expired';
  return bannedUntil > now ? 'banned' : 'active';
}

const toTime = (microseconds: number): string => new Date(microseconds / 1_000).toISOString();
