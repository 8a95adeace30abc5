import { type Level, ticksUntil } from './bucket.ts';
import { DAY, MINUTE, SECOND } from './verdict.ts';

/**
 * Who waits for a key, as far as its requests tell: those who were told to come later, and those who may send at any time
 * because they were just served. A request is **early** when nobody is left who could have sent it in time while others
 * wait. Clients that wait as long as they are told are early once: when they join, or forget what they were told.
 *
 * A request that is refused is told the time of its place: behind all who wait, at most as many as the minute limit.
 *
 * Early requests in three moments a second or more apart (two where a token takes a second or more), a 60th of what is borne
 * or more, put a key **on notice**: until the notice ends, after 5/6 of `ban_within_seconds` and 50 s at most, early requests
 * find no token, and all who are refused are told to wait until then. Clients that wait fall silent; clients that do not are
 * early with every request. The early requests of one such time that are more than is borne ban the key. Requests in flight
 * at once never do: of a second, no more count than would bring the ban after 24 s.
 *
 * These are the rules of decide.lua, in the same order, with the same names. Times are Unix time in microseconds.
 */
export interface Queue {
  /** Requests that may come at any time: each admitted one may be followed by another. */
  readonly free: number;
  /** Waiters whose time has come. */
  readonly due: number;
  /** Waiters in line: the first is due at `first`, each of the others `every` ticks after the one before. */
  readonly waiting: number;
  readonly first: number;
  readonly every: number;
  /** Waiters behind the line, who become due together. */
  readonly grouped: number;
  readonly groupAt: number;
  /** A group before that one, set apart when one more was told more than twice its time. */
  readonly earlier: number;
  readonly earlierAt: number;
  /** From then on the queue is forgotten: as long again as anybody was told to wait, and two minutes at least. */
  readonly forgetAt: number;
  /** The running count of early requests: since when, in how many moments, how many, and how many in the last moment. */
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
 * So much sooner than told is in time, for timers of busy clients fire too soon: a quarter of the time between two in line
 * at most. Where many are due in a second, one who comes too soon comes in place of another.
 */
const LEEWAY = SECOND / 4;
const LONGEST_NOTICE = 50 * SECOND;
const SHARES_TO_NOTICE = 60;
/** Fewer early requests than these are taken at their word: they count however close they come, and nothing is added. */
const FEW = 10;
/** Stands for the minute limit of a plan that has none: its `ban_after` is for each 1,000 requests a minute. */
const USUAL_MINUTE = 1_000;

/** How early requests of a key are judged. */
export interface Patience {
  /** Ticks for which early requests are remembered. */
  readonly window: number;
  /** Early requests in one window that ban: a quarter more than `ban_after`, in proportion to a minute limit of the key's own. */
  readonly borne: number;
  /** Early requests that count in a second. */
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

/** The queue as it is at `now`; undefined once it is forgotten. What was kept by a clock since set back is `shift` ticks earlier. */
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

/** Whether nobody is left who could send now, while others wait. */
export const isUnexpected = ({ free, due, waiting, grouped, earlier }: Queue): boolean =>
  free + due === 0 && waiting + grouped + earlier > 0;

/**
 * Takes one who could send now as the sender of a request, or counts it as early.
 * @param isThere whether both buckets hold a token: then whoever waited for it comes first
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

/** What a request that is refused is told, and how it is put into the queue. */
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

/** Behind all who wait; on notice, when the notice ends. */
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

/** Until when those who are refused on notice are told to wait: like the group, unless that comes much sooner than the end. */
function holdUntil(q: Queue, now: number, { window }: Patience): number {
  const ends = Math.min(q.since + window, now + LONGEST_NOTICE);
  return q.grouped === 0 || isMuchSooner(q, now, ends) ? ends : q.groupAt;
}

/** Whether the group comes before half of the time until `at` is over, and can be set apart: one is at a time. */
const isMuchSooner = ({ grouped, groupAt, earlier }: Queue, now: number, at: number): boolean =>
  grouped > 0 && earlier === 0 && 2 * (groupAt - now) < at - now;

/** One more, who was told this place. */
export function join(q: Queue, now: number, told: Place, most: number): Queue {
  const at = now + told.seconds * SECOND;
  const forgetAt = Math.max(q.forgetAt, now + 2 * Math.max(at - now, MINUTE));
  const { every } = told;
  const isBehind = q.waiting > 0 && q.every === every && at > q.first + q.waiting * every;
  if (told.isOnNotice || told.place > most || isBehind) return joinGroup({ ...q, forgetAt }, now, at);
  // Times are told by the bucket that is emptier; when that is the other one, those in line count as due.
  if (q.waiting > 0 && q.every !== every)
    return { ...q, forgetAt, due: q.due + q.waiting, waiting: 1, first: at, every };
  const first = q.waiting === 0 ? at : Math.max(0, Math.min(q.first, at - q.waiting * every));
  return { ...q, forgetAt, waiting: q.waiting + 1, first, every };
}

/**
 * A group that comes much sooner than one more was told keeps its time, and another is begun: all who were told to come late
 * would be due with it else, and a burst would take their places.
 */
function joinGroup(q: Queue, now: number, at: number): Queue {
  if (isMuchSooner(q, now, at)) return { ...q, earlier: q.grouped, earlierAt: q.groupAt, grouped: 1, groupAt: at };
  return { ...q, grouped: q.grouped + 1, groupAt: q.grouped === 0 ? at : Math.min(q.groupAt, at) };
}
