import { z } from 'zod';
import { Unavailable } from '../../../shared/domain-errors.ts';
import { HttpError } from '../../../shared/http/errors.ts';
import { listed } from '../../../shared/lists.ts';
import { must } from '../../../shared/schemas/must.ts';
import {
  FIELD_NAMES,
  fieldsOf,
  isPlanName,
  type PlanField,
  type PlanName,
  rangeOf,
  ruleOf,
  type StoredPlans,
  storedChanges,
  whenAbsent,
} from '../../limiter/plans.ts';
import { type MakeChanges, type PlanChange, planActivity, versionOf } from '../../stores/plans.ts';
import { type About, readChange } from './activity-of-call.ts';
import { planName } from './keys.ts';
import type { AdminCall, AdminDependencies, AdminOperation } from './operation.ts';
import { planNumber, refusingProto, who } from './values.ts';

type Value = number | string | null;

/** A field's value in a request: a number, or one of its options. null removes a number that may be absent. */
function valueRule(field: PlanField): z.ZodType<Value> {
  const { options } = ruleOf(field);
  if (options !== undefined) return z.enum(options, { error: must(`be ${rangeOf(field)}`) });
  const number = planNumber(field);
  return whenAbsent(field) === undefined ? number : number.nullable();
}

const fields = FIELD_NAMES.map((field) => [field, valueRule(field).optional()]);

const planFields = Object.fromEntries(fields) as Record<PlanField, z.ZodOptional<z.ZodType<Value>>>;

export const PlanChanges = z.strictObject({ ...planFields, ...who });

export const TableChanges = z.strictObject({
  plans: refusingProto(
    z.partialRecord(planName, z.strictObject(planFields), { error: must('be an object of plans') }),
    'is not a plan',
  ),
  ...who,
});

/** Shows the plan table in force on this gateway. Its ETag is the version: send it as If-Match with a change. */
export const showPlans: AdminOperation = async ({ deps }) => {
  await deps.planCache.refresh();
  if (deps.planCache.ifKnown === undefined) {
    const why = 'No complete plan table has been read, so no limits are known. See ctl doctor.';
    throw new Unavailable(why, why);
  }
  return { status: 200, body: deps.planCache.known, headers: etag(deps) };
};

/**
 * Changes fields of one plan. The answering process applies them at once, every other gateway within a second. With
 * If-Match (RFC 9110 §13.1.1), they only change if the table is still the one that the sender has seen.
 */
export const changePlan: AdminOperation = async (call) => {
  const { deps, params } = call;
  const plan = params[0] ?? '';
  if (!isPlanName(plan)) throw new HttpError('not_found', 'There is no such plan.');
  const { about, given } = await readChange(call, PlanChanges);
  const warning = await applyChange(deps, unlessMoved(call, storedFields(plan, given)), { about, action: 'set' });
  return { status: 200, body: deps.planCache.table[plan], headers: [...etag(deps), ...warning] };
};

/** Changes fields of several plans in one step, with one record in the history. If-Match works as for a single plan. */
export const changePlans: AdminOperation = async (call) => {
  const { deps } = call;
  const { about, given } = await readChange(call, TableChanges);
  const plans = Object.entries(given.plans) as [PlanName, Readonly<Record<string, Value | undefined>>][];
  const changes = Object.assign({}, ...plans.map(([plan, fields]) => storedFields(plan, fields))) as StoredPlans;
  if (plans.length === 0) throw nothingGiven();
  const warning = await applyChange(deps, unlessMoved(call, changes), { about, action: 'set' });
  return { status: 200, body: deps.planCache.table, headers: [...etag(deps), ...warning] };
};

function storedFields(plan: PlanName, fields: Readonly<Record<string, Value | undefined>>): StoredPlans {
  const known: readonly string[] = fieldsOf(plan);
  const alien = Object.keys(fields).filter((field) => !known.includes(field));
  if (alien.length > 0)
    throw new HttpError('invalid_request', `${plan} has no ${alien.join(' or ')} of its own: its keys carry them.`);
  const stored = Object.entries(fields).map(([field, value]) => [field, value?.toString()]);
  if (stored.length === 0) throw nothingGiven();
  return storedChanges(plan, Object.fromEntries(stored));
}

const nothingGiven = () => new HttpError('invalid_request', 'The body contains no changes.');

/**
 * The changes, if the table still has the version that the sender has seen.
 * @throws {HttpError} 409 if it has another
 */
const unlessMoved =
  ({ request }: AdminCall, changes: StoredPlans) =>
  (before: StoredPlans): StoredPlans => {
    const { 'if-match': seen = '*' } = request.headers;
    if (seen.trim() === '*' || listed(seen).includes(`"${versionOf(before)}"`)) return changes;
    throw new HttpError(
      'conflict',
      'The plans have been changed in the meantime. Read them again before you change them.',
    );
  };

/** Warning is obsolete (RFC 9111 §5.5), but there is no better header. */
const UNRECORDED = ['Warning', '199 - "The change is in force, but the history of changes could not be written."'];

/**
 * Changes the table, and records the change in the history and the audit log. If only a record fails, the change is
 * still in force and is answered as a success.
 * @param make returns the changes of the current table
 * @returns headers that name what could not be recorded
 */
export async function applyChange(
  deps: AdminDependencies,
  make: MakeChanges,
  { about, action }: { about: About; action: PlanChange['action'] },
): Promise<readonly string[]> {
  const made = await deps.plans.change(make, {
    author: about.actor,
    reason: about.reason,
    action,
    last: deps.planCache.lastGood,
    entriesFor: (changed) => planActivity(changed, about),
  });
  if (made === undefined) return [];
  const { after, change, unrecorded } = made;
  deps.planCache.take(after);
  if (unrecorded === undefined) return [];
  deps.logger.error({ reason: unrecorded, change }, 'a change of plans is in force, but its record is lost');
  return UNRECORDED;
}

export function etag({ planCache: { version } }: AdminDependencies): string[] {
  return version === undefined ? [] : ['ETag', `"${version}"`];
}
