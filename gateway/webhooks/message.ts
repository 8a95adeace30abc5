import { DAY } from '../limiter/clock.ts';
import type { BucketState, Decision } from '../limiter/limiter.ts';
import type { KeyEvent } from '../telemetry/key-watch.ts';

/** An event of a key, as sent to the receiver. It contains no secret and no digest. */
export interface Happening {
  readonly event: KeyEvent;
  readonly keyId: string;
  readonly plan: string;
  /** When it happened by the clock of the decision, in microseconds. */
  readonly at: number;
  readonly limit: number;
  readonly used: number;
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
  const { plan, now, bannedUntil } = decision;
  const { limit, tokens } = decision.buckets[1] as BucketState;
  return { event, keyId, plan, at: now, limit, used: limit - tokens, bannedUntil };
}

export function messageOf(happening: Happening, name: string | undefined): Message {
  const { event, keyId, plan, at, limit, used, bannedUntil } = happening;
  const timestamp = toTime(at);
  const ban = event === 'banned' ? { bannedUntil: toTime(bannedUntil) } : {};
  return {
    id: `msg_${keyId}_${event}_${timestamp.slice(0, 10)}`,
    body: JSON.stringify({ type: `key.${event}`, timestamp, data: { keyId, name, plan, limit, used, ...ban } }),
  };
}

const toTime = (microseconds: number): string => new Date(microseconds / 1_000).toISOString();
