import type {
  ActivityAnswer,
  ActivityView,
  BanView,
  KeyView,
  TrialAnswer,
  UsageAnswer,
  UsageOfKey,
  UsageSum,
} from './api/answers.ts';
import { KEY_ORDERS, type KeyOrder } from './api/key-order.ts';

/**
 * Code shared by the console and the command line: it merges paged responses, and describes values in words. Browsers
 * load it too.
 */

/** The command line's User-Agent, which distinguishes it from other programs in the audit log. */
export const CTL = 'ctl';

type Ask<T> = (path: string) => Promise<T>;

/** Adds the author and the reason of a change to its path, for the audit log. A named token already has a name. */
export function withWho(path: string, author: string | undefined, reason: string | undefined): string {
  const said = new URLSearchParams({ ...(author !== undefined && { author }), ...(reason && { reason }) });
  return said.size === 0 ? path : `${path}${path.includes('?') ? '&' : '?'}${said}`;
}

/** One part of a paged response. `next` is undefined in the last one. */
export interface Part {
  readonly next?: string | undefined;
}

/** The parameter with which a list continues. That of a list of keys can also be a number of keys to skip. */
export const placeIn = (list: string): string => (/^\/?(keys|bans)\b/.test(list) ? 'offset' : 'after');

/** Iterates over the parts of a response. @param asked the query of the first call */
export async function* partsOf<T extends Part>(
  ask: Ask<T>,
  path: string,
  asked: Readonly<Record<string, string>> = {},
): AsyncGenerator<T> {
  const query = new URLSearchParams(asked);
  for (;;) {
    const part = await ask(query.size === 0 ? path : `${path}?${query}`);
    yield part;
    if (part.next === undefined) return;
    query.set(placeIn(path), part.next);
  }
}

/**
 * Returns the first part with entries, or the last part if all are empty. One call checks a limited number of records,
 * and it is possible that none of them match.
 */
export async function firstFilled<T extends Part>(
  ask: Ask<T>,
  path: string,
  asked: Readonly<Record<string, string>>,
  entriesOf: (part: T) => readonly unknown[],
): Promise<T> {
  let last: T | undefined;
  for await (const part of partsOf(ask, path, asked)) {
    last = part;
    if (entriesOf(part).length > 0) break;
  }
  return last as T;
}

/**
 * Reads the first `asked.limit` keys of a sorted list. One call sorts only the keys that it checks, so all parts are
 * read and merged. A key that moves to another part between two calls is listed only once.
 */
export async function readSorted<T extends Part & { readonly keys: readonly KeyView[] }>(
  ask: Ask<T>,
  path: string,
  asked: Readonly<Record<string, string>>,
  compare: (a: T['keys'][number], b: T['keys'][number]) => number,
): Promise<T> {
  const found = new Map<string, T['keys'][number]>();
  let last: T | undefined;
  for await (const part of partsOf(ask, path, asked)) {
    for (const key of part.keys) if (!found.has(key.id)) found.set(key.id, key);
    last = part;
  }
  return { ...(last as T), keys: [...found.values()].sort(compare).slice(0, Number(asked.limit)) };
}

export const inOrder =
  (order: KeyOrder) =>
  (a: KeyView, b: KeyView): number =>
    KEY_ORDERS[order](sortable(a), sortable(b));

function sortable({ createdAt, lastUsedAt, name, buckets }: KeyView) {
  const at = lastUsedAt === undefined ? undefined : Date.parse(lastUsedAt);
  const dayUsed = buckets === undefined ? 0 : buckets.day.used / buckets.day.limit;
  return { createdAt: Date.parse(createdAt), lastUsedAt: at, name, dayUsed };
}

/** The maximum number of entries that one call may return. */
const MOST_A_CALL = 1_000;

/** Reads entries of the audit log, newest first, until there are `most` entries or the log ends. */
export async function readEntries(
  ask: Ask<ActivityAnswer>,
  asked: Readonly<Record<string, string>>,
  most: number,
): Promise<ActivityAnswer> {
  const activity: ActivityView[] = [];
  const query = new URLSearchParams(asked);
  for (;;) {
    query.set('limit', String(Math.min(most - activity.length, MOST_A_CALL)));
    const part = await ask(`/activity?${query}`);
    activity.push(...part.activity);
    if (part.next === undefined || activity.length >= most) return { activity, next: part.next };
    query.set('after', part.next);
  }
}

/** Finds the revoked keys with this id or name, most recently revoked first. The audit log still has their ids. */
export async function revokedKeys(ask: Ask<ActivityAnswer>, target: string): Promise<readonly ActivityView[]> {
  const { activity } = await readEntries(ask, { action: 'key.revoke', target }, MOST_A_CALL);
  return [...new Map(activity.toReversed().map((entry) => [entry.target, entry])).values()].toReversed();
}

/** Whether two names count as the same for a search: case, and spaces at the start and end, do not matter. */
export const isSameName = (one: string, other: string): boolean =>
  one.trim().toLowerCase() === other.trim().toLowerCase();

/** Sums usage by key or by the value of a tag, largest sum first. */
export async function readUsage(
  ask: Ask<UsageAnswer>,
  asked: Readonly<Record<string, string>>,
): Promise<{ readonly keptFrom: string; readonly rows: (UsageOfKey | UsageSum)[] }> {
  const [ofKeys, sums] = [[] as UsageOfKey[], [] as UsageSum[]];
  let keptFrom = '';
  for await (const part of partsOf(ask, '/usage', asked)) {
    ({ keptFrom } = part);
    for (const row of part.usage) 'id' in row ? ofKeys.push(row) : sums.push(row);
  }
  return { keptFrom, rows: [...ofKeys.sort(largestFirst), ...addUp(sums)] };
}

/** Merges the sums of several responses by the value of a tag, largest sum first. */
export function addUp(sums: Iterable<UsageSum>): UsageSum[] {
  const totals = new Map<string | undefined, UsageSum>();
  for (const { value, keys, admitted, refused } of sums) {
    const sum = totals.get(value) ?? { keys: 0, admitted: 0, refused: 0 };
    const added = { keys: sum.keys + keys, admitted: sum.admitted + admitted, refused: sum.refused + refused };
    totals.set(value, { value, ...added });
  }
  return [...totals.values()].sort(largestFirst);
}

const largestFirst = (a: Omit<UsageSum, 'keys'>, b: Omit<UsageSum, 'keys'>): number =>
  b.admitted - a.admitted || b.refused - a.refused;

export type Trial = Omit<TrialAnswer, 'next'> & { readonly isWhole: boolean };

/**
 * Reports how many requests of each key a plan would have refused with other limits, most refusals first.
 * @param most the maximum number of parts to read
 */
export async function readTrial(ask: Ask<TrialAnswer>, plan: string, most = Number.POSITIVE_INFINITY): Promise<Trial> {
  const affected: TrialAnswer['affected'][number][] = [];
  let [keys, requests, parts, isWhole] = [0, 0, 0, true];
  for await (const part of partsOf(ask, `/plans/${encodeURIComponent(plan)}/try`)) {
    keys += part.keys;
    requests += part.requests;
    affected.push(...part.affected);
    isWhole = part.next === undefined;
    if (++parts === most) break;
  }
  return { keys, requests, affected: affected.sort((a, b) => b.wouldRefuse - a.wouldRefuse), isWhole };
}

const ORDINALS = ['first', 'second', 'third', 'fourth', 'fifth', 'sixth', 'seventh', 'eighth', 'ninth', 'tenth'];

/**
 * Formats the text after `banned until`, such as `14:05 (in 3 min), second ban in a row, refused 1,204 since`. Only
 * bans by the limiter count as bans in a row.
 * @param until the time in the reader's format
 */
export function banInWords(ban: BanView, until: string): string {
  const { bannedUntil = '', banReason, bans, banRefused, banRefusedMore } = ban;
  const which = ORDINALS[bans - 1] === undefined ? `ban ${bans}` : `${ORDINALS[bans - 1]} ban`;
  const ofSeries = banReason === undefined && bans > 0 ? [bans === 1 ? which : `${which} in a row`] : [];
  // A formatter created on load would take 4 MB of memory in the primary, which loads this file too.
  const isUnknown = banRefused === undefined || (banRefused === 0 && banRefusedMore);
  const count = `${banRefusedMore ? 'at least ' : ''}${banRefused?.toLocaleString('en-US')}`;
  const refused = isUnknown ? [] : [`refused ${count} since`];
  const left = shortLength((Date.parse(bannedUntil) - Date.now()) / 1_000);
  return [`${until} (in ${left})`, ...ofSeries, ...refused].join(', ');
}

/**
 * Whether requests may be missing from this list, newest first, because a process started at `since`.
 * @param from the beginning of the period that was asked for
 */
export const lacksOlder = (requests: readonly { readonly at: string }[], since: string, from = ''): boolean =>
  (requests.at(-1)?.at ?? '') < since && from < since;

/** Describes a key whose limit is too low for its clients. */
export const tooSmallInWords = (waitSeconds = 0): string =>
  `limit too low for its clients: a refused request waits ${shortLength(waitSeconds)}`;

/** Units of time, in seconds. */
export const UNITS = [
  { unit: 86_400, name: 'day', short: 'd' },
  { unit: 3_600, name: 'hour', short: 'h' },
  { unit: 60, name: 'minute', short: 'min' },
  { unit: 1, name: 'second', short: 's' },
] as const;

/** Rounds a duration to the largest unit that fits into it. */
export function inLargestUnit(seconds: number): (typeof UNITS)[number] & { readonly count: number } {
  const whole = Math.max(0, Math.round(seconds));
  const largest = UNITS.find(({ unit }) => whole >= unit) ?? UNITS[3];
  return { ...largest, count: Math.round(whole / largest.unit) };
}

/** Formats a duration, such as `5 min`. */
function shortLength(seconds: number): string {
  const { count, short } = inLargestUnit(seconds);
  return `${count} ${short}`;
}

/** Whether times are in UTC because this machine does not know the zone in TZ. */
export const isZoneUnknown = (): boolean =>
  [undefined, 'Etc/Unknown'].includes(new Intl.DateTimeFormat().resolvedOptions().timeZone) &&
  new Date().getTimezoneOffset() === 0;

const TIME = /(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)/;

/** Splits a string at the UTC times in it, and formats these with `show`. */
export const withTimes = <T>(text: string, show: (time: string) => T): (T | string)[] =>
  text.split(TIME).map((part) => (TIME.test(part) ? show(part) : part));

const PARTS = ['decision', 'waiting', 'core', 'sending'] as const;

/** Describes how long each part of a request took; undefined if none is known. @param write formats a duration */
export function timesInWords(
  times: { readonly [part in (typeof PARTS)[number]]?: number | undefined },
  write: (ms: number) => string,
): string | undefined {
  const parts = PARTS.flatMap((part) => (times[part] === undefined ? [] : [`${part} ${write(times[part])}`]));
  return parts.length === 0 ? undefined : parts.join(', ');
}

/** A key, either whole or redacted as in logs. Its groups are the id and the rest. */
const KEY = /as_([0-9A-Za-z]{12})(?![0-9A-Za-z])(_[0-9A-Za-z]*)?/;
/** The secret of a key with its checksum, without the id. */
const BARE_SECRET = /(?<![0-9A-Za-z])[0-9A-Za-z]{38}(?![0-9A-Za-z])/;
/** The key id in a log line. */
const KEY_ID = /"keyId":"([0-9A-Za-z]{12})"/;

/**
 * Reduces pasted text to what may be sent in a search: a key to its public id, and a log line to the key id in it. A
 * bare secret, without the key's id, becomes an empty string.
 */
export function searchText(pasted: string): { readonly text: string; readonly hadSecret: boolean } {
  const [, id, rest = ''] = KEY.exec(pasted) ?? [];
  const text = pasted.trim();
  if (id !== undefined) return { text: id, hadSecret: rest.length > 1 };
  if (BARE_SECRET.test(text)) return { text: '', hadSecret: true };
  return { text: KEY_ID.exec(text)?.[1] ?? text, hadSecret: false };
}
