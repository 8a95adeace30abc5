import type { KeyEntry, KeyRecord } from '../keys.ts';
import { isPlanName, parseLimit } from '../plans.ts';

/** How an API key is written in its Redis hash: times as decimal Unix seconds, the rest as a person would type it. */

export const keyOf = (id: string): string => `gateway:key:{${id}}`;

export function toHash(record: KeyRecord): Record<string, string> {
  const fields = {
    plan: record.plan,
    name: record.name,
    secret: record.secret,
    old_secret: record.oldSecret,
    old_secret_until: toSeconds(record.oldSecretUntil),
    created_at: toSeconds(record.createdAt),
    expires_at: toSeconds(record.expiresAt),
    disabled: record.disabled ? '1' : undefined,
    minute: record.minute?.toString(),
    day: record.day?.toString(),
  };
  return Object.fromEntries(
    Object.entries(fields).filter((entry): entry is [string, string] => entry[1] !== undefined),
  );
}

/** A hash as an entry for people. What decide.lua could make nothing of is shown as unreadable. */
export function toEntry(id: string, hash: Record<string, string>): KeyEntry {
  const plan = hash.plan ?? '';
  const expiresAt = fromSeconds(hash.expires_at);
  const isReadable = hash.secret !== undefined && isPlanName(plan) && (expiresAt !== undefined || !hash.expires_at);
  const record = {
    plan,
    name: hash.name ?? '',
    createdAt: fromSeconds(hash.created_at) ?? 0,
    oldSecretUntil: fromSeconds(hash.old_secret_until),
    expiresAt,
    disabled: !['', '0'].includes(hash.disabled ?? ''),
    minute: parseLimit(hash.minute ?? ''),
    day: parseLimit(hash.day ?? ''),
  };
  return {
    id,
    isReadable,
    record,
    bannedUntil: fromSeconds(hash.banned_until) ?? 0,
    admitted: Number(hash.admitted ?? 0) || 0,
    refused: Number(hash.refused ?? 0) || 0,
  };
}

function toSeconds(time: number | undefined): string | undefined {
  return time === undefined ? undefined : (time / 1e6).toFixed(6);
}

function fromSeconds(text: string | undefined): number | undefined {
  return text === undefined || !/^\d{1,10}(?:\.\d*)?$/.test(text) ? undefined : Math.round(Number(text) * 1e6);
}
