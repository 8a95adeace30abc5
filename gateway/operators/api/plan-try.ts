import { z } from 'zod';
import { readBody } from '../../../shared/http/body.ts';
import { HttpError } from '../../../shared/http/errors.ts';
import { MINUTE } from '../../limiter/bucket.ts';
import { leastRefused } from '../../limiter/estimates.ts';
import { countsOf, type KeyEntry, type KeyRecord, MINUTES_KEPT } from '../../limiter/key-record.ts';
import { fieldsOf, isPlanName } from '../../limiter/plans.ts';
import { writeCursor } from '../../stores/storage.ts';
import type { TrialAnswer } from './answers.ts';
import { ADMIN_BODY_LIMIT_BYTES, type AdminOperation } from './operation.ts';
import { after, cursorIn, readQuery } from './query.ts';
import { limitValue } from './values.ts';

/** One call checks this many keys of any plan, few enough for Redis. The answer contains the place to continue. */
const KEYS_PER_CALL = 100;

export const TrialQuery = z.object({ after });

export const Trial = z.strictObject({ minute: limitValue.optional(), day: limitValue.optional() });

/**
 * Reports what other limits of a plan would have refused in the last hour, by key, before anyone sets them. Only keys
 * with such requests are listed; `keys` and `requests` count all keys of the plan that were used, and their requests.
 * To continue, send `next` back as `after`.
 */
export const tryPlan: AdminOperation = async ({ deps, params, query, request, response }) => {
  const plan = params[0] ?? '';
  if (!isPlanName(plan)) throw new HttpError('not_found', 'There is no such plan.');
  if (!fieldsOf(plan).includes('minute'))
    throw new HttpError('invalid_request', `${plan} has no limits of its own: its keys carry them.`);
  const given = await readBody(Trial, request, response, ADMIN_BODY_LIMIT_BYTES);
  if (Object.keys(given).length === 0) throw new HttpError('invalid_request', 'The body contains no limits to try.');
  const { minute, day } = deps.planCache.table[plan];
  const limits = { minute: given.minute ?? minute, day: given.day ?? day };
  const now = Math.floor((await deps.keys.now()) / MINUTE);
  const { keys, next } = await deps.keys.walk({
    after: cursorIn(readQuery(TrialQuery, query).after),
    limit: KEYS_PER_CALL,
  });
  const tried = keys
    .filter(({ record, isRevoked }) => record.plan === plan && !isRevoked)
    .map((entry) => tryOn(entry, limits, now))
    .filter(({ requests }) => requests > 0);
  const requests = tried.reduce((total, one) => total + one.requests, 0);
  const affected = tried.filter(({ wouldRefuse }) => wouldRefuse > 0);
  return {
    status: 200,
    body: { keys: tried.length, requests, affected, next: next && writeCursor(next) } satisfies TrialAnswer,
  };
};

/** A key's own limits override those of its plan, including the tried ones. */
function tryOn(entry: KeyEntry, plan: Pick<KeyRecord, 'minute' | 'day'>, now: number) {
  const { id, record } = entry;
  const counts = countsOf(entry.usage.minutes, entry).filter(({ at }) => at > now - MINUTES_KEPT && at <= now);
  const { minute = plan.minute, day = plan.day } = record;
  const requests = counts.reduce((total, { admitted, refused }) => total + admitted + refused, 0);
  const refused = counts.reduce((total, count) => total + count.refused, 0);
  const wouldRefuse = minute === undefined || day === undefined ? 0 : leastRefused(counts, { minute, day });
  return { id, name: record.name, requests, refused, wouldRefuse };
}
