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
  const kept = filter(rawHeaders, (name) => !OURS.has(name) && !isLookAlike(name));
  kept.push(...ours);
  return kept;
}

/** What goes to the client: the core's headers less those on which the gateway has the last word. */
export function responseHeaders(rawHeaders: readonly string[]): string[] {
  return filter(rawHeaders, (name) => !NOT_THE_CORES.has(name) && !name.startsWith('x-ratelimit-'));
}

/** X-Forwarded-For spelled x_forwarded_for passes for it in every CGI-like environment. */
const isLookAlike = (name: string): boolean => name.startsWith('x-forwarded-') || name.includes('_');

/** Drops what is meant for one connection only: the fixed list, and what the sender names (RFC 9110 §7.6.1). */
function filter(rawHeaders: readonly string[], isWanted: (name: string) => boolean): string[] {
  const kept: string[] = [];
  let named: Set<string> | undefined;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const header = rawHeaders[at] as string;
    const name = header.toLowerCase();
    if (name === 'connection') named = addNamed(named, rawHeaders[at + 1] as string);
    else if (!HOP_BY_HOP.has(name) && isWanted(name)) kept.push(header, rawHeaders[at + 1] as string);
  }
  return named === undefined ? kept : without(kept, named);
}

function addNamed(named: Set<string> | undefined, connection: string): Set<string> | undefined {
  const options = connection.toLowerCase();
  if (options === 'keep-alive' || options === 'close') return named;
  return new Set([...(named ?? []), ...options.split(',').map((option) => option.trim())]);
}

const without = (headers: readonly string[], named: ReadonlySet<string>): string[] =>
  headers.filter((_, at) => !named.has((headers[at - (at % 2)] as string).toLowerCase()));
