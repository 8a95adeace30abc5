import { hash } from 'node:crypto';
import { listed } from '../shared/lists.ts';

/** A weak tag (RFC 9110 §8.8.3): the file and its compressed form share it. */
export const etagOf = (body: string | Buffer): string => `W/"${hash('sha256', body, 'base64url').slice(0, 22)}"`;

/** A longer list in a header is ignored, because each entry costs time. */
export const MAX_LIST_LENGTH = 1_024;

/** Whether the browser has this version of the file. The comparison is weak (RFC 9110 §13.1.2). */
export function isCurrent(ifNoneMatch: string | undefined, etag: string): boolean {
  if (ifNoneMatch === undefined || ifNoneMatch.length > MAX_LIST_LENGTH) return false;
  const given = listed(ifNoneMatch).map((one) => one.replace(/^W\//, ''));
  return given.includes('*') || given.includes(etag.slice('W/'.length));
}

/** Allows scripts, styles and requests of this origin only; no inline script, no eval, no framing. */
const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
];

/** @param directives of the content security policy, in addition to the common ones */
export const safetyHeaders = (...directives: readonly string[]): string[] => [
  'Content-Security-Policy',
  [...CONTENT_SECURITY_POLICY, ...directives].join('; '),
  'X-Frame-Options',
  'DENY',
  'Referrer-Policy',
  'no-referrer',
  'Cross-Origin-Opener-Policy',
  'same-origin',
  'Cross-Origin-Resource-Policy',
  'same-origin',
];
