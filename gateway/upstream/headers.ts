import { randomInt } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { CALLER_ID } from '../../shared/http/request-head.ts';
import { listed } from '../../shared/lists.ts';

/** Decides which headers pass through the gateway, in one pass per direction over flat lists of names and values. */

/** These are for one connection only, so they are never forwarded (RFC 9110 §7.6.1, RFC 2616 §13.5.1). */
const HOP_BY_HOP: ReadonlySet<string> = new Set([
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authentication-info',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/**
 * Never accepted from a client: headers that we set, or from which servers take the caller, address, method or target.
 */
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

/** Never accepted from the core: the gateway sets these itself, and creates `date` and framing anew. */
const NOT_THE_CORES: ReadonlySet<string> = new Set([
  'date',
  'deprecation',
  'ratelimit',
  'ratelimit-policy',
  'retry-after',
  'server',
  'set-cookie',
  'strict-transport-security',
  'sunset',
  'x-content-type-options',
  'x-request-id',
]);

/** The client's headers that the core gets. */
export const requestHeaders = (rawHeaders: readonly string[]): string[] => filter(rawHeaders, OF_CLIENTS);

const LENGTH: ReadonlySet<string> = new Set(['content-length']);
const OURS_TO_SAY = /^(?:x-ratelimit|access-control)-/;

/**
 * The core's headers that the client gets: all except those that the gateway sets. Every 429 and 503 has a Retry-After,
 * with the core's value if there is one.
 */
export function responseHeaders(rawHeaders: readonly string[], status: number): string[] {
  const kept = filter(rawHeaders, OF_CORES);
  // A 101 or 204 has no length (RFC 9110 §8.6).
  if (status === 101 || status === 204) return without(kept, LENGTH);
  if (status === 503 || status === 429) kept.push('Retry-After', waitOf(rawHeaders));
  return kept;
}

/** The seconds until the core's Retry-After, which may be a date (RFC 9110 §10.2.3); one second if there is none. */
function waitOf(headers: readonly string[]): string {
  const at = headers.findIndex((name, place) => place % 2 === 0 && name.toLowerCase() === 'retry-after');
  const wait = at === -1 ? undefined : headers[at + 1];
  if (wait === undefined || /^0*[1-9]\d{0,8}$/.test(wait)) return wait ?? '1';
  return String(Math.max(1, Math.ceil((Date.parse(wait) - Date.now()) / 1_000) || 1));
}

/** Problem details (RFC 9457) are JSON too. */
const JSON_TYPE = /^application\/(?:[\w.-]+\+)?json[\t ]*(?:;|$)/i;

/**
 * The type of a response that is not JSON, and so is probably not the core's.
 * @param isEmpty whether it has no body. It then needs no type
 */
export function foreignType(rawHeaders: readonly string[], isEmpty: boolean): string | undefined {
  let isTyped = isEmpty;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    if (rawHeaders[at]?.toLowerCase() !== 'content-type') continue;
    const type = rawHeaders[at + 1] as string;
    if (!JSON_TYPE.test(type)) return type.split(';', 1)[0]?.trim() || 'an empty Content-Type';
    isTyped = true;
  }
  return isTyped ? undefined : 'a body without Content-Type';
}

/** Whether a response has a body, whatever its headers say (RFC 9112 §6.3). */
export const hasBody = (isHead: boolean, status: number): boolean => !isHead && status !== 204 && status !== 304;

/**
 * Servers that turn headers into variables, as in CGI, read x_caller_id and x.caller.id as X-Caller-Id. Therefore names
 * may contain only letters, digits and hyphens, although HTTP allows more.
 */
const isPlain = (name: string): boolean => PLAIN.test(name) && !name.startsWith('x-forwarded');
const PLAIN = /^[a-z0-9-]+$/;

type Treatment = 'keep' | 'drop' | 'connection';

/** Most senders use the same few spellings, so these are cached. Names beyond these limits are looked up each time. */
const MAX_SPELLINGS = 500;
const MAX_SPELLING_LENGTH = 64;

/** Decides what happens to each header, by its name as received. */
class Treatments {
  readonly #known = new Map<string, Treatment>();
  readonly #isWanted: (name: string) => boolean;

  /** @param isWanted called with the name in lower case */
  constructor(isWanted: (name: string) => boolean) {
    this.#isWanted = isWanted;
  }

  of(header: string): Treatment {
    return this.#known.get(header) ?? this.#find(header);
  }

  #find(header: string): Treatment {
    const name = header.toLowerCase();
    const isKept = !HOP_BY_HOP.has(name) && this.#isWanted(name);
    const found = name === 'connection' ? name : isKept ? 'keep' : 'drop';
    // The name is copied, because it can be a slice of the whole head, which would then stay in memory.
    if (this.#known.size < MAX_SPELLINGS && header.length <= MAX_SPELLING_LENGTH)
      this.#known.set(Buffer.from(header, 'latin1').toString('latin1'), found);
    return found;
  }
}

const OF_CLIENTS = new Treatments((name) => !OURS.has(name) && isPlain(name));
const OF_CORES = new Treatments((name) => !NOT_THE_CORES.has(name) && !OURS_TO_SAY.test(name));

/**
 * Keeps the wanted headers. Never keeps those for one connection only: HOP_BY_HOP, and any that the sender names in
 * Connection (RFC 9110 §7.6.1).
 */
function filter(rawHeaders: readonly string[], treatments: Treatments): string[] {
  const kept: string[] = [];
  let named: Set<string> | undefined;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const header = rawHeaders[at] as string;
    const treatment = treatments.of(header);
    if (treatment === 'keep') kept.push(header, rawHeaders[at + 1] as string);
    else if (treatment === 'connection') named = addNamed(named, rawHeaders[at + 1] as string);
  }
  return named === undefined ? kept : without(kept, named);
}

function addNamed(named: Set<string> | undefined, connection: string): Set<string> | undefined {
  const options = connection.toLowerCase();
  if (options === 'keep-alive' || options === 'close') return named;
  const names = named ?? new Set();
  // Content-Length is part of the message, even if Connection names it.
  for (const option of listed(options)) if (option !== 'content-length') names.add(option);
  return names;
}

const without = (headers: readonly string[], named: ReadonlySet<string>): string[] =>
  headers.filter((_, at) => !named.has((headers[at - (at % 2)] as string).toLowerCase()));

/** The client that sends a request. */
export interface Sender {
  readonly id: string;
  /** The time, by performance.now(), until which its reads are expected to block others on the same connection. */
  slowUntil: number;
  /** The time until which its responses on `largePath` are expected to be too large for a shared connection. */
  largeUntil: number;
  largePath: string;
}

export const pathOf = (target: string): string => target.split('?', 1)[0] as string;

/** A WebSocket handshake. */
export interface Upgrade {
  readonly request: IncomingMessage;
  readonly socket: Socket;
  /** A flat list of names and values, which is sent with the 101 after the core's own headers. */
  readonly headers: readonly string[];
  /** Called once the client's connection and the core's are connected. */
  opened(core: Socket): void;
}

/** A request for the core. */
export interface UpstreamRequest {
  readonly method: string;
  /** Path and query in canonical form. */
  readonly target: string;
  /** Flat list, filtered, without X-Request-Id: each attempt has its own. */
  readonly headers: string[];
  readonly body: Buffer | undefined;
  /** The id that the client sees. Other requests may have the same one. */
  readonly id: string;
  /** The client, because connections are shared fairly between clients. */
  readonly client: Sender;
  readonly upgrade?: Upgrade | undefined;
}

/** Whether a request only reads and has no body, so that it may be sent twice and share a connection. */
export const isRepeatable = ({ method, body }: UpstreamRequest): boolean =>
  (method === 'GET' || method === 'HEAD') && body === undefined;

/** A random number of a fixed length, because several processes may get requests with the same id. */
const PROCESS = String(randomInt(1e9)).padStart(9, '0');
let attempts = 0;

/**
 * The X-Request-Id that the core gets with an attempt: the request's id and a suffix that is unique to the attempt. A
 * response then shows which attempt it belongs to, and one id finds a request in every log.
 */
export const attemptIdOf = (requestId: string): string => `${requestId}.${PROCESS}${++attempts}`;

/** Invalid characters in a field value (RFC 9110 §5.5). A line ending would begin another header or request. */
const NOT_IN_VALUES = /[^\t\x20-\x7e\x80-\xff]/;

/**
 * A request as a string, head and body, one character per byte (RFC 9112 §3).
 * @param id the id of the attempt
 * @param host the core's Host
 * @throws for a value that no known parser would have accepted
 */
export function writeRequest(request: UpstreamRequest, id: string, host: string): string {
  const { method, target, headers, body } = request;
  let text = `${method} ${target} HTTP/1.1\r\nHost: ${host}\r\n`;
  for (let at = 0; at < headers.length; at += 2) {
    const value = headers[at + 1] as string;
    if (NOT_IN_VALUES.test(value)) throw new Error(`The header ${headers[at]} has a value that cannot be sent.`);
    text += `${headers[at]}: ${value}\r\n`;
  }
  text += `X-Request-Id: ${id}\r\n`;
  if (isRepeatable(request)) return `${text}\r\n`;
  // A write has a Content-Length even if it has no body (RFC 9110 §8.6).
  return `${text}Content-Length: ${body?.length ?? 0}\r\n\r\n${body?.toString('latin1') ?? ''}`;
}
