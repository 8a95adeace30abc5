import { DAY } from '../limiter/bucket.ts';
import { type KeyEntry, usedOfDay } from '../limiter/key-record.ts';
import type { BucketState, Decision } from '../limiter/limiter.ts';
import { isNear, type KeyEvent } from '../telemetry/key-watch.ts';

/** An event of a key, as sent to the receiver. It contains no secret and no digest. */
export interface Happening {
  readonly event: KeyEvent;
  readonly keyId: string;
  readonly plan: string;
  /** When it happened by the clock of the decision, in microseconds. */
  readonly at: number;
  readonly limit: number;
  readonly tokens: number;
  readonly mode: Decision['mode'];
  readonly bannedUntil: number;
}

export interface Message {
  /** All attempts and all gateways use the same id, so that a receiver recognizes repetitions. */
  readonly id: string;
  readonly body: string;
}

/** The UTC day of the event, in days since 1970. */
export const dayOf = ({ at }: Happening): number => Math.floor(at / DAY);

export function happeningOf(event: KeyEvent, keyId: string, decision: Decision): Happening {
  const { plan, now, mode, bannedUntil } = decision;
  const { limit, tokens } = decision.buckets[1] as BucketState;
  return { event, keyId, plan, at: now, limit, tokens, mode, bannedUntil };
}

/**
 * @returns undefined if the key has not used 80 %: only its limit was raised. A decision without the store is taken at
 * its word, because the store has yet to count it.
 */
export function messageOf(happening: Happening, entry: KeyEntry): Message | undefined {
  const { event, keyId, plan, at, limit, tokens, mode, bannedUntil } = happening;
  const used = mode === 'local' ? limit - tokens : usedOfDay(happening, entry, at);
  if (event === 'day_80' && !isNear({ limit, tokens: limit - used })) return undefined;
  const timestamp = toTime(at);
  const ban = event === 'banned' ? { bannedUntil: toTime(bannedUntil) } : {};
  return {
    id: `msg_${keyId}_${event}_${timestamp.slice(0, 10)}`,
    body: JSON.stringify({
      type: `key.${event}`,
      timestamp,
      data: { keyId, name: entry.record.name, plan, limit, used, ...ban },
    }),
  };
}

const toTime = (microseconds: number): string => new Date(microseconds / 1_000).toISOString();
