import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { takesNoBody } from '../../shared/http/body.ts';
import { reset } from '../../shared/http/connection.ts';
import { errorBody, HttpError, helpFor, methodNotAllowed } from '../../shared/http/errors.ts';
import { methodsOf } from '../../shared/http/service.ts';
import { SECOND, ticksUntilFull } from '../limiter/bucket.ts';
import type { KeyFacts } from '../limiter/client.ts';
import { SCOPES } from '../limiter/credential.ts';
import { dateOf } from '../limiter/key-record.ts';
import type { BucketState, Decision, Limiter, LimitStatus, Verdict } from '../limiter/limiter.ts';
import type { AddressAllowance } from '../limiter/newcomers.ts';
import type { PlanTable } from '../limiter/plans.ts';
import { patienceOf, strikesLeft } from '../limiter/refusals.ts';
import type { Reference, ReferenceFile } from '../reference/files.ts';
import { type GatewayRoute, LIMITS_ROUTE } from '../routes.ts';
import { isCurrent, MAX_LIST_LENGTH, safetyHeaders } from '../static-file.ts';
import type { factsReader } from '../stores/keys.ts';
import type { CanonicalRequest, Exchange } from '../telemetry/exchange.ts';
import type { KeyRefusal } from '../telemetry/key-refusals.ts';
import { authenticate, MALFORMED, refusalOf, refuseKeyInTarget, UNAUTHORIZED } from './authorize.ts';
import { clientHeaders, retryAfterSeconds } from './client-http.ts';

export interface OwnAnswersDependencies {
  readonly routes: readonly GatewayRoute[];
  readonly limiter: Limiter;
  readonly factsOf: ReturnType<typeof factsReader>;
  readonly refusals: (id: string) => Promise<readonly KeyRefusal[] | undefined>;
  readonly plans: () => PlanTable;
  readonly allowance: AddressAllowance;
  /** The allowance that pays for reading the reference. */
  readonly readers: AddressAllowance;
  /** Undefined if no pages from other origins are allowed. */
  readonly cors: Cors | undefined;
  readonly reference: Reference;
}

/** The address pays for these requests, even if they have a valid key. */
const TOO_MANY = new HttpError(
  'rate_limit_exceeded',
  'This address has sent too many requests that do not count against a key. Retry after the time in the Retry-After header.',
);

/**
 * Answers preflights, OPTIONS, and requests for the reference or the limit status. The address pays for these, never a
 * key.
 */
export class OwnAnswers {
  readonly #deps: OwnAnswersDependencies;
  readonly #methods: string;
  readonly #allowed: (path: string) => string | undefined;
  readonly #record: (exchange: Exchange, verdict: Verdict) => void;

  /**
   * @param allowed the methods of a path; undefined for an unknown path
   * @param record records a verdict that refuses the key
   */
  constructor(
    deps: OwnAnswersDependencies,
    allowed: (path: string) => string | undefined,
    record: (exchange: Exchange, verdict: Verdict) => void,
  ) {
    this.#deps = deps;
    this.#methods = methodsOf(deps.routes) ?? '';
    this.#allowed = allowed;
    this.#record = record;
  }

  /**
   * @returns undefined if the core must answer
   * @throws {HttpError} 400, 401, 405, 429 or 503
   */
  answerTo(request: CanonicalRequest, exchange: Exchange): OwnAnswer | Promise<OwnAnswer> | undefined {
    const preflight = request.hasBody ? undefined : this.#deps.cors?.preflightHeaders(exchange.request, this.#methods);
    if (preflight !== undefined) return this.#preflight(exchange, preflight);
    const file = this.#deps.reference.get(request.path);
    if (file !== undefined) {
      exchange.ownAnswer = 'reference';
      exchange.addressStatus = this.#deps.readers.consume(exchange.network, costOf(file, exchange.request.headers));
      return answerWithFile(exchange, request, file, exchange.addressStatus);
    }
    if (request.path === LIMITS_ROUTE.path && (request.method === 'GET' || request.method === 'HEAD'))
      return this.#limits(request, exchange);
    const allowed = request.method === 'OPTIONS' ? this.#methodsOn(request.path) : undefined;
    if (allowed === undefined) return undefined;
    this.#charge(exchange);
    if (request.hasBody) throw takesNoBody();
    return { status: 204, headers: ['Allow', allowed] };
  }

  /** A preflight is free, because a browser sends no key with it. */
  #preflight(exchange: Exchange, headers: readonly string[]): OwnAnswer {
    exchange.ownAnswer = 'own';
    exchange.addressStatus = this.#deps.allowance.peek(exchange.network);
    return { status: 204, headers };
  }

  /** Answers with the limit status of a key. This takes no token and does not count as a decision. */
  async #limits(request: CanonicalRequest, exchange: Exchange): Promise<OwnAnswer> {
    const credential = authenticate(request.authorization, { scope: undefined, address: exchange.clientAddress });
    // Set before the charge, so that a refusal by the address limit is recorded under the key.
    exchange.credential = credential;
    this.#charge(exchange);
    exchange.route = LIMITS_ROUTE;
    refuseKeyInTarget(request.target);
    if (request.hasBody) throw takesNoBody();
    const wantsRefusals = readRefusals(request.target);
    const verdict = credential === undefined ? MALFORMED : await this.#deps.limiter.peek(credential);
    if (credential === undefined || verdict.outcome === 'undecided' || verdict.outcome === 'unauthorized') {
      this.#record(exchange, verdict);
      throw refusalOf(verdict, exchange.addressStatus, undefined);
    }
    exchange.keyStatus = verdict;
    const known = await this.#deps.factsOf(credential);
    if (known === undefined) {
      exchange.keyStatus = undefined;
      throw UNAUTHORIZED;
    }
    const limits = describeLimits(verdict, known, this.#deps.plans());
    const refusals = wantsRefusals ? { refusals: (await this.#deps.refusals(credential.id)) ?? null } : undefined;
    const body = JSON.stringify({ ...limits, ...refusals });
    return { status: 200, headers: ['Content-Type', 'application/json'], body };
  }

  /** The methods of a path (RFC 9110 §9.3.7); undefined for an unknown path. */
  #methodsOn(path: string): string | undefined {
    const methods = path === '*' ? this.#methods : this.#allowed(path);
    return methods && `${methods}, OPTIONS`;
  }

  #charge(exchange: Exchange): void {
    exchange.ownAnswer = 'own';
    exchange.addressStatus = this.#deps.allowance.consume(exchange.network);
    if (exchange.addressStatus.outcome === 'refused') throw TOO_MANY;
  }
}

/** Whether a request for limits asks for refusals, which requires a query to all gateways. @throws {HttpError} 400 */
function readRefusals(target: string): boolean {
  const [given = 'false', ...more] = new URLSearchParams(target.split('?')[1]).getAll('refusals');
  if (more.length === 0 && (given === 'true' || given === 'false')) return given === 'true';
  throw new HttpError('invalid_parameter', 'refusals must be true or false, and must be given once.');
}

/** The body of GET /v1/limits. Times are Unix seconds, except `expiresAt`, which is ISO 8601. */
function describeLimits(decision: Decision, { name, expiresAt, refusals, days }: KeyFacts, plans: PlanTable) {
  const [minute, day] = decision.buckets as readonly [BucketState, BucketState];
  const until = Math.ceil(decision.bannedUntil / SECOND);
  return {
    name,
    plan: decision.plan,
    minute: describeBucket(minute, decision.now),
    day: describeBucket(day, decision.now),
    waitSeconds: retryAfterSeconds(decision) ?? 0,
    strikesLeft: strikesLeft(refusals, decision.now, patienceOf(plans[decision.plan], minute.limit)),
    ban: decision.outcome === 'banned' ? { until, retryAfter: retryAfterSeconds(decision) } : null,
    bannedUntil: decision.outcome === 'banned' ? until : null,
    scope: decision.bounds?.scope ?? SCOPES,
    expiresAt: expiresAt === undefined ? null : new Date(expiresAt / 1_000).toISOString(),
    usage: days.map(({ at, admitted, refused }) => ({ day: dateOf(at), admitted, refused })),
  };
}

function describeBucket(bucket: BucketState, now: number) {
  const { limit, tokens, window } = bucket;
  const reset = Math.ceil((now + ticksUntilFull(bucket, limit, window)) / SECOND);
  return { limit, remaining: tokens, reset, refillPerSecond: (limit * SECOND) / window };
}

/** What pages from other origins may do (CORS in the Fetch standard): nothing, unless their origin is configured. */

/**
 * The response headers that pages may read. Cache-Control, Content-Language, Content-Length, Content-Type, Expires and
 * Last-Modified are always readable.
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
/** How long a browser caches a preflight response. Chromium caps the time at this value. */
const MAX_AGE_SECONDS = '7200';

const NONE: readonly string[] = [];

export class Cors {
  readonly #origins: ReadonlySet<string>;

  /** @param origins as browsers send them, or '*' for any */
  constructor(origins: readonly string[]) {
    this.#origins = new Set(origins);
  }

  /**
   * Headers for every response to a request from `origin`, as a flat list. Without them pages could not even read
   * errors.
   */
  headersFor(origin: string | undefined): readonly string[] {
    const allowed = this.#allowed(origin);
    // A cache must not send one origin's response to another.
    const vary = allowed === '*' ? NONE : ['Vary', 'Origin'];
    if (allowed === undefined) return vary;
    return [...vary, 'Access-Control-Allow-Origin', allowed, 'Access-Control-Expose-Headers', EXPOSED];
  }

  /**
   * Headers of the response to a preflight. Undefined for other requests, and when the origin is not allowed.
   * @param methods the methods of all operations
   */
  preflightHeaders({ method, headers }: IncomingMessage, methods: string): readonly string[] | undefined {
    if (method !== 'OPTIONS' || headers['access-control-request-method'] === undefined) return undefined;
    if (headers.origin === undefined || this.#allowed(headers.origin) === undefined) return undefined;
    return [
      'Access-Control-Allow-Methods',
      methods,
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

/**
 * The number of reads that a file costs.
 * @param headers the request's headers. A file that the client already has costs one
 */
const costOf = (file: ReferenceFile, headers: IncomingHttpHeaders): number =>
  isCurrent(headers['if-none-match'], file.etag) ? 1 : file.cost;

/**
 * Answers with a reference file. No key is needed, because the address's allowance pays.
 * @throws {HttpError} 429, 405 or 400
 */
async function answerWithFile(
  exchange: Exchange,
  asked: CanonicalRequest,
  file: ReferenceFile,
  addressStatus: LimitStatus,
): Promise<OwnAnswer> {
  const { headers } = exchange.request;
  if (addressStatus.outcome === 'refused') {
    if (!isPage(asked.target) || !takesHtml(headers.accept)) throw TOO_MANY;
    exchange.error = TOO_MANY;
    return waitingPage(addressStatus);
  }
  if (asked.method !== 'GET' && asked.method !== 'HEAD') throw methodNotAllowed('GET, HEAD');
  exchange.route = file;
  if (asked.hasBody) throw takesNoBody();
  const mark = asked.target.indexOf('?');
  const kept = file.cacheControl(mark === -1 ? '' : asked.target.slice(mark + 1));
  const ours = [...file.headers, 'Cache-Control', kept];
  // Preconditions apply to a file, but not to a redirect (RFC 9110 §13.2.1).
  if (file.status !== 200) return { status: file.status, headers: ours };
  if (isCurrent(headers['if-none-match'], file.etag)) return { status: 304, headers: ours };
  if (!takesGzip(headers['accept-encoding'])) return { status: file.status, headers: ours, body: file.body };
  return { status: file.status, headers: [...ours, 'Content-Encoding', 'gzip'], body: await file.compressed() };
}

/** Whether gzip is listed and its weight is not 0 (RFC 9110 §12.5.3). */
function takesGzip(acceptEncoding = ''): boolean {
  if (acceptEncoding.length > MAX_LIST_LENGTH) return false;
  return acceptEncoding.split(',').some((coding) => {
    const [name, weight = ''] = coding.toLowerCase().split(';');
    return name?.trim() === 'gzip' && !/^\s*q=0(?:\.0*)?\s*$/.test(weight);
  });
}

/** Whether the target is a page. The OpenAPI document is not, because only programs read it. */
const isPage = (target: string): boolean => target.startsWith('/docs');

/** Browsers accept text/html when they open a page. Scripts accept other types. */
const takesHtml = (accept = ''): boolean => accept.toLowerCase().includes('text/html');

/**
 * The 429 page for people who open the reference too often. Programs get the Error shape.
 * @param addressStatus determines the time to wait
 */
function waitingPage(addressStatus: LimitStatus): OwnAnswer {
  const seconds = retryAfterSeconds(addressStatus) ?? 1;
  const headers = ['Content-Type', 'text/html; charset=utf-8', 'Cache-Control', 'no-store', ...safetyHeaders()];
  return { status: 429, headers, body: page(seconds === 1 ? 'a second' : `${seconds} seconds`) };
}

const page = (wait: string): string => `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <meta name="color-scheme" content="light dark" />
    <title>Too many requests</title>
  </head>
  <body>
    <main>
      <h1>Too many requests</h1>
      <p>Your network has requested this page too often. Try again in ${wait}.</p>
    </main>
  </body>
</html>
`;

/** A response that the gateway creates itself. */
interface OwnAnswer {
  readonly status: number;
  /** A flat list, without the headers that every response has. */
  readonly headers: readonly string[];
  readonly body?: string | Buffer | undefined;
}

export function sendOwnAnswer(exchange: Exchange, { status, headers, body }: OwnAnswer, draftFields: boolean): void {
  const { request, response } = exchange;
  const all = [...headers, ...clientHeaders(exchange, draftFields, headers), ...(exchange.lateHeaders?.() ?? [])];
  if (body !== undefined) all.push('Content-Length', String(Buffer.byteLength(body)));
  response.writeHead(status, all);
  response.end(request.method === 'HEAD' ? undefined : body);
}

/** Answers with an error in the Error shape. */
export function sendError(exchange: Exchange, error: HttpError, draftFields: boolean): void {
  const { request, response } = exchange;
  if (response.closed) return;
  exchange.error = error;
  if (response.headersSent) {
    // A half-sent response cannot be withdrawn. Cutting the connection keeps it from looking complete. In HTTP/1.0 the
    // end of the connection is the end of the response, so the connection is reset instead.
    if (request.httpVersion === '1.0') reset(request.socket);
    else response.destroy();
    return;
  }
  // The unread part of a body must not be read as the next request. If it is short, Node reads and drops it; otherwise
  // the connection is closed.
  if (!request.complete) {
    if (mayBeLong(exchange)) response.shouldKeepAlive = false;
    else request.resume();
  }
  if (error.closes || exchange.limitStatus?.closesConnection) response.shouldKeepAlive = false;
  const body = errorBody(error);
  const headers = [...head(body), ...clientHeaders(exchange, draftFields), ...error.headers, ...helpFor(error.code)];
  if (error.status === 401) headers.push('WWW-Authenticate', 'Bearer');
  if (exchange.lateHeaders !== undefined) headers.push(...exchange.lateHeaders());
  response.writeHead(error.status, headers);
  response.end(request.method === 'HEAD' ? undefined : body);
}

const SHORT_BODY_BYTES = 65_536;

function mayBeLong({ request: { headers } }: Exchange): boolean {
  const isAwaited = headers.expect !== undefined || headers['transfer-encoding'] !== undefined;
  return isAwaited || Number(headers['content-length'] ?? 0) > SHORT_BODY_BYTES;
}

const head = (body: string): string[] => [
  'Content-Type',
  'application/json',
  'Content-Length',
  String(Buffer.byteLength(body)),
];
