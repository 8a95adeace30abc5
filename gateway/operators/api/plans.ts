import { z } from 'zod';
import { Unavailable } from '../../../shared/domain-errors.ts';
import { HttpError } from '../../../shared/http/errors.ts';
import { listed } from '../../../shared/lists.ts';
import { must } from '../../../shared/schemas/must.ts';
import { MINUTE } from '../../limiter/bucket.ts';
import { leastRefused } from '../../limiter/estimates.ts';
import { countsOf, type KeyEntry, type KeyRecord, MINUTES_KEPT } from '../../limiter/key-record.ts';
import {
  FIELD_NAMES,
  fieldsOf,
  isPlanName,
  isUsable,
  type PlanField,
  type PlanName,
  rangeOf,
  ruleOf,
  type StoredPlans,
  storedChanges,
  storedValue,
  whenAbsent,
} from '../../limiter/plans.ts';
import { type FieldChange, RecordId } from '../../stores/audit.ts';
import { type MakeChanges, type PlanChange, planActivity, type RecordedChange, versionOf } from '../../stores/plans.ts';
import { LOG_LENGTHS, writeCursor } from '../../stores/storage.ts';
import { HistoryAnswer, Plans, PlanView, TrialAnswer } from './answers.ts';
import { runningBans, sumsOf } from './key-view.ts';
import { planName } from './keys.ts';
import { type About, type AdminCall, type AdminDependencies, operation, refuseEmpty, who } from './operation.ts';
import { after, cursorIn, limitValue, planNumber, refusingProto, wholeNumber } from './values.ts';

type Value = number | string | null;

/** A field's value in a request: a number, or one of its options. null removes an optional number. */
function valueRule(field: PlanField): z.ZodType<Value> {
  const { options } = ruleOf(field);
  if (options !== undefined) return z.enum(options, { error: must(`be ${rangeOf(field)}`) });
  const number = planNumber(field);
  return whenAbsent(field) === undefined ? number : number.nullable();
}

const fields = FIELD_NAMES.map((field) => [field, valueRule(field).optional()]);

const planFields = Object.fromEntries(fields) as Record<PlanField, z.ZodOptional<z.ZodType<Value>>>;

const PlanChanges = z.strictObject({ ...planFields, ...who });

const TableChanges = z.strictObject({
  plans: refusingProto(
    z.partialRecord(planName, z.strictObject(planFields), { error: must('be an object of plans') }),
    'is not a plan',
  ),
  ...who,
});

/** Shows the plan table in force on this gateway. Its ETag is the version: send it as If-Match with a change. */
export const showPlans = operation({ answer: Plans, isVersioned: true }, async ({ deps }) => {
  await deps.planCache.refresh();
  const { ifKnown } = deps.planCache;
  if (ifKnown === undefined) {
    const why = 'No complete plan table has been read, so no limits are known. See ctl doctor.';
    throw new Unavailable(why, why);
  }
  return ifKnown;
});

/**
 * Changes fields of one plan. This process applies the change at once, every other gateway within a second. With
 * If-Match (RFC 9110 §13.1.1), the change is made only if the table still has the version that the sender has seen.
 */
export const changePlan = operation(
  { target: findPlan, body: PlanChanges, answer: PlanView, isVersioned: true },
  async (call) => {
    const { deps, request, target: plan, given } = call;
    await applyChange(call, unlessMoved(request, storedFields(plan, given)));
    return deps.planCache.table[plan];
  },
);

/** Finds the plan named in the path of a call. @throws {HttpError} 404 */
function findPlan({ params: [plan = ''] }: AdminCall): PlanName {
  if (isPlanName(plan)) return plan;
  throw new HttpError('not_found', 'There is no such plan.');
}

/** Changes fields of several plans in one step, with one record in the history. If-Match works as for a single plan. */
export const changePlans = operation({ body: TableChanges, answer: Plans, isVersioned: true }, async (call) => {
  const { deps, request, given } = call;
  refuseEmpty(given.plans);
  const plans = Object.entries(given.plans) as [PlanName, Fields][];
  const changes: StoredPlans = Object.assign({}, ...plans.map(([plan, fields]) => storedFields(plan, fields)));
  await applyChange(call, unlessMoved(request, changes));
  return deps.planCache.table;
});

type Fields = Readonly<Record<string, Value | undefined>>;

function storedFields(plan: PlanName, fields: Fields): StoredPlans {
  refuseEmpty(fields);
  const known: readonly string[] = fieldsOf(plan);
  const alien = Object.keys(fields).filter((field) => !known.includes(field));
  if (alien.length > 0)
    throw new HttpError('invalid_request', `${plan} has no ${alien.join(' or ')} limit: its keys have their own.`);
  const stored = Object.entries(fields).map(([field, value]) => [field, value?.toString()]);
  return storedChanges(plan, Object.fromEntries(stored));
}

/**
 * Returns the changes if the table still has the version that the sender has seen, or if it already has the wanted
 * values: the call may then repeat one whose response was lost (RFC 9110 §13.1.1).
 * @throws {HttpError} 409 otherwise
 */
const unlessMoved =
  ({ headers }: AdminCall['request'], changes: StoredPlans) =>
  (before: StoredPlans): StoredPlans => {
    const { 'if-match': seen = '*' } = headers;
    if (seen.trim() === '*' || listed(seen).includes(`"${versionOf(before)}"`)) return changes;
    if (Object.keys(changes).every((field) => before[field] === changes[field])) return changes;
    throw new HttpError(
      'conflict',
      'The plans have been changed in the meantime. Read them again before you change them.',
    );
  };

/** Warning is obsolete (RFC 9111 §5.5), but there is no better header. */
const UNRECORDED = ['Warning', '199 - "The change is in force, but the plan history could not be written."'];

/**
 * Changes the table, and records the change in the history and the audit log. If the change cannot be recorded, it is
 * in force anyway, and the call succeeds with a header that says so.
 * @param make returns the changes to the current table
 */
export async function applyChange(
  { deps, about, headers }: { deps: AdminDependencies; about: About; headers: string[] },
  make: MakeChanges,
  action: PlanChange['action'] = 'set',
): Promise<void> {
  // A store that has just been reached for the first time may not have a table yet.
  await deps.planCache.begin();
  const made = await deps.plans.change(make, {
    author: about.actor,
    reason: about.reason,
    action,
    last: deps.planCache.lastGood,
    entriesFor: (changed) => planActivity(changed, about),
  });
  if (made === undefined) return;
  const { after, change, unrecorded } = made;
  deps.planCache.take(after);
  if (unrecorded === undefined) return;
  deps.logger.error({ reason: unrecorded, change }, 'a plan change is in force, but the plan history lacks it');
  headers.push(...UNRECORDED);
}

const PAGE = 20;

const HistoryQuery = z.object({ limit: wholeNumber(1, LOG_LENGTHS['plan history']).default(PAGE) });

export const showHistory = operation(
  { query: HistoryQuery, answer: HistoryAnswer },
  async ({ deps, query: { limit } }) => ({ history: (await deps.plans.history(limit)).map(describe) }),
);

const CHANGE = must('be the id of a change from the plan history');
const isRecordId = (text: string) => RecordId.safeParse(text).success;

const Rollback = z.strictObject({
  /** The id of the last change that the sender has seen. */
  id: z.string({ error: CHANGE }).refine(isRecordId, { error: CHANGE }).optional(),
  ...who,
});

/**
 * Reverts the last change. The restoration of a missing table is not a change. If the last change is itself a rollback,
 * this call may be a retry after a lost response. Without an id, or with the id of the change that was rolled back, it
 * therefore succeeds and changes nothing. To revert a rollback, send the rollback's own id. The call fails if a field
 * of the last change has since been changed again.
 */
export const rollBack = operation(
  { body: Rollback, answer: Plans, isVersioned: true, errors: [404] },
  async ({ deps, given, about, headers }) => {
    const attempt = async () => {
      const recent = await deps.plans.history(PAGE);
      const [last, previous] = recent.filter(({ action }) => action !== 'restore');
      if (last === undefined) throw new HttpError('not_found', 'There is no change to roll back.');
      const isDone =
        last.action === 'rollback' &&
        (given.id === undefined || (given.id === previous?.id && reverts(last, previous)));
      if (!isDone && given.id !== undefined && given.id !== last.id)
        throw new HttpError('conflict', 'This is no longer the last change.');
      const takenBack = (seen: StoredPlans) => {
        if (last.changes.some(({ field, to }) => storedValue(seen, field) !== to))
          throw new HttpError(
            'conflict',
            'A field of the last change has since been changed again. Set the limits that you want.',
          );
        return isDone ? Object.fromEntries(last.changes.map(({ field, to }) => [field, to])) : before(last.changes);
      };
      const withReason = { ...about, reason: about.reason || `rolls back ${last.id}` };
      await applyChange({ deps, about: withReason, headers }, takenBack, 'rollback');
      if (isDone)
        headers.push('Warning', `199 - "The last change is itself a rollback. To revert it, roll back ${last.id}"`);
      return deps.planCache.table;
    };
    try {
      return await attempt();
    } catch (fault) {
      // A repetition of this call may have come first.
      if (given.id === undefined || !(fault instanceof HttpError && fault.code === 'conflict')) throw fault;
      return await attempt();
    }
  },
);

/** Whether a rollback restored what a change had replaced. */
const reverts = (rollback: RecordedChange, { changes }: RecordedChange): boolean =>
  changes.every(({ field, from }) => rollback.changes.some((back) => back.field === field && back.to === from));

/** @throws {HttpError} 409 if no earlier value can be restored */
function before(changes: readonly FieldChange[]): StoredPlans {
  const fields = changes.map(({ field, from }) => {
    if (!isUsable(field, from))
      throw new HttpError('conflict', `${field} had no valid value before. Set the value that you want.`);
    return [field, from];
  });
  return Object.fromEntries(fields);
}

function describe({ id, at, version: _version, ...change }: RecordedChange) {
  return { id, at: new Date(at).toISOString(), ...change };
}

/** One call checks this many keys, of any plan, so that Redis is not blocked. The next call continues at `next`. */
const KEYS_PER_CALL = 100;

const Trial = z.strictObject({ minute: limitValue.optional(), day: limitValue.optional() });

/**
 * Tries limits of a plan before they are set: reports, by key, how many requests of the last hour they would have
 * refused. Only keys with such requests are listed; `keys` and `requests` count all keys of the plan that were used,
 * and their requests. To continue, send `next` back as `after`.
 */
export const tryPlan = operation(
  { needs: 'viewer', query: z.object({ after }), target: findLimits, body: Trial, answer: TrialAnswer },
  async ({ deps, query: { after }, target: plan, given }) => {
    if (Object.keys(given).length === 0) throw new HttpError('invalid_request', 'The body contains no limits to try.');
    const { table } = deps.planCache;
    const { minute, day } = table[plan];
    const limits = { minute: given.minute ?? minute, day: given.day ?? day };
    const now = await deps.keys.now();
    const { keys, next } = await deps.keys.walk({ after: cursorIn(after), limit: KEYS_PER_CALL });
    const tried = keys
      .filter(({ record, isRevoked }) => record.plan === plan && !isRevoked)
      .map((entry) => tryOn(entry, limits, Math.floor(now / MINUTE)))
      .filter(({ requests }) => requests > 0);
    const requests = tried.reduce((total, one) => total + one.requests, 0);
    const refused = new Map(tried.filter(({ wouldRefuse }) => wouldRefuse > 0).map((one) => [one.id, one]));
    const shown = keys.filter(({ id }) => refused.has(id));
    const bans = await runningBans(deps, shown, now);
    const affected = [...refused.values()].map((one) => ({ ...one, ban: bans.get(one.id) }));
    return { keys: tried.length, requests, affected, next: next && writeCursor(next) };
  },
);

function findLimits(call: AdminCall): PlanName {
  const plan = findPlan(call);
  if (fieldsOf(plan).includes('minute')) return plan;
  throw new HttpError('invalid_request', `${plan} has no limits: its keys have their own.`);
}

/** A key's own limits override those of its plan, even those on trial. */
function tryOn(entry: KeyEntry, plan: Pick<KeyRecord, 'minute' | 'day'>, now: number) {
  const { id, record } = entry;
  const counts = countsOf(entry.usage.minutes, entry).filter(({ at }) => at > now - MINUTES_KEPT && at <= now);
  const { minute = plan.minute, day = plan.day } = record;
  const { admitted, refused } = sumsOf(counts);
  const wouldRefuse = minute === undefined || day === undefined ? 0 : leastRefused(counts, { minute, day });
  return { id, name: record.name, requests: admitted + refused, refused, wouldRefuse };
}
