import type { IncomingMessage } from 'node:http';

/** What pages of other origins may do (CORS in the Fetch standard): nothing, unless their origin is configured. */

/**
 * The response headers that pages may read. Cache-Control, Content-Language, Content-Length, Content-Type, Expires and
 * Last-Modified need no listing.
 */
const EXPOSED = [
  'X-RateLimit-Limit',
  'X-RateLimit-Remaining',
  'X-RateLimit-Reset',
  'RateLimit-Policy',
  'RateLimit',
  'Retry-After',
  'Link',
  'X-Request-Id',
  'Deprecation',
  'Sunset',
].join(', ');

/** The headers are listed by name, because the wildcard does not cover Authorization. */
const ALLOWED_HEADERS = 'Authorization, Content-Type, Idempotency-Key, X-Request-Id, traceparent, tracestate';
const ALLOWED_METHODS = 'GET, HEAD, POST';
/** How long a browser caches a preflight answer. Chromium accepts no more. */
const MAX_AGE_SECONDS = '7200';

const NONE: readonly string[] = [];

export class Cors {
  readonly #origins: ReadonlySet<string>;

  /** @param origins as browsers send them, or '*' for any; an empty list disables CORS */
  constructor(origins: readonly string[]) {
    this.#origins = new Set(origins);
  }

  /**
   * Headers for every answer to a request from `origin`, as a flat list. Without them pages could not even read errors.
   */
  headersFor(origin: string | undefined): readonly string[] {
    if (this.#origins.size === 0) return NONE;
    const allowed = this.#allowed(origin);
    // A cache must not give one origin's answer to another.
    const vary = allowed === '*' ? NONE : ['Vary', 'Origin'];
    if (allowed === undefined) return vary;
    return [...vary, 'Access-Control-Allow-Origin', allowed, 'Access-Control-Expose-Headers', EXPOSED];
  }

  /** Headers of the answer to a preflight. Undefined for other requests, and when the origin is not allowed. */
  preflightHeaders({ method, headers }: IncomingMessage): readonly string[] | undefined {
    if (method !== 'OPTIONS' || headers['access-control-request-method'] === undefined) return undefined;
    if (headers.origin === undefined || this.#allowed(headers.origin) === undefined) return undefined;
    return [
      'Access-Control-Allow-Methods',
      ALLOWED_METHODS,
      'Access-Control-Allow-Headers',
      ALLOWED_HEADERS,
      'Access-Control-Max-Age',
      MAX_AGE_SECONDS,
    ];
  }

  #allowed(origin: string | undefined): string | undefined {
    if (this.#origins.has('*')) return '*';
    return origin !== undefined && this.#origins.has(origin) ? origin : undefined;
  }
}
