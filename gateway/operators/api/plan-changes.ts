import { z } from 'zod';
import { HttpError } from '../../../shared/http/errors.ts';
import { must } from '../../../shared/schemas/must.ts';
import { isUsable, type StoredPlans, storedValue } from '../../limiter/plans.ts';
import { type FieldChange, RecordId } from '../../stores/audit.ts';
import { HISTORY_LENGTH, type RecordedChange } from '../../stores/plans.ts';
import { readChange } from './activity-of-call.ts';
import type { HistoryAnswer } from './answers.ts';
import type { AdminOperation } from './operation.ts';
import { applyChange, etag } from './plans.ts';
import { readQuery, wholeNumber } from './query.ts';
import { who } from './values.ts';

const PAGE = 20;

export const HistoryQuery = z.object({ limit: wholeNumber(1, HISTORY_LENGTH).default(PAGE) });

/** Lists the changes of limits: who, when and why, the newest first. */
export const showHistory: AdminOperation = async ({ deps, query }) => {
  const { limit } = readQuery(HistoryQuery, query);
  return { status: 200, body: { history: (await deps.plans.history(limit)).map(describe) } satisfies HistoryAnswer };
};

const CHANGE = must('be the id of a change from the history of plans');
const isRecordId = (text: string) => RecordId.safeParse(text).success;

export const Rollback = z.strictObject({
  /** The last change that the sender has seen. */
  id: z.string({ error: CHANGE }).refine(isRecordId, { error: CHANGE }).optional(),
  ...who,
});

/** Reverts the last change; reverting twice restores it. Refused if one of its fields has changed since. */
export const rollBack: AdminOperation = async (call) => {
  const { deps } = call;
  const { about, given } = await readChange(call, Rollback);
  const [last] = await deps.plans.history(1);
  if (last === undefined) throw new HttpError('not_found', 'There is no change to roll back.');
  if (given.id !== undefined && given.id !== last.id)
    throw new HttpError('conflict', 'That is no longer the last change.');
  const takenBack = (seen: StoredPlans) => {
    if (last.changes.some(({ field, to }) => storedValue(seen, field) !== to))
      throw new HttpError(
        'conflict',
        'A field of the last change has been changed since. Set the limits that you want.',
      );
    return before(last.changes);
  };
  const warning = await applyChange(deps, takenBack, {
    about: { ...about, reason: about.reason || `rolls back ${last.id}` },
    action: 'rollback',
  });
  return { status: 200, body: deps.planCache.table, headers: [...etag(deps), ...warning] };
};

/** @throws {HttpError} 409 if no earlier value can be restored */
function before(changes: readonly FieldChange[]): StoredPlans {
  const fields = changes.map(({ field, from }) => {
    if (!isUsable(field, from))
      throw new HttpError('conflict', `${field} had no valid value before. Set the one that you want.`);
    return [field, from];
  });
  return Object.fromEntries(fields);
}

function describe({ id, version: _version, ...change }: RecordedChange) {
  return { id, at: new Date(Number.parseInt(id, 10)).toISOString(), ...change };
}
