import { CALLER_ID, HOP_BY_HOP } from '../../shared/headers.ts';
import { listed } from '../../shared/lists.ts';

/** Which headers cross the gateway. One pass each way; names and values in a flat list, as they come and go. */

/** Never from a client: ours to set, or what some server takes for the caller, its address, the method or the target. */
const OURS: ReadonlySet<string> = new Set([
  'authorization',
  'client-ip',
  'content-length',
  'cookie',
  'expect',
  'forwarded',
  'host',
  'traceparent',
  'tracestate',
  'true-client-ip',
  'via',
  'x-api-key',
  'x-client-ip',
  'x-cluster-client-ip',
  'x-host',
  'x-http-method',
  'x-http-method-override',
  'x-method-override',
  'x-original-host',
  'x-original-url',
  'x-real-ip',
  'x-request-id',
  'x-rewrite-url',
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
  const kept = filter(rawHeaders, (name) => !OURS.has(name) && isPlain(name));
  kept.push(...ours);
  return kept;
}

const OURS_TO_SAY = /^(?:x-ratelimit|access-control)-/;

/**
 * What goes to the client: the core's headers less those on which the gateway has the last word. When a core is to be asked
 * again is the core's to say; every 503 says it.
 */
export function responseHeaders(rawHeaders: readonly string[], status: number): string[] {
  const kept = filter(rawHeaders, (name) => !NOT_THE_CORES.has(name) && !OURS_TO_SAY.test(name));
  if (status === 503) kept.push('Retry-After', waitOf(rawHeaders));
  return kept;
}

/** Seconds, as a core says them; a second where it does not. */
function waitOf(headers: readonly string[]): string {
  const at = headers.findIndex((name, place) => place % 2 === 0 && name.toLowerCase() === 'retry-after');
  const wait = at === -1 ? undefined : headers[at + 1];
  return wait !== undefined && /^\d{1,5}$/.test(wait) ? wait : '1';
}

/** Whether an answer has a body, whatever its headers say (RFC 9112 §6.3). */
export const hasBody = (isHead: boolean, status: number): boolean => !isHead && status !== 204 && status !== 304;

/** Whether one of the headers, in a flat list, has this name, in lower case. */
export function hasHeader(headers: readonly string[], name: string): boolean {
  return headers.some((header, at) => at % 2 === 0 && header.length === name.length && header.toLowerCase() === name);
}

/** The X-Request-Id of an answer; undefined where it has none, or several that differ. */
export function requestIdOf(headers: readonly string[]): string | undefined {
  let id: string | undefined;
  for (let at = 0; at < headers.length; at += 2) {
    const name = headers[at] as string;
    if (name.length !== X_REQUEST_ID.length || name.toLowerCase() !== X_REQUEST_ID) continue;
    if (id !== undefined && id !== headers[at + 1]) return undefined;
    id = headers[at + 1];
  }
  return id;
}

const X_REQUEST_ID = 'x-request-id';

/**
 * Where headers become variables, as in every CGI-like environment, x_caller_id and x.caller.id pass for X-Caller-Id: so
 * names are letters, digits and hyphens here, whatever else HTTP allows.
 */
const isPlain = (name: string): boolean => PLAIN.test(name) && !name.startsWith('x-forwarded');
const PLAIN = /^[a-z0-9-]+$/;

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
  const names = named ?? new Set();
  for (const option of listed(options)) names.add(option);
  return names;
}

const without = (headers: readonly string[], named: ReadonlySet<string>): string[] =>
  headers.filter((_, at) => !named.has((headers[at - (at % 2)] as string).toLowerCase()));
