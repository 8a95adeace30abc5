import { z } from 'zod';
import { HttpError } from '../../shared/errors.ts';
import { readBody } from '../../shared/typed-body.ts';
import { fieldsOf, isPlanName, PLAN_FIELDS } from '../access/plans.ts';
import { limitValue } from './limit-value.ts';
import { ADMIN_BODY_LIMIT_BYTES, type AdminOperation } from './parts.ts';

const Changes = z.strictObject(Object.fromEntries(PLAN_FIELDS.map((field) => [field, limitValue.optional()])));

/** The plan table in force on this gateway. */
export const showPlans: AdminOperation = async ({ parts }) => {
  await parts.planBook.refresh();
  return { status: 200, body: parts.planBook.table };
};

/** Changes fields of one plan. Every gateway takes them within a second, this one at once. */
export const changePlan: AdminOperation = async ({ parts, params, request, response }) => {
  const plan = params[0] ?? '';
  if (!isPlanName(plan)) throw new HttpError('not_found', 'There is no such plan.');
  const changes = await readBody(Changes, request, response, ADMIN_BODY_LIMIT_BYTES);
  const alien = Object.keys(changes).filter((field) => !(fieldsOf(plan) as string[]).includes(field));
  if (alien.length > 0)
    throw new HttpError('invalid_request', `${plan} has no ${alien.join(' or ')} of its own: its keys carry them.`);
  const stored = Object.entries(changes).map(([field, value]) => [`${plan}.${field}`, String(value)]);
  if (stored.length === 0) throw new HttpError('invalid_request', 'Nothing to change was given.');
  await parts.plans.write(Object.fromEntries(stored));
  await parts.planBook.refresh();
  return { status: 200, body: parts.planBook.table[plan] };
};
