import type { KeySummary } from './answers.ts';
import type { AdminDependencies } from './operation.ts';

/**
 * How many requests running bans have refused. No store counts that, because a gateway that knows of a ban makes no
 * call. It is therefore the sum over the last requests of all gateways, in which repeated ones are counted. It is too
 * low after a restart, or once older requests have left the list.
 */
export async function withBanRefusals<K extends KeySummary>(
  { requests }: Pick<AdminDependencies, 'requests'>,
  keys: readonly K[],
): Promise<K[]> {
  const bansOf = keys.flatMap(({ id, bannedUntil }) => (bannedUntil === undefined ? [] : [id]));
  if (bansOf.length === 0) return [...keys];
  const refused = new Map<string, number>();
  for (const { keyId, decision, repeated } of (await requests.find({ bansOf, limit: 1 })).requests) {
    const ban = nameOf(keyId, decision?.bannedUntil);
    refused.set(ban, (refused.get(ban) ?? 0) + 1 + repeated);
  }
  return keys.map((key) =>
    key.bannedUntil === undefined ? key : { ...key, banRefused: refused.get(nameOf(key.id, key.bannedUntil)) ?? 0 },
  );
}

/** Decisions have microseconds, so the times are compared in milliseconds. */
const nameOf = (id = '', until = ''): string => `${id} ${Date.parse(until)}`;
