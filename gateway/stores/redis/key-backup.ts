import { readFileSync } from 'node:fs';
import { type BackedUpKey, type BackupPage, ownFields, type RestoreOutcome } from '../key-backup.ts';
import type { KeyFields } from '../key-hash.ts';
import type { WalkQuery } from '../key-walk.ts';
import { orUnavailable, type RedisConnection } from './calls.ts';
import { INDEX, liveCursorsAfter } from './key-index.ts';
import { keyOf, usageOf } from './key-names.ts';

/** Exports and restores keys, hash by hash. Each step concerns one key, so decisions continue in between. */

const RESTORE = readFileSync(new URL('./restore.lua', import.meta.url), 'utf8');

/** @param read the hash of each key; undefined if there is none */
export async function exportKeys(
  redis: RedisConnection,
  { after, limit }: WalkQuery,
  read: (ids: readonly string[]) => Promise<readonly (KeyFields | undefined)[]>,
): Promise<BackupPage> {
  const cursors = await liveCursorsAfter(redis, after, limit);
  const hashes = await read(cursors.map(({ id }) => id));
  const keys = cursors.map((cursor, at) => ({ ...cursor, fields: ownFields(hashes[at] ?? {}) }));
  return {
    // A key revoked meanwhile has no fields.
    keys: keys.filter(({ fields }) => Object.keys(fields).length > 0),
    next: cursors.length === limit ? cursors.at(-1) : undefined,
  };
}

/** Like a new key, each gets its place in the index before it exists. */
export async function restoreKey(
  redis: RedisConnection,
  { id, createdAt, fields }: BackedUpKey,
): Promise<RestoreOutcome> {
  const keys = [keyOf(id), usageOf(id)];
  await orUnavailable(redis.zadd(INDEX, 'NX', createdAt, id));
  const answer = redis.eval(RESTORE, keys.length, ...keys, ...Object.entries(fields).flat());
  const outcome = (await orUnavailable(answer)) as RestoreOutcome;
  if (outcome === 'revoked') await orUnavailable(redis.zrem(INDEX, id));
  return outcome;
}
