import { z } from 'zod';
import { must } from '../../../shared/schemas/must.ts';
import { isKeyId } from '../../limiter/credential.ts';
import { type RecordedActivity, RecordId } from '../../stores/audit.ts';
import { redactSecrets } from '../access-token.ts';
import type { ActivityAnswer, ActivityView } from './answers.ts';
import type { AdminDependencies, AdminOperation } from './operation.ts';
import { cursor, msOf, readQuery, time, wholeNumber } from './query.ts';

const PAGE = 100;
const MOST = 1_000;

/** Members by which a reader can search. */
const SEARCHED = ['actor', 'action', 'target'] as const;

const word = z.string({ error: must('be given once') }).optional();

/** Names that are looked up for one answer. */
const MOST_NAMES = 200;

export const ActivityQuery = z.object({
  limit: wholeNumber(1, MOST).default(PAGE),
  after: cursor((given) => RecordId.safeParse(given).success),
  actor: word,
  action: word,
  target: word,
  from: time,
  to: time,
});

/**
 * Who did what, when and why, the newest first. `after` is the `next` of another answer. With `actor`, `action`,
 * `target`, `from` or `to` only matching entries; one call checks a few thousand, so a page can be short and still have
 * a `next`.
 */
export const listActivity: AdminOperation = async ({ deps, query }) => {
  const { limit, after, from, to, ...wanted } = readQuery(ActivityQuery, query);
  const isWanted = (one: RecordedActivity) =>
    SEARCHED.every((member) => wanted[member] === undefined || one[member] === wanted[member]);
  const { activity, next } = await deps.activity.list({ after, limit, isWanted, from: msOf(from), to: msOf(to) });
  const names = await namesOf(deps, activity);
  const views = activity.map((entry) => describe(entry, names.get(idIn(entry.target))));
  return { status: 200, body: { activity: views, next } satisfies ActivityAnswer };
};

function describe({ id, ...entry }: RecordedActivity, targetName: string | undefined): ActivityView {
  return { id, at: new Date(Number.parseInt(id, 10)).toISOString(), ...entry, targetName };
}

/** The key of a secret, `id/secret`, or of the target itself. */
const idIn = (target: string): string => target.split('/', 1)[0] as string;

/** The present names of keys and tokens; of those that are gone, the one that the log still has. */
async function namesOf(
  { keys, tokens }: AdminDependencies,
  activity: readonly RecordedActivity[],
): Promise<Map<string, string>> {
  const names = new Map<string, string>();
  for (const { target, changes } of activity.toReversed()) {
    const named = changes.find(({ field }) => field === 'name');
    const name = named?.to ?? named?.from;
    if (name !== undefined && !target.includes('/')) names.set(target, name);
  }
  const ids = [...new Set(activity.map(({ target }) => idIn(target)))].filter(isKeyId).slice(0, MOST_NAMES);
  // Without the store, the log is shown without them.
  const found = await Promise.all(ids.map((id) => keys.get(id).catch(() => undefined)));
  for (const entry of found) if (entry !== undefined) names.set(entry.id, entry.record.name);
  if (activity.some(({ action }) => action.startsWith('token.')))
    for (const [id, { name }] of await tokens.list().catch(() => [])) names.set(id, name);
  // Somebody may have written a secret into one.
  return new Map([...names].map(([id, name]) => [id, redactSecrets(name)]));
}
