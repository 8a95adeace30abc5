import { HttpError } from '../../../shared/http/errors.ts';
import { type RecordedActivity, RecordId } from '../../stores/audit.ts';
import type { ActivityAnswer, ActivityView } from './answers.ts';
import type { AdminOperation } from './operation.ts';
import { wholeNumber } from './query.ts';

const PAGE = 100;
const MOST = 1_000;

/** Members by which a reader can search. */
const SEARCHED = ['actor', 'action', 'target'] as const;

/**
 * Who did what, when and why, the newest first. `after` is the `next` of another answer. With `actor`, `action` or
 * `target` only matching entries; one call checks a few thousand, so a page can be short and still have a `next`.
 */
export const listActivity: AdminOperation = async ({ deps, query }) => {
  const limit = wholeNumber(query, 'limit', { min: 1, max: MOST, fallback: PAGE });
  const after = query.get('after') ?? undefined;
  if (after !== undefined && !RecordId.safeParse(after).success)
    throw new HttpError('invalid_parameter', 'after must be what `next` of an answer was.');
  const wanted = SEARCHED.flatMap((member) => {
    const text = query.get(member);
    return text === null ? [] : [[member, text] as const];
  });
  const isWanted = (one: RecordedActivity) => wanted.every(([member, text]) => one[member] === text);
  const { activity, next } = await deps.activity.list({ after, limit, isWanted });
  return { status: 200, body: { activity: activity.map(describe), next } satisfies ActivityAnswer };
};

function describe({ id, ...entry }: RecordedActivity): ActivityView {
  return { id, at: new Date(Number.parseInt(id, 10)).toISOString(), ...entry };
}
