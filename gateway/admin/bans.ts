import { z } from 'zod';
import { must } from '../../shared/must.ts';
import { readBody } from '../../shared/typed-body.ts';
import { SECOND } from '../access/verdict.ts';
import { apply } from './key-changes.ts';
import { describeKey } from './key-view.ts';
import { describe, findKey } from './keys.ts';
import { ADMIN_BODY_LIMIT_BYTES, type AdminOperation } from './parts.ts';
import { wholeNumber } from './query.ts';
import { who } from './text.ts';

const PAGE = 100;
/** Who is to stay out for longer is disabled, or revoked. */
const LONGEST_SECONDS = 366 * 86_400;
const LENGTH = must(`be a whole number of seconds from 1 to ${LONGEST_SECONDS}`);

const NewBan = z.strictObject({
  seconds: z.int({ error: LENGTH }).min(1, { error: LENGTH }).max(LONGEST_SECONDS, { error: LENGTH }),
  reason: who.reason,
});

/** Bans that run, those of the newest keys first. One call looks at a few thousand keys; `next` is where to go on. */
export const listBans: AdminOperation = async ({ parts, query }) => {
  const offset = wholeNumber(query, 'offset', { min: 0, max: 999_999_999, fallback: 0 });
  const now = await parts.keys.now();
  const { keys, next } = await parts.keys.list({ offset, limit: PAGE, bannedAfter: now });
  return { status: 200, body: { bans: keys.map((entry) => describeKey(entry, now)), next } };
};

/** Bans a key from now on, in place of any ban that runs. */
export const setBan: AdminOperation = async ({ parts, params, request, response }) => {
  const { id } = await findKey(parts, params[0]);
  const { seconds, reason } = await readBody(NewBan, request, response, ADMIN_BODY_LIMIT_BYTES);
  const until = (await parts.keys.now()) + seconds * SECOND;
  await apply(parts, id, () => ({ ban: { until, text: reason } }));
  return { status: 200, body: await describe(parts, await findKey(parts, id)) };
};

/** Lifts a ban, with the early requests that led to it. A gateway that remembers it lets go of it within a second. */
export const liftBan: AdminOperation = async ({ parts, params }) => {
  const { id } = await findKey(parts, params[0]);
  await apply(parts, id, () => ({ ban: 'lift' }));
  return { status: 200, body: await describe(parts, await findKey(parts, id)) };
};
