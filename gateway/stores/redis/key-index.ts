import { readFileSync } from 'node:fs';
import { isKeyId } from '../../limiter/credential.ts';
import { REVOKED_FIELDS } from '../key-hash.ts';
import { compareCursors, type KeyCursor, REVOKED_KEPT_SECONDS } from '../key-walk.ts';
import { orUnavailable, type RedisConnection } from './calls.ts';
import { keyOf, usageOf } from './key-names.ts';
import { type Note, scriptWithNotes, type Trail } from './trail.ts';

/** Ids by time of creation: of the existing keys, and of those revoked recently. */

export const INDEX = 'gateway:keys';
const REVOKED = 'gateway:keys:revoked';

const CREATE = scriptWithNotes('create');
const CALL_OFF = readFileSync(new URL('./call-off.lua', import.meta.url), 'utf8');
const REVOKE = scriptWithNotes('revoke');

/** No write reaches Redis later than this after it was sent, in seconds. */
const LATEST_SECONDS = 86_400;

/** Revoked keys that each revocation checks for expired use: more than it adds. */
const LOOKED_AT = 10;

/**
 * Issues a key. It gets its place in the index before it exists, so that every working key is listed. If a gateway
 * stops in between, a place without a key is left. Lists skip it.
 */
export async function issue(
  trail: Trail,
  id: string,
  { seconds, fields, notes }: { seconds: number; fields: string[]; notes: readonly Note[] },
): Promise<void> {
  const { redis } = trail;
  const keys = [keyOf(id), usageOf(id)];
  await trail.write(
    notes,
    async (run) => {
      await orUnavailable(redis.zadd(INDEX, seconds, id));
      return await run(CREATE, keys, fields);
    },
    async () => {
      if ((await orUnavailable(redis.eval(CALL_OFF, keys.length, ...keys, LATEST_SECONDS))) === 1) return true;
      await orUnavailable(redis.zrem(INDEX, id));
      return undefined;
    },
  );
}

/**
 * Revokes a key. It gets the same place among the revoked keys before it is removed, so that a walk finds it in one of
 * the two at any time. If Redis has no memory for that place, the key is revoked all the same.
 */
export async function revoke(trail: Trail, id: string, notes: readonly Note[]): Promise<boolean> {
  const { redis } = trail;
  await redis.zadd(REVOKED, (await orUnavailable(redis.zscore(INDEX, id))) ?? 0, id).catch(() => undefined);
  const keys = [keyOf(id), usageOf(id)];
  const { reply } = await trail.write(
    notes,
    (run) => run(REVOKE, keys, [REVOKED_KEPT_SECONDS, ...REVOKED_FIELDS]),
    async () => ((await orUnavailable(redis.exists(keyOf(id)))) === 0 ? 1 : undefined),
  );
  // The key is gone. If cleaning up fails now, a later revocation does it.
  await tidyUp(redis, id).catch(() => undefined);
  return reply !== undefined;
}

async function tidyUp(redis: RedisConnection, id: string): Promise<void> {
  await orUnavailable(redis.zrem(INDEX, id));
  await Promise.all(
    (await orUnavailable(redis.zrandmember(REVOKED, LOOKED_AT))).map((other) => forgetIfGone(redis, other)),
  );
}

/** The key is checked first: while it is being revoked, it is always in one of the two. */
async function forgetIfGone(redis: RedisConnection, id: string): Promise<void> {
  if (await orUnavailable(redis.exists(keyOf(id)))) return;
  await orUnavailable(redis.zrem(INDEX, id));
  if (await orUnavailable(redis.exists(usageOf(id)))) return;
  await orUnavailable(redis.zrem(REVOKED, id));
}

/** The cursors of existing keys after one, in order. */
export const liveCursorsAfter = async (
  redis: RedisConnection,
  after: KeyCursor | undefined,
  limit: number,
): Promise<KeyCursor[]> => (await inIndex(redis, INDEX, after, limit)).sort(compareCursors).slice(0, limit);

/**
 * The cursors after one, in order. Existing keys are read first: one that is revoked in between is found among the
 * revoked ones.
 */
export async function cursorsAfter(
  redis: RedisConnection,
  after: KeyCursor | undefined,
  limit: number,
): Promise<KeyCursor[]> {
  const cursors = [...(await inIndex(redis, INDEX, after, limit)), ...(await inIndex(redis, REVOKED, after, limit))];
  const byId = new Map(cursors.map((cursor) => [cursor.id, cursor]));
  return [...byId.values()].sort(compareCursors).slice(0, limit);
}

async function inIndex(
  redis: RedisConnection,
  index: string,
  after: KeyCursor | undefined,
  limit: number,
): Promise<KeyCursor[]> {
  const found: KeyCursor[] = [];
  for (let offset = 0; found.length < limit; offset += limit) {
    const flat = await orUnavailable(
      redis.zrangebyscore(index, after?.createdAt ?? '-inf', '+inf', 'WITHSCORES', 'LIMIT', offset, limit),
    );
    if (flat.length === 0) break;
    const page = flat.flatMap((id, at) => (at % 2 === 0 ? [{ id, createdAt: Number(flat[at + 1]) }] : []));
    const isNew = (cursor: KeyCursor) => after === undefined || compareCursors(cursor, after) > 0;
    found.push(...page.filter((cursor) => isKeyId(cursor.id) && isNew(cursor)));
  }
  return found;
}
