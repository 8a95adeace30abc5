import { writeTags } from '../../limiter/tags.ts';
import type { BucketView, FoundKey, KeySummary, KeyView, LoudKey, SecretView } from '../api/answers.ts';
import { banInWords, tooSmallInWords } from '../common-words.ts';
import { colour, type Style } from './session.ts';
import { harmless, table } from './table.ts';
import { timeText } from './time-text.ts';

/** Describes API keys in words. */

export const pathOf = (id: string): string => `/keys/${encodeURIComponent(id)}`;

const inWords = ({ id, name, expiresAt }: SecretView): string =>
  `${name} (${id})${expiresAt === undefined ? '' : ` until ${timeText(expiresAt)}`}`;

const STATES: Readonly<Record<string, Style>> = { active: 'green', banned: 'red', unreadable: 'red' };

const paintState = (text: string, column: string): string =>
  column === 'state' ? colour(STATES[text.trim()] ?? 'yellow', text) : text;

export function describeKeys(views: readonly KeyView[]): string {
  const head = ['id', 'name', 'plan', 'state', 'minute', 'day', 'admitted', 'refused', 'created', 'expires'];
  const hasTags = views.some(({ tags }) => tags !== undefined);
  const hasNotes = views.some((key) => noteOf(key) !== undefined);
  const rows = views.map((key) => [
    key.id,
    key.name,
    key.plan,
    key.state,
    key.minute,
    key.day,
    key.admitted,
    key.refused,
    timeText(key.createdAt),
    key.expiresAt && timeText(key.expiresAt),
    ...(hasTags ? [writeTags(key.tags)] : []),
    ...(hasNotes ? [noteOf(key)] : []),
  ]);
  return table([...head, ...(hasTags ? ['tags'] : []), ...(hasNotes ? ['note'] : [])], rows, paintState);
}

/** Notes that a key is banned, or that its limits are too small. */
function noteOf(key: KeyView): string | undefined {
  if (key.bannedUntil !== undefined) return `banned until ${banInWords(key, timeText(key.bannedUntil))}`;
  return key.tooSmall ? tooSmallInWords(key.waitSeconds) : undefined;
}

export function describeFound(views: readonly FoundKey[]): string {
  const rows = views.map(({ id, name, plan, state, foundBy }) => [id, name, plan, state, foundBy]);
  return table(['id', 'name', 'plan', 'state', 'found by'], rows, paintState);
}

export function describeTop(views: readonly LoudKey[]): string {
  const rows = views.map(({ id, name, plan, state, recent: { admitted, refused }, buckets }) => [
    id,
    name,
    plan,
    state,
    admitted + refused,
    refused,
    buckets && percent(buckets.day),
  ]);
  return table(['id', 'name', 'plan', 'state', 'requests', 'refused', 'of the day'], rows, paintState);
}

/** Describes keys with their last use. */
export function describeIdle(views: readonly KeyView[]): string {
  const rows = views.map(({ id, name, plan, state, admitted, refused, createdAt, lastUsedAt }) => [
    id,
    name,
    plan,
    state,
    admitted,
    refused,
    timeText(createdAt),
    lastUsedAt === undefined ? 'never' : timeText(lastUsedAt),
  ]);
  return table(['id', 'name', 'plan', 'state', 'admitted', 'refused', 'created', 'last used'], rows, paintState);
}

const percent = ({ used, limit }: BucketView): string => `${Math.floor((used / limit) * 100)} %`;

/** Describes keys with their use of the day limit. */
export function describeNear(views: readonly KeyView[]): string {
  const rows = views.map(({ id, name, plan, state, buckets }) => {
    const day = buckets?.day;
    return [id, name, plan, state, day?.limit, day?.used, day && percent(day), day?.fullAt && timeText(day.fullAt)];
  });
  return table(['id', 'name', 'plan', 'state', 'day', 'used', 'of limit', 'full again'], rows, paintState);
}

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
  const facts: [name: string, fact: string | undefined][] = [
    ['id', key.id],
    ['name', key.name],
    ['plan', key.plan],
    ['state', colour(STATES[key.state] ?? 'yellow', key.state)],
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
  const known = facts.filter((fact): fact is [string, string] => fact[1] !== undefined);
  const lines = known.map(([name, fact]) => `${name.padEnd(18)}${name === 'state' ? fact : harmless(fact)}`);
  return key.buckets === undefined ? lines.join('\n') : `${lines.join('\n')}\n\n${describeBuckets(key.buckets)}`;
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
