import { writeTags } from '../../limiter/tags.ts';
import type { BucketView, FoundKey, KeySummary, KeyView, LoudKey, SecretView } from '../api/answers.ts';
import { banInWords, type RunningBan, tooSmallInWords } from '../common-words.ts';
import { colour, type Style } from './session.ts';
import { type Cell, type Facts, linesOf, table } from './table.ts';
import { timeText } from './time-text.ts';

/** Describes API keys in words. */

export const pathOf = (id: string): string => `/keys/${encodeURIComponent(id)}`;

const inWords = ({ id, name, expiresAt }: SecretView): string =>
  `${name} (${id})${expiresAt === undefined ? '' : ` until ${timeText(expiresAt)}`}`;

const STATES: Readonly<Record<string, Style>> = { active: 'green', banned: 'red', unreadable: 'red' };

const paintState = (text: string, column: string): string =>
  column === 'state' ? colour(STATES[text.trim()] ?? 'yellow', text) : text;

type Listed = KeyView & Partial<Pick<LoudKey, 'recent'> & Pick<FoundKey, 'foundBy'>>;
type Column = readonly [title: string, cell: (key: Listed) => Cell];

const COMMON: readonly Column[] = [
  ['id', ({ id }) => id],
  ['name', ({ name }) => name],
  ['plan', ({ plan }) => plan],
  ['state', ({ state }) => state],
];
const COUNTS: readonly Column[] = [
  ['admitted', ({ admitted }) => admitted],
  ['refused', ({ refused }) => refused],
  ['created', ({ createdAt }) => timeText(createdAt)],
];
const NOTE: Column = ['?note', noteOf];

const tableOf =
  (...columns: readonly Column[]) =>
  (keys: readonly Listed[]): string => {
    const shown = [...COMMON, ...columns, NOTE];
    const rows = keys.map((key) => shown.map(([, cell]) => cell(key)));
    return table(
      shown.map(([title]) => title),
      rows,
      paintState,
    );
  };

export const describeKeys = tableOf(
  ['minute', ({ minute }) => minute],
  ['day', ({ day }) => day],
  ...COUNTS,
  ['expires', ({ expiresAt }) => expiresAt && timeText(expiresAt)],
  ['?tags', ({ tags }) => writeTags(tags)],
);

export const describeFound = tableOf(['found by', ({ foundBy }) => foundBy]);

export const describeTop = tableOf(
  ['requests', ({ recent }) => recent && recent.admitted + recent.refused],
  ['refused', ({ recent }) => recent?.refused],
  ['of the day', ({ buckets }) => buckets && percent(buckets.day)],
);

/** Describes keys with their last use. */
export const describeIdle = tableOf(...COUNTS, [
  'last used',
  ({ lastUsedAt }) => (lastUsedAt === undefined ? 'never' : timeText(lastUsedAt)),
]);

/** Describes keys with their use of the day limit. */
export const describeNear = tableOf(
  ['day', ({ buckets }) => buckets?.day.limit],
  ['used', ({ buckets }) => buckets?.day.used],
  ['of limit', ({ buckets }) => buckets && percent(buckets.day)],
  ['full again', ({ buckets }) => buckets?.day.fullAt && timeText(buckets.day.fullAt)],
);

/** Notes that a key is banned, or that its limits are too small. */
function noteOf(key: Listed): string | undefined {
  return banNote(key) ?? (key.tooSmall ? tooSmallInWords(key.waitSeconds) : undefined);
}

/** Notes that a key is banned. */
export const banNote = (ban: RunningBan | undefined): string | undefined =>
  ban?.bannedUntil && `banned until ${banInWords(ban, timeText(ban.bannedUntil))}`;

const percent = ({ used, limit }: BucketView): string => `${Math.floor((used / limit) * 100)} %`;

export function describeBans(views: readonly KeySummary[]): string {
  const rows = views.map((key) => [
    key.id,
    key.name,
    key.plan,
    timeText(key.bannedUntil ?? ''),
    key.bans,
    key.banRefused,
    key.banReason ?? '-',
  ]);
  return table(['id', 'name', 'plan', 'until', 'bans', 'refused since', 'reason'], rows);
}

/** Describes one key, with its buckets at the time of the call. */
export function describeKey(key: KeyView): string {
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
    ['own limits', ownLimits(key)],
    ['tags', writeTags(key.tags)],
    ['admitted, refused', `${key.admitted}, ${key.refused}`],
    ['shadow refusals', key.shadowed?.toString()],
  ];
  const lines = linesOf(facts, paintState);
  return key.buckets === undefined ? lines : `${lines}\n\n${describeBuckets(key.buckets)}`;
}

function ownLimits({ minute, day }: KeyView): string | undefined {
  if (minute === undefined && day === undefined) return undefined;
  return `minute ${minute ?? 'as the plan'}, day ${day ?? 'as the plan'}`;
}

function describeBuckets(buckets: Readonly<Record<string, BucketView>>): string {
  const rows = Object.entries(buckets).map(([name, { limit, used, remaining, fullAt }]) => [
    name,
    limit,
    used,
    remaining,
    fullAt === undefined ? 'now' : timeText(fullAt),
  ]);
  return table(['bucket', 'limit', 'used', 'left', 'full again'], rows);
}
