import { createHmac } from 'node:crypto';

/** Signatures according to Standard Webhooks (standardwebhooks.com), so that its libraries can verify them. */

const PREFIX = 'whsec_';

/** The bytes of a secret: base64 after `whsec_`, otherwise the text itself. */
export function secretBytes(secret: string): Buffer {
  return secret.startsWith(PREFIX) ? Buffer.from(secret.slice(PREFIX.length), 'base64') : Buffer.from(secret);
}

/** @param timestamp in Unix seconds */
export function sign(secret: Buffer, id: string, timestamp: number, body: string): string {
  return `v1,${createHmac('sha256', secret).update(`${id}.${timestamp}.${body}`).digest('base64')}`;
}
