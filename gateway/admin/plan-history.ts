import { z } from 'zod';
import { HttpError } from '../../shared/errors.ts';
import { readBody } from '../../shared/typed-body.ts';
import { type FieldChange, HISTORY_LENGTH, type RecordedChange, RecordId } from '../access/plan-history.ts';
import { isUsable, type StoredPlans, storedValue } from '../access/plans.ts';
import { ADMIN_BODY_LIMIT_BYTES, type AdminOperation } from './parts.ts';
import { applyChange, etag } from './plans.ts';
import { wholeNumber } from './query.ts';
import { who } from './text.ts';

const PAGE = 20;

/** Who changed which limits, when and why, the newest first. */
export const showHistory: AdminOperation = async ({ parts, query }) => {
  const limit = wholeNumber(query, 'limit', { min: 1, max: HISTORY_LENGTH, fallback: PAGE });
  return { status: 200, body: { history: (await parts.plans.history(limit)).map(describe) } };
};

const Rollback = z.strictObject({
  /** The change that the sender has seen as the last one. */
  id: RecordId.optional(),
  ...who,
});

/** Takes the last change back; done twice, it is there again. Only while what it changed still is what it made of it. */
export const rollBack: AdminOperation = async ({ parts, request, response }) => {
  const { id, author, reason } = await readBody(Rollback, request, response, ADMIN_BODY_LIMIT_BYTES);
  const [last] = await parts.plans.history(1);
  if (last === undefined) throw new HttpError('not_found', 'There is no change to take back.');
  if (id !== undefined && id !== last.id) throw new HttpError('conflict', 'That is not the last change any more.');
  const seen = await parts.plans.read();
  if (last.changes.some(({ field, to }) => storedValue(seen, field) !== to))
    throw new HttpError('conflict', 'What the last change made has been changed since; set the limits that you want.');
  const warning = await applyChange(parts, before(last.changes), seen, {
    author,
    reason: reason || `takes back ${last.id}`,
    action: 'rollback',
  });
  return { status: 200, body: parts.planCache.table, headers: [...etag(parts), ...warning] };
};

/** @throws {HttpError} 409 where there was nothing that could be in force again */
function before(changes: readonly FieldChange[]): StoredPlans {
  const fields = changes.map(({ field, from = '' }) => {
    if (!isUsable(field, from))
      throw new HttpError('conflict', `${field} was no limit before; set the one that you want.`);
    return [field, from];
  });
  return Object.fromEntries(fields);
}

function describe({ id, version: _version, ...change }: RecordedChange) {
  return { id, at: new Date(Number.parseInt(id, 10)).toISOString(), ...change };
}
