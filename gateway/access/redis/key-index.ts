import { readFileSync } from 'node:fs';
import { isKeyId } from '../credential.ts';
import { comparePlaces, type Place, REVOKED_KEPT_SECONDS } from '../key-walk.ts';
import type { RedisConnection } from './connection.ts';
import { keyOf, usageOf } from './key-hash.ts';
import { settle } from './settle.ts';
import { orUnavailable } from './unavailable.ts';

/** Ids by time of creation: of the keys that there are, and of those that were revoked of late. */

export const INDEX = 'gateway:keys';
const REVOKED = 'gateway:keys:revoked';

const script = (name: string): string => readFileSync(new URL(name, import.meta.url), 'utf8');
const CREATE = script('./create.lua');
const CALL_OFF = script('./call-off.lua');
const REVOKE = script('./revoke.lua');

/** No write reaches Redis so long, in seconds, after it was sent. */
const LATEST_SECONDS = 86_400;
const FIELDS_KEPT = ['name', 'plan', 'created_at', 'admitted', 'refused', 'usage_days'];

/** How many of the revoked ones each revocation looks at, for those whose use is not kept any more: more than it adds. */
const LOOKED_AT = 10;

/**
 * Issues a key. It has its place in the index before it is there: what works is listed. A place without a key, as a gateway
 * that ends in between leaves it, is passed over by those who list.
 */
export async function issue(redis: RedisConnection, id: string, seconds: number, fields: string[]): Promise<void> {
  const keys = [keyOf(id), usageOf(id)];
  const write = async () => {
    await orUnavailable(redis.zadd(INDEX, seconds, id));
    return (await orUnavailable(redis.eval(CREATE, keys.length, ...keys, ...fields))) === 1;
  };
  await settle(write(), async () => {
    if ((await orUnavailable(redis.eval(CALL_OFF, keys.length, ...keys, LATEST_SECONDS))) === 1) return true;
    await orUnavailable(redis.zrem(INDEX, id));
    return undefined;
  });
}

/**
 * Revokes a key. It has its place among the revoked ones before it is gone, the one that it had until then: a walk meets it
 * in one of them at any moment. A Redis that has no memory for that refuses it; the key is revoked all the same.
 */
export async function revoke(redis: RedisConnection, id: string): Promise<boolean> {
  await redis.zadd(REVOKED, (await orUnavailable(redis.zscore(INDEX, id))) ?? 0, id).catch(() => undefined);
  const keys = [keyOf(id), usageOf(id)];
  const removed = await settle(
    orUnavailable(redis.eval(REVOKE, keys.length, ...keys, REVOKED_KEPT_SECONDS, ...FIELDS_KEPT)),
    async () => ((await orUnavailable(redis.exists(keyOf(id)))) === 0 ? 1 : undefined),
  );
  // The key is gone. What cannot be tidied up now, a later revocation will.
  await tidyUp(redis, id).catch(() => undefined);
  return removed === 1;
}

async function tidyUp(redis: RedisConnection, id: string): Promise<void> {
  await orUnavailable(redis.zrem(INDEX, id));
  await Promise.all(
    (await orUnavailable(redis.zrandmember(REVOKED, LOOKED_AT))).map((other) => forgetIfGone(redis, other)),
  );
}

/** The key is asked for first: one that is being revoked is always one or the other. */
async function forgetIfGone(redis: RedisConnection, id: string): Promise<void> {
  if (await orUnavailable(redis.exists(keyOf(id)))) return;
  await orUnavailable(redis.zrem(INDEX, id));
  if (await orUnavailable(redis.exists(usageOf(id)))) return;
  await orUnavailable(redis.zrem(REVOKED, id));
}

/** The places that come after one, in order. Those that there are first: who is revoked in between is met among the others. */
export async function placesAfter(redis: RedisConnection, after: Place | undefined, limit: number): Promise<Place[]> {
  const places = [...(await inIndex(redis, INDEX, after, limit)), ...(await inIndex(redis, REVOKED, after, limit))];
  const byId = new Map(places.map((place) => [place.id, place]));
  return [...byId.values()].sort(comparePlaces).slice(0, limit);
}

async function inIndex(
  redis: RedisConnection,
  index: string,
  after: Place | undefined,
  limit: number,
): Promise<Place[]> {
  const found: Place[] = [];
  for (let offset = 0; found.length < limit; offset += limit) {
    const flat = await orUnavailable(
      redis.zrangebyscore(index, after?.createdAt ?? '-inf', '+inf', 'WITHSCORES', 'LIMIT', offset, limit),
    );
    if (flat.length === 0) break;
    const page = flat.flatMap((id, at) => (at % 2 === 0 ? [{ id, createdAt: Number(flat[at + 1]) }] : []));
    const isNew = (place: Place) => after === undefined || comparePlaces(place, after) > 0;
    found.push(...page.filter((place) => isKeyId(place.id) && isNew(place)));
  }
  return found;
}
