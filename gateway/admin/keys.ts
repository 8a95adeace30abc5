import { z } from 'zod';
import { HttpError } from '../../shared/errors.ts';
import { must } from '../../shared/must.ts';
import { readBody } from '../../shared/typed-body.ts';
import { createApiKey, isKeyId } from '../access/credential.ts';
import { FRESH, type KeyEntry, type KeyRecord } from '../access/keys.ts';
import { PLAN_NAMES } from '../access/plans.ts';
import { describeKeyInFull } from './key-view.ts';
import { limitValue } from './limit-value.ts';
import { ADMIN_BODY_LIMIT_BYTES, type AdminOperation, type AdminParts } from './parts.ts';
import { wholeNumber } from './query.ts';
import { line } from './text.ts';

const PAGE = 100;
/** Times are counted in microseconds, exactly; past this they would not be. */
const LATEST = '2255-01-01T00:00:00Z';

export const keyName = line(100);
export const planName = z.enum(PLAN_NAMES, { error: must(`be one of ${PLAN_NAMES.join(', ')}`) });
export const time = z.iso.datetime({ offset: true, error: must('be an RFC 3339 time') });

const NewKey = z
  .strictObject({
    name: keyName,
    plan: planName,
    minute: limitValue.optional(),
    day: limitValue.optional(),
    expiresAt: time.refine(isWithinReach, `must lie in the future, before ${LATEST}`).optional(),
  })
  .refine(hasLimits, { path: ['minute'], error: 'and day are required: an enterprise key carries its own limits' });

function isWithinReach(text: string): boolean {
  const at = Date.parse(text);
  return at > Date.now() && at < Date.parse(LATEST);
}

/** An enterprise key carries its own limits. */
export function hasLimits({ plan, minute, day }: Pick<Partial<KeyRecord>, 'plan' | 'minute' | 'day'>): boolean {
  return plan !== 'enterprise' || (minute !== undefined && day !== undefined);
}

/** Issues a key. The answer is the only time that the whole key is ever shown. */
export const createKey: AdminOperation = async ({ parts, request, response }) => {
  const { expiresAt, ...given } = await readBody(NewKey, request, response, ADMIN_BODY_LIMIT_BYTES);
  const { apiKey, credential } = createApiKey();
  const record: KeyRecord = {
    ...given,
    secret: credential.digest,
    createdAt: await parts.keys.now(),
    expiresAt: expiresAt === undefined ? undefined : toMicroseconds(expiresAt),
  };
  await parts.keys.create(credential.id, record);
  const entry = { id: credential.id, isReadable: true, record, ...FRESH };
  return answerWithKey(parts, entry, record.createdAt, apiKey);
};

/**
 * The answer that shows a whole key; nobody on the way may keep it. It asks for nothing more: what fails here would lose the
 * only sight of a key that is good already.
 */
export function answerWithKey({ planCache }: AdminParts, entry: KeyEntry, now: number, apiKey: string) {
  const body = { ...describeKeyInFull(entry, planCache.table, now), key: apiKey };
  return { status: 201, body, headers: ['Cache-Control', 'no-store'] };
}

export const toMicroseconds = (text: string): number => Date.parse(text) * 1_000;

/** The newest keys, those further back with `offset`, those whose name holds `name`; each with its buckets as they stand now. */
export const listKeys: AdminOperation = async ({ parts, query }) => {
  const offset = wholeNumber(query, 'offset', { min: 0, max: 999_999_999, fallback: 0 });
  const limit = wholeNumber(query, 'limit', { min: 1, max: PAGE, fallback: PAGE });
  const { total, keys, next } = await parts.keys.list({ offset, limit, name: query.get('name') ?? undefined });
  const now = await parts.keys.now();
  const shown = keys.map((entry) => describeKeyInFull(entry, parts.planCache.table, now));
  return { status: 200, body: { total, offset, keys: shown, next } };
};

/** A key with its buckets as they stand now. */
export const getKey: AdminOperation = async ({ parts, params }) => {
  return { status: 200, body: await describe(parts, await findKey(parts, params[0])) };
};

/** Revokes a key for good. The next decision already refuses it. */
export const revokeKey: AdminOperation = async ({ parts, params }) => {
  const { id } = await findKey(parts, params[0]);
  await parts.keys.remove(id);
  return { status: 204, body: undefined };
};

export async function describe(parts: AdminParts, entry: KeyEntry) {
  return describeKeyInFull(entry, parts.planCache.table, await parts.keys.now());
}

/** @throws {HttpError} 404 for an id that no key has */
export async function findKey({ keys }: AdminParts, id = ''): Promise<KeyEntry> {
  const entry = isKeyId(id) ? await keys.get(id) : undefined;
  if (entry === undefined) throw new HttpError('not_found', 'There is no such key.');
  return entry;
}
