import { createHmac } from 'node:crypto';
import type { Message } from './message.ts';

/** A failed attempt. The message leaves out the URL and the secret, so it may be logged. */
export class NotDelivered extends Error {}

/**
 * Sends a message to its receiver. Follows no redirects, because they could lead to another host, and ignores the
 * response's body.
 * @throws {NotDelivered} unless the status is 2xx
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
  const response = await fetch(url, { method: 'POST', headers, body, redirect: 'manual', signal }).catch(
    (fault: Error) => {
      throw new NotDelivered(reasonOf(fault));
    },
  );
  response.body?.cancel().catch(() => undefined);
  if (!response.ok) throw new NotDelivered(`status ${response.status}`);
}

function reasonOf({ name, cause }: Error): string {
  if (name === 'AbortError') return 'no answer in time';
  const { code, message = 'no connection' } = (cause ?? {}) as Partial<NodeJS.ErrnoException>;
  return code ?? message;
}

/** Signatures follow Standard Webhooks (standardwebhooks.com), so that its libraries can verify them. */

const PREFIX = 'whsec_';

/** The bytes of a secret: base64 after `whsec_`, otherwise the text itself. */
export function secretBytes(secret: string): Buffer {
  return secret.startsWith(PREFIX) ? Buffer.from(secret.slice(PREFIX.length), 'base64') : Buffer.from(secret);
}

/** @param timestamp in Unix seconds */
export function sign(secret: Buffer, id: string, timestamp: number, body: string): string {
  return `v1,${createHmac('sha256', secret).update(`${id}.${timestamp}.${body}`).digest('base64')}`;
}
