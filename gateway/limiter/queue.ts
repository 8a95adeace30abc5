import { type Level, ticksUntil } from './bucket.ts';
import { DAY, MINUTE, SECOND } from './clock.ts';

/**
 * The clients that wait for a key, as far as its requests show: those that were told to come later, and those that may
 * send at any time because they were just served. A request is **early** if no free or due client could have sent it
 * while others wait. A client that respects Retry-After is early only once: when it joins, or when it forgets its
 * Retry-After.
 *
 * A refused request is told the time of its place: behind all who wait, but at most as many as the minute limit.
 *
 * Early requests put a key **on notice** when they come in three moments at least a second apart and are at least a
 * 60th of the tolerated number. Two moments do if a token takes a second or more. The notice lasts 5/6 of
 * `ban_within_seconds`, at most 50 s. During it, early requests get no token, and all refused requests are told to wait until it ends. Clients
 * that wait fall silent. Clients that do not are early with every request. As many early requests in one notice as are
 * tolerated ban the key. Concurrent requests alone never cause a ban: so few of one second count that a ban takes two
 * fifths of `ban_within_seconds`, which is 24 s; less where few are tolerated, as at least one of a second counts.
 *
 * These are the rules of decide.lua; a property test holds the two equal. Times are Unix time in microseconds.
 */
export interface Queue {
  /** Requests that may come at any time: each admitted request may be followed by another. */
  readonly free: number;
  /** Waiters whose time has come. */
  readonly due: number;
  /** Waiters in line: the first is due at `first`, each of the others `every` ticks after the previous one. */
  readonly waiting: number;
  readonly first: number;
  readonly every: number;
  /** Waiters behind the line. They become due together. */
  readonly grouped: number;
  readonly groupAt: number;
  /** An earlier group, set apart when a later waiter was told more than twice its time. */
  readonly earlier: number;
  readonly earlierAt: number;
  /** The queue is forgotten at this time: after twice the longest wait that was told, at least two minutes. */
  readonly forgetAt: number;
  /** The running count of early requests: its start, the moments, the early requests, and those in the last moment. */
  readonly since: number;
  readonly moment: number;
  readonly moments: number;
  readonly early: number;
  readonly recent: number;
}

export const NOBODY: Queue = {
  free: 0,
  due: 0,
  waiting: 0,
  first: 0,
  every: 1,
  grouped: 0,
  groupAt: 0,
  earlier: 0,
  earlierAt: 0,
  forgetAt: 0,
  since: 0,
  moment: 0,
  moments: 0,
  early: 0,
  recent: 0,
};

/**
 * A request this much too soon is still in time, because timers on busy clients fire early. The leeway is at most a
 * quarter of the time between two waiters in line. If several are due within that time, there is no leeway in line: one
 * that comes too soon takes the place of another.
 */
const LEEWAY = SECOND / 4;
const LONGEST_NOTICE = 50 * SECOND;
const SHARES_TO_NOTICE = 60;
/**
 * A tolerance below this is taken literally: all early requests count, however close together, and no quarter is added.
 */
const FEW = 10;
/** Replaces the minute limit of a plan that has none: its `ban_after` is for each 1,000 requests a minute. */
const USUAL_MINUTE = 1_000;

/** How early requests of a key are judged. */
export interface Patience {
  /** Ticks for which early requests are remembered. */
  readonly window: number;
  /**
   * Early requests in one window that cause a ban: `ban_after` plus a quarter, scaled by the key's own minute limit.
   */
  readonly borne: number;
  /** Early requests that count in one second. */
  readonly mostASecond: number;
}

export function patienceOf(
  limits: { minute: number; ban_after: number; ban_within_seconds: number },
  planMinute: number | undefined,
): Patience {
  const { minute, ban_after, ban_within_seconds } = limits;
  const window = Math.floor((ban_within_seconds * SECOND * 5) / 6);
  const inProportion = (ban_after * minute) / (planMinute ?? USUAL_MINUTE);
  const most = Math.floor(Math.max(Math.min(ban_after, FEW), inProportion));
  if (most < FEW) return { window, borne: most, mostASecond: most };
  const borne = Math.floor((most * 5) / 4);
  return { window, borne, mostASecond: Math.ceil((borne * 5) / (2 * ban_within_seconds)) };
}

/**
 * The queue at `now`. If the clock was set back, `shift` moves its times back. @returns undefined if it is forgotten
 */
export function advance(kept: Queue | undefined, now: number, shift: number, { window }: Patience): Queue | undefined {
  if (kept === undefined || kept.forgetAt - shift <= now) return undefined;
  const q = { ...kept, forgetAt: kept.forgetAt - shift };
  for (const time of ['first', 'groupAt', 'earlierAt', 'since', 'moment'] as const)
    q[time] = Math.max(q[time] - shift, 0);
  const inLine = now + (q.every < LEEWAY ? 0 : Math.min(LEEWAY, Math.floor(q.every / 4)));
  if (q.waiting > 0 && inLine >= q.first) {
    const more = Math.min(q.waiting, Math.floor((inLine - q.first) / q.every) + 1);
    Object.assign(q, { due: q.due + more, waiting: q.waiting - more, first: q.first + more * q.every });
  }
  if (q.grouped > 0 && now + LEEWAY >= q.groupAt) Object.assign(q, { due: q.due + q.grouped, grouped: 0 });
  if (q.earlier > 0 && now + LEEWAY >= q.earlierAt) Object.assign(q, { due: q.due + q.earlier, earlier: 0 });
  if (q.moments > 0 && now >= q.since + window) Object.assign(q, { moments: 0, early: 0 });
  return q;
}

export const isOnNotice = ({ moments, early, every }: Queue, { borne }: Patience): boolean =>
  moments >= (borne < FEW ? 1 : every >= SECOND ? 2 : 3) && early * SHARES_TO_NOTICE >= borne;

/** Whether no free or due client is left, while others wait. */
export const isUnexpected = ({ free, due, waiting, grouped, earlier }: Queue): boolean =>
  free + due === 0 && waiting + grouped + earlier > 0;

/**
 * Assigns a request to a free or due client, or counts it as early.
 * @param isThere whether both buckets hold a token: then the clients that waited for it come first
 */
export function expect(q: Queue, now: number, isThere: boolean, patience: Patience): { queue: Queue; early: boolean } {
  if (isUnexpected(q)) return { queue: countEarly(q, now, patience), early: true };
  if (q.due > 0 && (isThere || q.free === 0)) return { queue: { ...q, due: q.due - 1 }, early: false };
  return { queue: q.free > 0 ? { ...q, free: q.free - 1 } : q, early: false };
}

function countEarly(q: Queue, now: number, patience: Patience): Queue {
  const isNew = q.moments === 0 || now >= q.moment + SECOND;
  const at = isNew ? { moment: now, moments: q.moments + 1, recent: 0 } : q;
  const more = at.recent < patience.mostASecond ? 1 : 0;
  const counted = { ...q, ...at, recent: at.recent + more, early: q.early + more };
  const begins = q.moments === 0 || (!isOnNotice(q, patience) && isOnNotice(counted, patience));
  return begins ? { ...counted, since: now } : counted;
}

/** What a refused request is told, and how it joins the queue. */
export interface Place {
  readonly seconds: number;
  readonly place: number;
  readonly every: number;
  readonly isOnNotice: boolean;
}

interface Bounds {
  readonly minute: number;
  readonly day: number;
}

/** The place behind all who wait; on notice, at least until the notice ends. */
export function placeFor(
  q: Queue,
  now: number,
  limits: Bounds,
  levels: { minute: Level; day: Level },
  patience: Patience,
): Place {
  const place = q.due + q.waiting + q.grouped + q.earlier + 1;
  const wanted = Math.min(place, limits.minute);
  const minuteWait = ticksUntil(wanted, levels.minute, limits.minute, MINUTE);
  const dayWait = ticksUntil(wanted, levels.day, limits.day, DAY);
  const every = Math.max(1, dayWait > minuteWait ? Math.floor(DAY / limits.day) : Math.floor(MINUTE / limits.minute));
  const onNotice = isOnNotice(q, patience);
  const held = onNotice ? holdUntil(q, now, patience) : now;
  const seconds = Math.max(1, Math.ceil(Math.max(minuteWait, dayWait, held - now) / SECOND));
  return { seconds, place, every, isOnNotice: onNotice };
}

/**
 * When requests refused on notice are told to come: with the group, or when the notice ends if the group comes much
 * sooner.
 */
function holdUntil(q: Queue, now: number, { window }: Patience): number {
  const ends = Math.min(q.since + window, now + LONGEST_NOTICE);
  return q.grouped === 0 || isMuchSooner(q, now, ends) ? ends : q.groupAt;
}

/**
 * Whether the group comes within half of the time until `at` and can be set apart. Only one group is set apart at a
 * time.
 */
const isMuchSooner = ({ grouped, groupAt, earlier }: Queue, now: number, at: number): boolean =>
  grouped > 0 && earlier === 0 && 2 * (groupAt - now) < at - now;

/** Adds one waiter, who was told this place. */
export function join(q: Queue, now: number, told: Place, most: number): Queue {
  const at = now + told.seconds * SECOND;
  const forgetAt = Math.max(q.forgetAt, now + 2 * Math.max(at - now, MINUTE));
  const { every } = told;
  const isBehind = q.waiting > 0 && q.every === every && at > q.first + q.waiting * every;
  if (told.isOnNotice || told.place > most || isBehind) return joinGroup({ ...q, forgetAt }, now, at);
  // The emptier bucket determines the times. When that changes to the other bucket, those in line count as due.
  if (q.waiting > 0 && q.every !== every)
    return { ...q, forgetAt, due: q.due + q.waiting, waiting: 1, first: at, every };
  const first = q.waiting === 0 ? at : Math.max(0, Math.min(q.first, at - q.waiting * every));
  return { ...q, forgetAt, waiting: q.waiting + 1, first, every };
}

/**
 * Adds one waiter to the group. If the group comes much sooner, it keeps its time and a new group begins. Otherwise all
 * later waiters would be due with it, and a burst could take their places.
 */
function joinGroup(q: Queue, now: number, at: number): Queue {
  if (isMuchSooner(q, now, at)) return { ...q, earlier: q.grouped, earlierAt: q.groupAt, grouped: 1, groupAt: at };
  return { ...q, grouped: q.grouped + 1, groupAt: q.grouped === 0 ? at : Math.min(q.groupAt, at) };
}
