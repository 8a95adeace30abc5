import { z } from 'zod';
import { isKeyId, type Secret } from '../../limiter/credential.ts';
import type { KeyRecord } from '../../limiter/key-record.ts';
import { describeNetwork } from '../../limiter/networks.ts';
import { writeTags } from '../../limiter/tags.ts';
import { type Activity, type FieldChange, type RecordedActivity, RecordId } from '../../stores/audit.ts';
import { ACTIONS } from '../../stores/words.ts';
import { isSameName } from '../clients.ts';
import { redactSecrets } from '../tokens.ts';
import { ActivityAnswer, type ActivityView } from './answers.ts';
import { shownTime } from './key-view.ts';
import { type About, type AdminDependencies, operation } from './operation.ts';
import { choice, cursor, period, periodIn, wholeNumber, word } from './values.ts';

/** Builds and lists the entries of the audit log. */

/** Builds an entry. Secrets that were put into a name by mistake are redacted. */
export const entry = (
  about: About,
  action: Activity['action'],
  target: string,
  changes: readonly FieldChange[] = [],
): Activity => ({
  ...about,
  action,
  target,
  changes: changes.map(({ field, from, to }) => ({ field, from: redacted(from), to: redacted(to) })),
});

const redacted = (text: string | undefined): string | undefined => text && redactSecrets(text);

export const allOf = (values: Texts): FieldChange[] => differences({}, values);

type Texts = Readonly<Record<string, string | undefined>>;

export function differences(before: Texts, after: Texts): FieldChange[] {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  const changes = names.map((field) => ({ field, from: before[field], to: after[field] }));
  return changes.filter(({ from, to }) => from !== to);
}

export const keyTexts = (key: Omit<KeyRecord, 'secrets' | 'plan'> & { readonly plan: string }): Texts => ({
  name: key.name,
  plan: key.plan,
  minute: key.minute?.toString(),
  day: key.day?.toString(),
  expiresAt: shownTime(key.expiresAt),
  disabled: key.disabled ? 'true' : undefined,
  tags: writeTags(key.tags),
});

export const secretTexts = ({ id, name, scope, networks, expiresAt }: Secret): Texts => ({
  secret: id,
  name,
  scope: scope.join(', '),
  networks: networks.map(describeNetwork).join(', ') || undefined,
  expiresAt: shownTime(expiresAt),
});

const PAGE = 100;
const MOST = 1_000;

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
 * Lists who did what, when and why, newest entry first. `after` is the `next` of a previous response. With `actor`,
 * `action`, `target`, `from` or `to`, only matching entries are listed. One call checks a few thousand entries, so a
 * page can be short and still have a `next`.
 */
export const listActivity = operation(
  { query: ActivityQuery, answer: ActivityAnswer },
  async ({ deps, query: { limit, after, actor, action, target, ...given } }) => {
    const within = periodIn(given);
    const nameOf = targetNames(deps);
    const isWanted = async (one: RecordedActivity) =>
      (actor ?? one.actor) === one.actor &&
      (action ?? one.action) === one.action &&
      (target === undefined || (await isAbout(one, target, nameOf)));
    const { activity, next } = await deps.activity.list({ after, limit, isWanted, ...within });
    const logged = new Map(activity.toReversed().flatMap((one) => (nameIn(one) ? [[one.target, nameIn(one)]] : [])));
    const views = activity.map(async (one): Promise<ActivityView> => {
      const { id, at, ...about } = one;
      const targetName = redacted((await nameOf(one)) ?? logged.get(idIn(one)));
      return { id, at: new Date(at).toISOString(), ...about, targetName };
    });
    return { activity: await Promise.all(views), next };
  },
);

async function isAbout(entry: RecordedActivity, target: string, nameOf: NameOf): Promise<boolean> {
  const isSame = (text: string | undefined) => text !== undefined && isSameName(text, target);
  return isSame(entry.target) || isSame(idIn(entry)) || isSame(nameIn(entry)) || isSame(await nameOf(entry));
}

/** The id of the key if the target is a secret, such as `id/secret`; otherwise, the target itself. */
const idIn = ({ target }: RecordedActivity): string => target.split('/', 1)[0] as string;

/** The name of a key or a token that an entry records: the new one or, if there is none, the old one. */
function nameIn({ action, changes }: RecordedActivity): string | undefined {
  const named = /^(?:key|token)\./.test(action) ? changes.find(({ field }) => field === 'name') : undefined;
  return named?.to ?? named?.from;
}

type NameOf = (entry: RecordedActivity) => Promise<string | undefined>;

/**
 * Finds the current names of tokens, and the names of keys, including keys revoked in the last 36 days. Each name is
 * looked up once per response. While the store is unavailable, the log is shown without these names.
 */
function targetNames({ tokens, keys }: AdminDependencies): NameOf {
  const names = new Map<string, Promise<string | undefined>>();
  let all: ReturnType<typeof tokens.list> | undefined;
  async function lookUp(id: string, { action }: RecordedActivity): Promise<string | undefined> {
    if (action.startsWith('token.')) {
      all ??= tokens.list();
      return (await all).get(id)?.name;
    }
    return isKeyId(id) ? (await keys.everKnown(id))?.record.name || undefined : undefined;
  }
  return async (entry) => {
    const id = idIn(entry);
    const name = names.get(id) ?? lookUp(id, entry).catch(() => undefined);
    names.set(id, name);
    return await name;
  };
}
