import { randomInt } from 'node:crypto';

/** The client that sends a request. */
export interface Sender {
  readonly id: string;
  /** Until then, by performance.now(), its reads are expected to block those behind them on one connection. */
  slowUntil: number;
  /** Until then its answers are expected to be too large for a shared connection. */
  largeUntil: number;
}

/** A request for the core. */
export interface UpstreamRequest {
  readonly method: string;
  /** Path and query in canonical form. */
  readonly target: string;
  /** Flat list, filtered, without X-Request-Id: each attempt has its own. */
  readonly headers: string[];
  readonly body: Buffer | undefined;
  /** The id that the client knows. Other requests may have the same one. */
  readonly id: string;
  /** Clients share connections fairly. */
  readonly client: Sender;
}

/** Whether it may be sent twice and share a connection: it only reads, and has no body. All others are writes. */
export const isRepeatable = ({ method, body }: UpstreamRequest): boolean =>
  (method === 'GET' || method === 'HEAD') && body === undefined;

/** Random, and of a fixed length: several processes may get requests with the same id. */
const PROCESS = String(randomInt(1e9)).padStart(9, '0');
let attempts = 0;

/**
 * The X-Request-Id that the core gets with an attempt: the request's id and a suffix that is unique to the attempt. So
 * an answer shows which attempt it belongs to, and one id finds a request in every log.
 */
export const attemptIdOf = (requestId: string): string => `${requestId}.${PROCESS}${++attempts}`;

/** Invalid characters in a field value (RFC 9110 §5.5). A line ending would begin another header or request. */
const NOT_IN_VALUES = /[^\t\x20-\x7e\x80-\xff]/;

/**
 * The text of a request, head and body, one character per byte (RFC 9112 §3).
 * @param id of the attempt
 * @param host the Host of the core
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
  // A write without a body says so (RFC 9110 §8.6).
  return `${text}Content-Length: ${body?.length ?? 0}\r\n\r\n${body?.toString('latin1') ?? ''}`;
}
