import { createHmac } from 'node:crypto';
import { z } from 'zod';
import { DAY, isNear } from '../limiter/bucket.ts';
import { type KeyEntry, usedOfDay } from '../limiter/key-record.ts';
import type { BucketState, Decision } from '../limiter/limiter.ts';
import type { KeyEvent } from '../telemetry/key-watch.ts';

/** Webhook messages: what they report, how they are signed and sent, and their settings. */

/** A key event, as sent to the receiver. It contains no secret and no digest. */
export type Happening = Readonly<ReturnType<typeof happeningOf>>;

export interface Message {
  /** All attempts and all gateways use the same id, so that a receiver can recognize duplicates. */
  readonly id: string;
  readonly body: string;
}

/** The UTC day of the event, in days since 1970. */
export const dayOf = ({ at }: Happening): number => Math.floor(at / DAY);

/** `at` is the time of the decision, in microseconds. */
export function happeningOf(event: KeyEvent, keyId: string, decision: Decision) {
  const { plan, now, mode, bannedUntil } = decision;
  const { limit, tokens } = decision.buckets[1] as BucketState;
  return { event, keyId, plan, at: now, limit, tokens, mode, bannedUntil };
}

/**
 * @returns undefined for a `day_80` if the key has not actually used 80 %, because its limit was raised. A local
 *   decision is not checked, because the store has not counted it yet.
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

/**
 * Sends a message to its receiver. Follows no redirects, which could lead to another host, and ignores the body.
 * @throws {Error} unless the status is 2xx. Its message contains neither the URL nor the secret, so it may be logged
 */
export async function post(url: string, secret: Buffer, { id, body }: Message, signal: AbortSignal): Promise<void> {
  const timestamp = Math.floor(Date.now() / 1_000);
  const headers = {
    'content-type': 'application/json',
    'user-agent': 'animal-store-gateway',
    'webhook-id': id,
    'webhook-timestamp': String(timestamp),
    'webhook-signature': sign(secret, id, timestamp, body),
  };
  const request = fetch(url, { method: 'POST', headers, body, redirect: 'manual', signal });
  const response = await request.catch((fault: Error) => Promise.reject(new Error(reasonOf(fault))));
  response.body?.cancel().catch(() => undefined);
  if (!response.ok) throw new Error(`status ${response.status}`);
}

function reasonOf({ name, cause }: Error): string {
  if (name === 'TimeoutError') return 'no answer in time';
  const { code, message = 'no connection' } = (cause ?? {}) as Partial<NodeJS.ErrnoException>;
  return code ?? message;
}

/** Signatures follow Standard Webhooks (standardwebhooks.com), so that its libraries can verify them. */

const PREFIX = 'whsec_';
const LEAST_BYTES = 24;

/** The bytes of a secret: base64 after `whsec_`, otherwise the text itself. */
export function secretBytes(secret: string): Buffer {
  return secret.startsWith(PREFIX) ? Buffer.from(secret.slice(PREFIX.length), 'base64') : Buffer.from(secret);
}

/** @param timestamp in Unix seconds */
export function sign(secret: Buffer, id: string, timestamp: number, body: string): string {
  return `v1,${createHmac('sha256', secret).update(`${id}.${timestamp}.${body}`).digest('base64')}`;
}

export const webhookUrl = z
  .url({ protocol: /^https?$/, error: 'must be an http:// or https:// URL' })
  .refine(
    (url) => !URL.canParse(url) || (new URL(url).username === '' && new URL(url).password === ''),
    'must not contain a user or a password: receivers check WEBHOOK_SECRET',
  );

export const webhookSecret = z.string().refine((text) => {
  // Buffer ignores characters that are not base64, so this checks the text too.
  const isWhole = text.startsWith(PREFIX) ? /^whsec_[A-Za-z\d+/]+={0,2}$/.test(text) : /^\S+$/.test(text);
  return isWhole && secretBytes(text).length >= LEAST_BYTES;
}, 'must be at least 24 bytes, without spaces: as base64 after whsec_, or as text');
