import { z } from 'zod';
import { redactApiKeys } from '../limiter/credential.ts';
import { FieldChange, type PlanChange, RecordId } from './plan-history.ts';

/** The activity: one trail of what operators did to keys, secrets, bans, plans and tokens. It never holds a secret. */

export const ACTIONS = [
  'key.create',
  'key.change',
  'key.rotate',
  'key.revoke',
  'key.restore',
  'key.reindex',
  'backup.make',
  'secret.create',
  'secret.change',
  'secret.revoke',
  'ban.set',
  'ban.lift',
  'plan.change',
  'token.create',
  'token.revoke',
] as const;

export type Action = (typeof ACTIONS)[number];

/** 'by hand': found in the table of plans or in a key, not made through a gateway. 'gateway': by itself. */
export const VIAS = ['console', 'cli', 'api', 'by hand', 'gateway'] as const;

export const Activity = z.object({
  /** A person or a program, as far as known; else 'unknown'. */
  actor: z.string(),
  action: z.enum(ACTIONS),
  /** The id of the key or the token, or the name of the plan. `*` for a restore. */
  target: z.string(),
  reason: z.string(),
  via: z.enum(VIAS),
  changes: z.array(FieldChange),
  requestId: z.string().optional(),
  /** The id of the named token that was used. */
  token: z.string().optional(),
});

export type Activity = Readonly<z.infer<typeof Activity>>;

export const RecordedActivity = Activity.extend({ id: RecordId });

export type RecordedActivity = Readonly<z.infer<typeof RecordedActivity>>;

/** Entries that are kept by default. */
export const ACTIVITY_LENGTH = 10_000;

/** Entries that are searched for a repetition. */
export const LOOKED_BACK = 50;

export interface ActivityQuery {
  /** The id behind which the answer begins; undefined for the newest. */
  readonly after: string | undefined;
  readonly limit: number;
  isWanted(entry: RecordedActivity): boolean;
}

export interface ActivityPage {
  /** Newest first. */
  readonly activity: readonly RecordedActivity[];
  /** Where to continue; undefined at the end. */
  readonly next: string | undefined;
}

/** Who changes the table of plans and why; and the entries of the activity that tell it. */
export interface AboutChange extends Pick<PlanChange, 'author' | 'reason' | 'action'> {
  entriesFor(changes: readonly FieldChange[]): readonly Activity[];
}

/** A change of plans: an entry for each plan. */
export function planActivity(
  changes: readonly FieldChange[],
  about: Omit<Activity, 'action' | 'target' | 'changes'>,
): Activity[] {
  const plans = [...new Set(changes.map(({ field }) => planOf(field)))];
  return plans.map((plan) => ({
    ...about,
    action: 'plan.change',
    target: plan,
    changes: changes.filter(({ field }) => planOf(field) === plan).map(shown),
  }));
}

/** Longest text of a plan's value in an entry: people can write anything into the table. */
const MOST_CHARACTERS = 100;

const shown = ({ field, from, to }: FieldChange): FieldChange => ({
  field,
  ...(from !== undefined && { from: redactApiKeys(from.slice(0, MOST_CHARACTERS)) }),
  ...(to !== undefined && { to: redactApiKeys(to.slice(0, MOST_CHARACTERS)) }),
});

const planOf = (field: string): string => field.split('.', 1)[0] ?? '';

/** The result of a change of a key, with the entry that tells it. */
export interface WithActivity {
  readonly activity?: Activity | undefined;
}
