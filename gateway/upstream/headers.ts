import { CALLER_ID, HOP_BY_HOP } from '../../shared/headers.ts';

/** Which headers cross the gateway. One pass each way; names and values in a flat list, as they come and go. */

/** Never from a client: ours to set, or the core's to trust. */
const OURS: ReadonlySet<string> = new Set([
  'authorization',
  'content-length',
  'cookie',
  'expect',
  'forwarded',
  'host',
  'via',
  'x-real-ip',
  'x-request-id',
  CALLER_ID,
]);

/** Never from the core: the gateway's own word on them is final, and `date` and framing are made anew. */
const NOT_THE_CORES: ReadonlySet<string> = new Set([
  'date',
  'deprecation',
  'ratelimit',
  'ratelimit-policy',
  'retry-after',
  'server',
  'set-cookie',
  'sunset',
  'x-request-id',
]);

/** What goes to the core: the client's headers less all that is not its to say, then `ours`. */
export function requestHeaders(rawHeaders: readonly string[], ours: readonly string[]): string[] {
  const named = namedInConnection(rawHeaders);
  const kept: string[] = [];
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const header = rawHeaders[at] as string;
    const name = header.toLowerCase();
    if (HOP_BY_HOP.has(name) || named?.has(name) || OURS.has(name) || isLookAlike(name)) continue;
    kept.push(header, rawHeaders[at + 1] as string);
  }
  kept.push(...ours);
  return kept;
}

/** What goes to the client: the core's headers less hop-by-hop ones and those on which the gateway has the last word. */
export function responseHeaders(rawHeaders: readonly string[]): string[] {
  const named = namedInConnection(rawHeaders);
  const kept: string[] = [];
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const header = rawHeaders[at] as string;
    const name = header.toLowerCase();
    if (HOP_BY_HOP.has(name) || named?.has(name) || NOT_THE_CORES.has(name) || name.startsWith('x-ratelimit-'))
      continue;
    kept.push(header, rawHeaders[at + 1] as string);
  }
  return kept;
}

/** X-Forwarded-For spelled x_forwarded_for passes for it in every CGI-like environment. */
const isLookAlike = (name: string): boolean => name.startsWith('x-forwarded-') || name.includes('_');

/** The connection-specific headers that a sender declares (RFC 9110 §7.6.1). */
function namedInConnection(rawHeaders: readonly string[]): ReadonlySet<string> | undefined {
  let named: Set<string> | undefined;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    if (rawHeaders[at]?.toLowerCase() !== 'connection') continue;
    named ??= new Set();
    for (const option of rawHeaders[at + 1]?.split(',') ?? []) named.add(option.trim().toLowerCase());
  }
  return named;
}
