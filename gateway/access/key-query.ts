import type { KeyEntry } from './keys.ts';
import type { KeyQuery } from './limiter.ts';

/** How many keys one search looks at; it says where to go on. */
export const LOOKED_AT_ONCE = 5_000;

/** Whether a key is among those that are looked for. */
export function isWanted(
  { record, bannedUntil }: Pick<KeyEntry, 'record' | 'bannedUntil'>,
  { name, bannedAfter }: KeyQuery,
): boolean {
  const isNamed = name === undefined || record.name.toLowerCase().includes(name.toLowerCase());
  return isNamed && (bannedAfter === undefined || bannedUntil > bannedAfter);
}
