import { z } from 'zod';
import { secretBytes } from './post.ts';

const LEAST_BYTES = 24;

const httpUrl = z.url({ protocol: /^https?$/, error: 'must be an http:// or https:// URL' });

export const webhookUrl = httpUrl.refine(
  (url) => !URL.canParse(url) || (new URL(url).username === '' && new URL(url).password === ''),
  'must have no user and no password: WEBHOOK_SECRET is what a receiver checks',
);

export const webhookSecret = z
  .string()
  .refine(isSecret, 'must be at least 24 bytes, without spaces: as base64 behind whsec_, or as text');

/** Buffer ignores characters that are not base64, so this checks the text too. */
function isSecret(text: string): boolean {
  const isWhole = text.startsWith('whsec_') ? /^whsec_[A-Za-z\d+/]+={0,2}$/.test(text) : /^\S+$/.test(text);
  return isWhole && secretBytes(text).length >= LEAST_BYTES;
}
