import { z } from 'zod';
import { must } from '../../../shared/schemas/must.ts';
import { isKeyId, type Secret } from '../../limiter/credential.ts';
import type { KeyRecord } from '../../limiter/key-record.ts';
import { describeNetwork } from '../../limiter/networks.ts';
import { writeTags } from '../../limiter/tags.ts';
import { type Activity, type FieldChange, type RecordedActivity, RecordId } from '../../stores/audit.ts';
import { ACTIONS } from '../../stores/words.ts';
import { redactSecrets } from '../tokens.ts';
import { ActivityAnswer, type ActivityView } from './answers.ts';
import { toTime } from './key-view.ts';
import { type About, type AdminDependencies, operation } from './operation.ts';
import { checkOrder, choice, cursor, msOf, period, wholeNumber } from './values.ts';

/** Builds the entries of the audit log, and lists them. */

/** Builds an entry. Secrets that were put into a name by mistake are redacted. */
export const entry = (
  about: About,
  action: Activity['action'],
  target: string,
  changes: readonly FieldChange[] = [],
): Activity => ({ ...about, action, target, changes: changes.map(withoutSecrets) });

export const allOf = (values: Texts): FieldChange[] => differences({}, values);

type Texts = Readonly<Record<string, string | undefined>>;

export function differences(before: Texts, after: Texts): FieldChange[] {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  const changes = names.map((field) => ({ field, from: before[field], to: after[field] }));
  return changes.filter(({ from, to }) => from !== to);
}

export const keyTexts = ({
  name,
  plan,
  minute,
  day,
  expiresAt,
  disabled,
  tags,
}: Omit<KeyRecord, 'secrets' | 'plan'> & { readonly plan: string }): Texts => ({
  name,
  plan,
  minute: minute?.toString(),
  day: day?.toString(),
  expiresAt: timeText(expiresAt),
  disabled: disabled ? 'true' : undefined,
  tags: writeTags(tags),
});

export const secretTexts = ({ id, name, scope, networks, expiresAt }: Secret): Texts => ({
  secret: id,
  name,
  scope: scope.join(', '),
  networks: networks.map(describeNetwork).join(', ') || undefined,
  expiresAt: timeText(expiresAt),
});

const timeText = (time: number | undefined): string | undefined => (time === undefined ? undefined : toTime(time));

const withoutSecrets = ({ field, from, to }: FieldChange): FieldChange => ({
  field,
  ...(from !== undefined && { from: redactSecrets(from) }),
  ...(to !== undefined && { to: redactSecrets(to) }),
});

const PAGE = 100;
const MOST = 1_000;

const word = z.string({ error: must('be given once') }).optional();

const ActivityQuery = z.object({
  limit: wholeNumber(1, MOST).default(PAGE),
  after: cursor((given) => RecordId.safeParse(given).success),
  actor: word,
  action: choice(ACTIONS).optional(),
  /** The id or name of a key or token, or the name of a plan, ignoring case. */
  target: word,
  ...period,
});

/**
 * Lists who did what, when and why, the newest entry first. `after` is the `next` of a previous answer. With `actor`,
 * `action`, `target`, `from` or `to`, only matching entries are listed. One call checks a few thousand entries, so a
 * page can be short and still have a `next`.
 */
export const listActivity = operation(
  { query: ActivityQuery, answer: ActivityAnswer },
  async ({ deps, query: { limit, after, actor, action, target, ...given } }) => {
    const [from, to] = [msOf(given.from), msOf(given.to)];
    checkOrder(from, to);
    const nameOf = targetNames(deps);
    const isWanted = async (one: RecordedActivity) =>
      (actor ?? one.actor) === one.actor &&
      (action ?? one.action) === one.action &&
      (target === undefined || (await isAbout(one, target, nameOf)));
    const { activity, next } = await deps.activity.list({ after, limit, isWanted, from, to });
    const logged = new Map(activity.toReversed().flatMap((one) => (nameIn(one) ? [[one.target, nameIn(one)]] : [])));
    const views = activity.map(async (one) => describe(one, (await nameOf(one)) ?? logged.get(idIn(one))));
    return { activity: await Promise.all(views), next };
  },
);

function describe({ id, ...entry }: RecordedActivity, name: string | undefined): ActivityView {
  // A name may contain a secret by mistake.
  const targetName = name && redactSecrets(name);
  return { id, at: new Date(Number.parseInt(id, 10)).toISOString(), ...entry, targetName };
}

async function isAbout(entry: RecordedActivity, target: string, nameOf: NameOf): Promise<boolean> {
  const isSame = (text: string | undefined) => text?.toLowerCase() === target.toLowerCase();
  return isSame(entry.target) || isSame(idIn(entry)) || isSame(nameIn(entry)) || isSame(await nameOf(entry));
}

/** The id of the key if the target is a secret, such as `id/secret`; otherwise, the target itself. */
const idIn = ({ target }: RecordedActivity): string => target.split('/', 1)[0] as string;

/** The name that a key or a token has after a change, or had before it, according to the entry. */
function nameIn({ action, changes }: RecordedActivity): string | undefined {
  const named = /^(?:key|token)\./.test(action) ? changes.find(({ field }) => field === 'name') : undefined;
  return named?.to ?? named?.from;
}

type NameOf = (entry: RecordedActivity) => Promise<string | undefined>;

/**
 * Finds the current names of tokens, and the names of keys, including keys revoked in the last 36 days. Each name is
 * looked up once per answer. Without the store, the log is shown without these names.
 */
function targetNames({ tokens, keys }: AdminDependencies): NameOf {
  const ofKeys = new Map<string, Promise<string | undefined>>();
  let all: ReturnType<typeof tokens.list> | undefined;
  const ofToken = async (id: string) => {
    all ??= tokens.list();
    return (await all).get(id)?.name;
  };
  const ofKey = async (id: string) => {
    if (!isKeyId(id)) return undefined;
    const name = ofKeys.get(id) ?? keys.everKnown(id).then((key) => key?.record.name || undefined);
    ofKeys.set(id, name);
    return await name;
  };
  return async (entry) =>
    await (entry.action.startsWith('token.') ? ofToken(entry.target) : ofKey(idIn(entry))).catch(() => undefined);
}
