import { setTimeout as sleep } from 'node:timers/promises';
import { pairsOf } from '../../../shared/lists.ts';
import { SECOND } from '../../limiter/bucket.ts';
import { isKeyId } from '../../limiter/credential.ts';
import { compareCursors, type KeyCursor, type KeyListQuery, readTime } from '../storage.ts';
import { keyOf, orUnavailable, type RedisConnection } from './calls.ts';
import { serverOf } from './connection.ts';
import { type Node, nodesOf } from './nodes.ts';
import { INDEX, REVOKED_INDEX, usageOf } from './step.ts';

/** How many revoked keys each revocation checks for expired usage: more than it adds, so the set shrinks. */
const CHECKED = 10;
const SCANNED = 1_000;

/** The place of a key. A time of creation that was typed by hand may be invalid. */
export const placeOf = (id: string, createdAt: string | undefined): KeyCursor => ({
  id,
  createdAt: (readTime(createdAt) ?? 0) / SECOND,
});

/**
 * The order of keys: two sorted sets, one of existing keys and one of keys revoked recently. A key is in one of them
 * from before it exists until nothing is left of it. A place can outlast its key; readers then find no record.
 */
export function keyPlaces(redis: RedisConnection) {
  const count = () => orUnavailable(redis.zcard(INDEX), serverOf(redis, INDEX));

  /** Reads existing keys first: a key that is revoked in between then appears among the revoked ones. */
  async function list(query: KeyListQuery): Promise<KeyCursor[]> {
    const { limit, newestFirst = false, withRevoked = false } = query;
    const byId = new Map<string, KeyCursor>();
    for (const set of withRevoked ? [INDEX, REVOKED_INDEX] : [INDEX])
      for (const cursor of await page(set, query)) byId.set(cursor.id, cursor);
    const inOrder = [...byId.values()].sort((a, b) => (newestFirst ? compareCursors(b, a) : compareCursors(a, b)));
    return inOrder.slice(0, limit);
  }

  /**
   * Returns at least a page after the cursor, or less at the end. Redis first returns all keys with
   * the cursor's time of creation, even those before the cursor.
   */
  async function page(set: string, { after, offset = 0, limit, newestFirst = false }: KeyListQuery) {
    const isBehind = (cursor: KeyCursor) =>
      after === undefined || (newestFirst ? compareCursors(cursor, after) < 0 : compareCursors(cursor, after) > 0);
    const found: KeyCursor[] = [];
    for (let from = offset; ; ) {
      const range = after
        ? [boundOf(after), newestFirst ? '-inf' : '+inf', 'BYSCORE', 'LIMIT', from, limit]
        : [from, from + limit - 1];
      const order = newestFirst ? ['REV'] : [];
      // Different options match different overloads of zrange. The cast picks one overload for all of them.
      const options = [...range, ...order, 'WITHSCORES'] as unknown as [from: number, to: string, 'WITHSCORES'];
      const flat = await orUnavailable(redis.zrange(set, ...options), serverOf(redis, set));
      const cursors = pairsOf(flat).map(([id, score]): KeyCursor => ({ id, createdAt: scoreOf(score) }));
      // An entry that is not a key id was added by hand. It is removed, because it would shift all pages after it.
      const foreign = cursors.map(({ id }) => id).filter((id) => !isKeyId(id));
      if (foreign.length > 0 && (await orUnavailable(redis.zrem(set, ...foreign))) > 0) continue;
      found.push(...cursors.filter((cursor) => isKeyId(cursor.id) && isBehind(cursor)));
      if (cursors.length < limit || found.length >= limit) return found;
      from += limit;
    }
  }

  const add = ({ id, createdAt }: KeyCursor) => orUnavailable(redis.zadd(INDEX, 'NX', createdAt, id));

  /** Adds a key that is about to be revoked to the set of revoked keys. */
  async function addRevoked(id: string): Promise<void> {
    const score = (await orUnavailable(redis.zscore(INDEX, id))) ?? (await createdAtOf(id));
    await orUnavailable(redis.zadd(REVOKED_INDEX, 'NX', score, id));
  }

  /** Removes the place of a revoked key, and of some keys whose usage has expired. */
  async function tidyUp(id: string): Promise<void> {
    const others = await orUnavailable(redis.zrandmember(REVOKED_INDEX, CHECKED));
    await Promise.all([id, ...others].map(forgetIfGone));
  }

  /** Checks the key first and then its remains: at every moment of a revocation, one of the two exists. */
  async function forgetIfGone(id: string): Promise<void> {
    if (await orUnavailable(redis.exists(keyOf(id)))) return;
    await orUnavailable(redis.zrem(INDEX, id));
    if (await orUnavailable(redis.exists(usageOf(id)))) return;
    await orUnavailable(redis.zrem(REVOKED_INDEX, id));
  }

  /** Existing keys without a place. Scans all names in Redis, with pauses. */
  async function unlisted(): Promise<string[]> {
    const found: string[] = [];
    for await (const ids of existing()) found.push(...(await withoutPlace(ids)));
    // Keys appear and disappear during the scan, and SCAN can return a name twice.
    const stillUnlisted = bulkReads(redis, async (id: string) => {
      const isThere = (await orUnavailable(redis.exists(keyOf(id)))) === 1;
      return isThere ? await withoutPlace([id]) : [];
    });
    return (await stillUnlisted([...new Set(found)])).flat();
  }

  /** The ids of existing keys, page by page. An id can occur twice. */
  async function* existing(): AsyncGenerator<string[]> {
    for (const [, node] of nodesOf(redis))
      for await (const names of scan(node, keyOf('*'), 'TYPE', 'hash'))
        yield names.map((name) => name.slice(keyOf('').length - 1, -1)).filter(isKeyId);
  }

  async function withoutPlace(ids: readonly string[]): Promise<string[]> {
    if (ids.length === 0) return [];
    const scores = await orUnavailable(redis.zmscore(INDEX, ...ids));
    return ids.filter((_, at) => scores[at] === null);
  }

  /**
   * Moves each existing key to the place that follows from its time of creation.
   * @returns how many had another place or none
   */
  async function relist(): Promise<number> {
    // A value of another type, put there by hand, is not a list of keys.
    const type = await orUnavailable(redis.type(INDEX));
    if (type !== 'zset' && type !== 'none') await orUnavailable(redis.del(INDEX));
    const place = bulkReads(redis, async (id: string) => {
      const isChanged = (await orUnavailable(redis.zadd(INDEX, 'CH', await createdAtOf(id), id))) === 1;
      // The key may have been revoked in the meantime.
      if (isChanged) await forgetIfGone(id);
      return isChanged;
    });
    let changed = 0;
    for await (const ids of existing()) changed += (await place(ids)).filter(Boolean).length;
    return changed;
  }

  async function createdAtOf(id: string): Promise<number> {
    const text = await orUnavailable(redis.hget(keyOf(id), 'created_at'));
    return placeOf(id, text ?? undefined).createdAt;
  }

  return { count, list, add, addRevoked, tidyUp, forgetIfGone, unlisted, relist };
}

/** JSON has no infinite numbers, but a score set by hand can be infinite. */
const MOST = Number.MAX_VALUE;
const scoreOf = (text: string) => (text.endsWith('inf') ? (text.startsWith('-') ? -MOST : MOST) : Number(text));
const boundOf = ({ createdAt }: KeyCursor) =>
  Math.abs(createdAt) === MOST ? (createdAt > 0 ? '+inf' : '-inf') : createdAt;

/** The matching names on one node, page by page. Pauses in between, so that decisions can run. */
export async function* scan(node: Node, pattern: string, ...more: string[]): AsyncGenerator<string[]> {
  let cursor = '0';
  do {
    const beganAt = performance.now();
    const page = node.call('SCAN', cursor, 'MATCH', pattern, 'COUNT', SCANNED, ...more) as Promise<[string, string[]]>;
    const [next, names] = await orUnavailable(page);
    yield names;
    cursor = next;
    if (cursor !== '0') await sleep(performance.now() - beganAt);
  } while (cursor !== '0');
}

/** How many keys are read at once: a decision waits for at most this many reads. */
const AT_ONCE = 32;
/** Reads pause after this many keys, and other lists get their turn. A page for an operator needs no pause. */
const PAGE = 100;

/** Sends the commands that `issue` issues in one write per node, because ioredis writes each one by itself. */
function inOneWrite<T>(redis: RedisConnection, issue: () => T): T {
  const streams = nodesOf(redis).map(([, node]) => node.stream);
  for (const stream of streams) stream?.cork();
  try {
    return issue();
  } finally {
    for (const stream of streams) stream?.uncork();
  }
}

/**
 * Reads many keys without slowing decisions: all lists together read a few keys at a time. After each page, they pause
 * for as long as the page took, and at least a millisecond. Lists take turns.
 * @param read reads one key
 */
export function bulkReads<Id extends string, Found>(redis: RedisConnection, read: (id: Id) => Promise<Found>) {
  let lastTurn: Promise<unknown> = Promise.resolve();

  function inTurn(ids: readonly Id[]): Promise<Found[]> {
    let beganAt = 0;
    const found = lastTurn.then(() => {
      beganAt = performance.now();
      return readPage(ids);
    });
    const pause = () => sleep(performance.now() - beganAt);
    lastTurn = found.then(pause, pause);
    return found;
  }

  async function readPage(ids: readonly Id[]): Promise<Found[]> {
    const found: Found[] = [];
    for (let at = 0; at < ids.length; at += AT_ONCE)
      found.push(...(await Promise.all(inOneWrite(redis, () => ids.slice(at, at + AT_ONCE).map(read)))));
    return found;
  }

  return async (ids: readonly Id[]): Promise<Found[]> => {
    const found: Found[] = [];
    for (let at = 0; at < ids.length; at += PAGE) found.push(...(await inTurn(ids.slice(at, at + PAGE))));
    return found;
  };
}
