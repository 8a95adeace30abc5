import { z } from 'zod';
import { HttpError } from '../../shared/errors.ts';
import { listed } from '../../shared/lists.ts';
import { must } from '../../shared/must.ts';
import { readBody } from '../../shared/typed-body.ts';
import { changesBetween, type PlanChange, versionOf } from '../access/plan-history.ts';
import { fieldsOf, isPlanName, PLAN_FIELDS, PLAN_MODES, type PlanName, type StoredPlans } from '../access/plans.ts';
import { limitValue } from './limit-value.ts';
import { ADMIN_BODY_LIMIT_BYTES, type AdminOperation, type AdminParts } from './parts.ts';
import { who } from './text.ts';

const Changes = z.strictObject({
  ...(Object.fromEntries(PLAN_FIELDS.map((field) => [field, limitValue.optional()])) as Record<
    (typeof PLAN_FIELDS)[number],
    z.ZodOptional<typeof limitValue>
  >),
  mode: z.enum(PLAN_MODES, { error: must(`be one of ${PLAN_MODES.join(', ')}`) }).optional(),
  ...who,
});

/** The plan table in force on this gateway. Its ETag is the version to send along with a change, as If-Match. */
export const showPlans: AdminOperation = async ({ parts }) => {
  await parts.planCache.refresh();
  return { status: 200, body: parts.planCache.table, headers: etag(parts) };
};

/**
 * Changes fields of one plan. Every gateway takes them within a second, the process that answers at once. With If-Match
 * (RFC 9110 §13.1.1) only while the table still is the one that the sender has seen.
 */
export const changePlan: AdminOperation = async ({ parts, params, request, response }) => {
  const plan = params[0] ?? '';
  if (!isPlanName(plan)) throw new HttpError('not_found', 'There is no such plan.');
  const { author, reason, ...fields } = await readBody(Changes, request, response, ADMIN_BODY_LIMIT_BYTES);
  const changes = storedFields(plan, fields);
  const seen = await tableSeen(parts, request.headers['if-match']);
  const warning = await applyChange(parts, changes, seen, { author, reason, action: 'set' });
  return { status: 200, body: parts.planCache.table[plan], headers: [...etag(parts), ...warning] };
};

function storedFields(plan: PlanName, fields: Readonly<Record<string, number | string | undefined>>): StoredPlans {
  const known: readonly string[] = [...fieldsOf(plan), 'mode'];
  const alien = Object.keys(fields).filter((field) => !known.includes(field));
  if (alien.length > 0)
    throw new HttpError('invalid_request', `${plan} has no ${alien.join(' or ')} of its own: its keys carry them.`);
  const stored = Object.entries(fields).map(([field, value]) => [`${plan}.${field}`, String(value)]);
  if (stored.length === 0) throw new HttpError('invalid_request', 'Nothing to change was given.');
  return Object.fromEntries(stored);
}

/** The table with the version that the sender has seen; undefined when it does not say which. */
async function tableSeen({ plans }: AdminParts, ifMatch: string | undefined): Promise<StoredPlans | undefined> {
  if (ifMatch === undefined || ifMatch.trim() === '*') return undefined;
  const stored = await plans.read();
  const versions = listed(ifMatch);
  if (!versions.includes(`"${versionOf(stored)}"`)) throw moved();
  return stored;
}

/** RFC 9111 §5.5 knows no better header for it. */
const UNRECORDED = ['Warning', '199 - "The change is in force, but the history of changes could not be written."'];

/**
 * Changes the table and tells the history. A change is in force without its record too, and is answered as done.
 * @param seen the table must still be this one; any will do when undefined
 * @returns headers that tell what could not be recorded
 * @throws {HttpError} 409 when it is not
 */
export async function applyChange(
  parts: AdminParts,
  changes: StoredPlans,
  seen: StoredPlans | undefined,
  about: Pick<PlanChange, 'author' | 'reason' | 'action'>,
): Promise<readonly string[]> {
  const before = await parts.plans.change(changes, seen);
  if (before === undefined) throw moved();
  const after = { ...before, ...changes };
  parts.planCache.take(after);
  const made = changesBetween(before, after);
  return made.length === 0 ? [] : await record(parts, { ...about, changes: made, version: versionOf(after) });
}

async function record({ plans, logger }: AdminParts, change: PlanChange): Promise<readonly string[]> {
  try {
    await plans.record(change);
    return [];
  } catch (cause) {
    logger.error({ err: cause, change }, 'a change of plans is in force, but its record is lost');
    return UNRECORDED;
  }
}

const moved = () => new HttpError('conflict', 'The plans have been changed meanwhile. Look again, and decide anew.');

export function etag({ planCache: { version } }: AdminParts): string[] {
  return version === undefined ? [] : ['ETag', `"${version}"`];
}
