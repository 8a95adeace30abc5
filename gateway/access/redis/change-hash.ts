import { readFileSync } from 'node:fs';
import { pairsOf } from '../../../shared/lists.ts';
import type { RedisConnection } from './connection.ts';
import { orUnavailable } from './unavailable.ts';

const CHANGE_HASH = readFileSync(new URL('./change-hash.lua', import.meta.url), 'utf8');

export type Fields = Readonly<Record<string, string | undefined>>;

/**
 * Changes fields of a hash in one step with looking whether it is as expected.
 * @param expected a value for each field that matters, undefined where there must be none
 * @param changes undefined takes a field away
 * @returns the hash as it was before; undefined when it is not as expected, and then nothing was changed
 */
export async function changeHash(
  redis: RedisConnection,
  key: string,
  expected: Fields,
  changes: Fields,
): Promise<Record<string, string> | undefined> {
  const expect = Object.fromEntries(Object.entries(expected).map(([field, value]) => [field, value ?? false]));
  const removed = Object.keys(changes).filter((field) => changes[field] === undefined);
  // JSON leaves out what is undefined: those fields are in `remove`.
  const change = { expect, set: changes, remove: Object.fromEntries(removed.map((field) => [field, true])) };
  const before = await orUnavailable(
    redis.eval(CHANGE_HASH, 1, key, JSON.stringify(change)) as Promise<string[] | null>,
  );
  return before === null ? undefined : fromFlat(before);
}

/** A hash that has these fields, and lacks those that are undefined; undefined for any other. */
export function holds(hash: Record<string, string> | undefined, fields: Fields): Record<string, string> | undefined {
  return hash !== undefined && Object.keys(fields).every((field) => hash[field] === fields[field]) ? hash : undefined;
}

/** What a script or a stream gives of a hash: fields and values in turn. */
export const fromFlat = (flat: readonly string[]): Record<string, string> => Object.fromEntries(pairsOf(flat));
