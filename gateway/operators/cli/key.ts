import { isKeyId } from '../../limiter/credential.ts';
import { writeTags } from '../../limiter/tags.ts';
import type { BanView, BucketView, FoundKey, KeysAnswer, KeyView, LoudKey, SecretView } from '../api/answers.ts';
import { banInWords, tooSmallInWords } from '../clients.ts';
import { AdminError } from './admin-client.ts';
import { type Found, findNamed, found, type Kind } from './named.ts';
import type { Session } from './session.ts';
import { type Column, colour, type Facts, LAST_USED, linesOf, type Style, table, timeText } from './text.ts';

/** Finds the key that a command is about, and describes keys. */

export const pathTo = async (session: Session, given: string): Promise<string> =>
  pathOf((await findKey(session, given)).id);

const KIND: Kind<KeyView> = {
  noun: 'key',
  isId: isKeyId,
  columns: [
    'plan',
    ['state', (key) => banNote(key) ?? key.state],
    ['created', ({ createdAt }) => timeText(createdAt, process.stderr)],
    ['last used', ({ lastUsedAt }) => (lastUsedAt === undefined ? 'never' : timeText(lastUsedAt, process.stderr))],
  ],
};

/** Finds a key, as `findNamed` does. If the whole key is given, only its id is sent. */
export async function findKey(session: Session, given: string, isForGood = false): Promise<Found> {
  const text = session.withoutSecret(given);
  const known = isKeyId(text) ? await withId(session, text) : undefined;
  if (known !== undefined) return known;
  const similar: KeyView[] = [];
  for await (const { keys } of session.parts<KeysAnswer>('/keys', { name: text })) similar.push(...keys);
  return await findNamed(session, KIND, text, similar, isForGood);
}

async function withId(session: Session, id: string): Promise<Found | undefined> {
  try {
    return found(await session.get<KeyView>(pathOf(id)));
  } catch (fault) {
    if (fault instanceof AdminError && fault.status === 404) return undefined;
    // While the store is unavailable, the text counts as an id, because nothing shows that it is a name.
    if (fault instanceof AdminError && fault.status === 503) return { id, title: id };
    throw fault;
  }
}

export const pathOf = (id: string): string => `/keys/${encodeURIComponent(id)}`;

const inWords = ({ id, name, expiresAt }: SecretView): string =>
  `${name} (${id})${expiresAt === undefined ? '' : ` until ${timeText(expiresAt)}`}`;

const STATES: Readonly<Record<string, Style>> = { active: 'green', banned: 'red', unreadable: 'red' };

const paintState = (text: string, column: string): string =>
  column === 'state' ? colour(STATES[text.trim()] ?? 'yellow', text) : text;

type Listed = KeyView & Partial<Pick<LoudKey, 'recent'> & Pick<FoundKey, 'foundBy'>>;

const COUNTS: readonly Column<Listed>[] = ['admitted', 'refused', ['created', ({ createdAt }) => timeText(createdAt)]];

const tableOf =
  (...columns: readonly Column<Listed>[]) =>
  (keys: readonly Listed[]): string => {
    const noteOf = (key: Listed) => banNote(key) ?? (key.tooSmall ? tooSmallInWords(key.waitSeconds) : undefined);
    return table(keys, ['id', 'name', 'plan', 'state', ...columns, ['?note', noteOf]], paintState);
  };

export const describeKeys = tableOf(
  'minute',
  'day',
  ...COUNTS,
  ['expires', ({ expiresAt }) => expiresAt && timeText(expiresAt)],
  ['?tags', ({ tags }) => writeTags(tags)],
);

export const describeFound = tableOf(['found by', ({ foundBy }) => foundBy]);

export const describeTop = tableOf(
  ['requests', ({ recent }) => recent && recent.admitted + recent.refused],
  ['refused', ({ recent }) => recent?.refused],
  ['day used', ({ buckets }) => buckets && percent(buckets.day)],
);

export const describeIdle = tableOf(...COUNTS, LAST_USED);

export const describeNear = tableOf(
  ['day', ({ buckets }) => buckets?.day.limit],
  ['used', ({ buckets }) => buckets?.day.used],
  ['of limit', ({ buckets }) => buckets && percent(buckets.day)],
  ['full again', ({ buckets }) => buckets?.day.fullAt && timeText(buckets.day.fullAt)],
);

export const banNote = (ban: BanView | undefined): string | undefined =>
  ban?.bannedUntil && `banned until ${banInWords(ban, timeText(ban.bannedUntil))}`;

const percent = ({ used, limit }: BucketView): string => `${Math.floor((used / limit) * 100)} %`;

export function describeBans(views: readonly KeyView[]): string {
  const until = (key: KeyView) => banInWords(key, timeText(key.bannedUntil ?? ''));
  return table(views, ['id', 'name', 'plan', ['banned until', until], ['reason', ({ banReason = '-' }) => banReason]]);
}

export function describeKey(key: KeyView): string {
  const { minute, day, buckets } = key;
  const hasOwnLimits = minute !== undefined || day !== undefined;
  const facts: Facts = [
    ['id', key.id],
    ['name', key.name],
    ['plan', key.plan],
    ['state', key.state],
    ['created', timeText(key.createdAt)],
    ['expires', key.expiresAt && timeText(key.expiresAt)],
    ['last used', key.lastUsedAt ? timeText(key.lastUsedAt) : 'never'],
    ['secrets', key.secrets?.map(inWords).join('; ')],
    ['banned until', key.bannedUntil && banInWords(key, timeText(key.bannedUntil))],
    ['ban reason', key.banReason],
    ['line', key.tooSmall ? tooSmallInWords(key.waitSeconds) : undefined],
    ['own limits', hasOwnLimits ? `minute ${minute ?? 'from plan'}, day ${day ?? 'from plan'}` : undefined],
    ['tags', writeTags(key.tags)],
    ['admitted', String(key.admitted)],
    ['refused by limits', String(key.refused)],
    ['shadow refusals', key.shadowed?.toString()],
  ];
  const lines = linesOf(facts, paintState);
  if (buckets === undefined) return lines;
  const rows = Object.entries(buckets).map(([bucket, state]) => ({ bucket, ...state }));
  const full: Column<BucketView> = ['full again', ({ fullAt }) => (fullAt === undefined ? 'now' : timeText(fullAt))];
  return `${lines}\n\n${table(rows, ['bucket', 'limit', 'used', ['left', ({ remaining }) => remaining], full])}`;
}
