import type { IncomingMessage, ServerResponse } from 'node:http';
import { type Logger, logInfoLine } from '../process/logger.ts';
import type { Metrics } from '../process/metrics.ts';
import { toJson } from '../schemas/json.ts';
import { errorBody, HttpError, methodNotAllowed, toHttpError, unavailable } from './errors.ts';
import {
  CALLER_ID,
  carriesToken,
  checkHead,
  commonHeaders,
  type HeadLimits,
  originForm,
  requestIdOf,
  traceOf,
} from './request-head.ts';
import type { Listening } from './server.ts';

/** The gateway adds headers to requests, so this limit is above the gateway's. The parser limits the bytes. */
const HEAD_LIMITS: HeadLimits = { lines: 150, bytes: Number.POSITIVE_INFINITY };
const MAX_LOGGED_CALLER = 64;

/** All requests without a query share this object, which is never changed. */
const NO_QUERY = new URLSearchParams();

/** The input of an operation. */
export interface Call<Parts, Caller = undefined> {
  readonly deps: Parts;
  /** The caller, as identified by the access rules. */
  readonly caller: Caller;
  readonly requestId: string;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** The path's parameters, in order. */
  readonly params: readonly string[];
  readonly path: string;
  readonly query: URLSearchParams;
}

/**
 * The response of an operation: a status, and either a `body` to serialize as JSON, or text that is sent unchanged,
 * which is JSON unless a header sets another type.
 */
export interface Answer {
  readonly status: number;
  readonly body?: unknown;
  readonly json?: string;
  readonly headers?: readonly string[];
}

export type Operation<Parts, Caller = undefined> = (call: Call<Parts, Caller>) => Promise<Answer>;

export interface ServiceRoute<Parts, Caller = undefined> extends Route {
  readonly name: string;
  readonly operation: Operation<Parts, Caller>;
  /** The permission that a caller needs, as the access rules name it; undefined for their default. */
  readonly needs?: string;
  readonly isOpen?: boolean;
  /** Whether machines call the operation continually, so that only its failures are logged. */
  readonly isRoutine?: boolean;
}

/** The access rules of a service. A function refuses a request by throwing an {HttpError}. */
export interface Access<Caller> {
  /** Called first for every request. @param isOpen whether the path requires no authentication */
  identify(request: IncomingMessage, isOpen: boolean): Promise<Caller>;
  /** Called for every route that is not open. By default every caller may call every route. */
  authorize?(caller: Caller, route: Pick<ServiceRoute<never>, 'method' | 'needs'>): void;
}

/**
 * Access by bearer tokens, each of which allows every operation.
 * @param tokens called for every request; no token is required if it returns undefined
 * @throws {RangeError} for an empty token or list of tokens, because its meaning is unclear
 */
export function bearerTokens(tokens: () => readonly string[] | undefined): Access<undefined> {
  if (tokens()?.length === 0 || tokens()?.includes('')) throw new RangeError('A service token must not be empty.');
  return {
    async identify({ headers }, isOpen) {
      if (isOpen) return undefined;
      const expected = tokens();
      if (expected === undefined || carriesToken(headers.authorization, expected)) return undefined;
      throw noToken();
    },
  };
}

export const noToken = (): HttpError => new HttpError('unauthorized', 'A token for this service is required.');

export interface ServiceOptions<Parts, Caller = undefined> {
  readonly routes: readonly ServiceRoute<Parts, Caller>[];
  readonly deps: Parts;
  readonly logger: Logger;
  /** The Cache-Control header of responses that do not set their own. */
  readonly cacheControl?: string;
  /** The message of the service's log lines; `request` by default. */
  readonly logsAs?: string;
  /** Removes secrets from logged text. */
  readonly redact?: (text: string) => string;
  readonly metrics: Metrics;
  readonly access: Access<Caller>;
  /**
   * The check behind `/readyz`. Throws if the service cannot work. @returns a problem that does not stop the service;
   * undefined if there is none
   */
  check(): Promise<string | undefined>;
}

/** Creates a JSON service from a table of typed operations. Each request gets exactly one response. */
export function createService<Parts, Caller extends { readonly name: string | undefined } | undefined>(
  options: ServiceOptions<Parts, Caller>,
): Pick<Listening, 'onRequest'> {
  const { deps, logger, logsAs = 'request', redact = (text) => text, metrics, access, cacheControl } = options;
  const routes = [...options.routes, ...ownRoutes(options)];
  const router = createRouter(routes);
  const open = new Set(routes.filter(({ isOpen }) => isOpen).map(({ path }) => path));
  const answered = metrics.requests(routes.map(({ name }) => name));

  async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const startedAt = performance.now();
    const requestId = requestIdOf(request, (id) => redact(id) === id);
    let [path, search] = splitTarget(request.url ?? '');
    let caller: Caller | undefined;
    let route: ServiceRoute<Parts, Caller> | undefined;
    let error: HttpError | undefined;
    try {
      // The head is checked before anything is awaited: if it closes the connection, no further request may begin.
      const { authorization, host } = checkHead(request, HEAD_LIMITS);
      [path, search] = splitTarget(originForm(request.url ?? '', host));
      // Of two Authorization headers, Node would keep the first.
      if (authorization === '') request.headers.authorization = authorization;
      const found = router.lookUp(request.method ?? '', path);
      caller = await access.identify(request, found?.route.isOpen ?? open.has(path));
      const match = found ?? router.find(request.method ?? '', path);
      route = match.route;
      if (!route.isOpen) access.authorize?.(caller, route);
      const query = search === '' ? NO_QUERY : new URLSearchParams(search);
      const call = { deps, caller, requestId, request, response, params: match.params, path, query };
      send(response, await route.operation(call), requestId);
    } catch (thrown) {
      error = toHttpError(thrown);
      if (error.closes || !request.complete) response.shouldKeepAlive = false;
      send(response, refusal(error), requestId);
    }
    const status = response.statusCode;
    answered(route?.name, status, (performance.now() - startedAt) / 1_000);
    const callerId = request.headers[CALLER_ID];
    const line = {
      requestId,
      traceId: traceOf(request).id,
      method: request.method ?? undefined,
      path: redact(path).slice(0, MAX_LOGGED_PATH) || undefined,
      operation: route?.name,
      status,
      code: error?.code,
      actor: caller?.name,
      callerId: typeof callerId === 'string' ? redact(callerId).slice(0, MAX_LOGGED_CALLER) : undefined,
      durationMs: roundedMs(performance.now() - startedAt),
    };
    logRequest(logger, logsAs, line, error, route?.isRoutine);
  }

  function send(response: ServerResponse, { status, body, json, headers = [] }: Answer, requestId: string): void {
    const text = json ?? (body === undefined ? '' : toJson(body));
    const own = ['X-Request-Id', requestId, ...commonHeaders(response.req.socket)];
    if (cacheControl !== undefined && !headers.includes('Cache-Control')) own.push('Cache-Control', cacheControl);
    if (text !== '') own.push('Content-Length', String(Buffer.byteLength(text)));
    if (text !== '' && !headers.includes('Content-Type')) own.push('Content-Type', 'application/json');
    own.push(...headers);
    response.writeHead(status, own);
    response.end(response.req.method === 'HEAD' ? undefined : text);
  }

  return { onRequest: (request, response) => void serve(request, response) };
}

function refusal(error: HttpError): Answer {
  const challenge = error.status === 401 ? ['WWW-Authenticate', 'Bearer'] : [];
  return { status: error.status, json: errorBody(error), headers: [...challenge, ...error.headers] };
}

/** The routes by which every service reports its own state, without a token. */
function ownRoutes<Parts, Caller>({ metrics, check }: ServiceOptions<Parts, Caller>): ServiceRoute<Parts, Caller>[] {
  const operations: Record<string, Operation<Parts, Caller>> = {
    livez: async () => ({ status: 200, body: { status: 'alive' } }),
    readyz: async () => ({ status: 200, body: { status: 'ready', detail: await check().catch(notReady) } }),
    async metrics() {
      const { text, type } = await metrics.expose();
      return { status: 200, json: text, headers: ['Content-Type', type] };
    },
  };
  const common = { method: 'GET', isOpen: true, isRoutine: true };
  return Object.entries(operations).map(([name, operation]) => ({ ...common, name, path: `/${name}`, operation }));
}

/** An unknown fault makes the service not ready. */
function notReady(fault: unknown): never {
  throw fault instanceof HttpError ? fault : unavailable(fault);
}

function splitTarget(target: string): [path: string, search: string] {
  const mark = target.indexOf('?');
  return mark === -1 ? [target, ''] : [target.slice(0, mark), target.slice(mark + 1)];
}

export interface Route {
  readonly method: string;
  readonly path: string;
}

interface Match<R> {
  readonly route: R;
  /** The segments that the `{name}`s match, in order and as received. */
  readonly params: readonly string[];
}

/**
 * Builds the map from method and path to an operation. Path templates use OpenAPI syntax; a `{name}` matches one
 * non-empty segment. Paths are compared as received, so each has exactly one spelling. A lookup of a fixed path is one
 * map access, any other a few comparisons.
 */
export function createRouter<R extends Route>(routes: readonly R[]) {
  const compiled = routes.map((route) => ({ route, pattern: toPattern(route.path) }));
  const fixed = new Map<string, Match<R>>(
    routes.filter(({ path }) => !path.includes('{')).map((route) => [nameOf(route), { route, params: [] }]),
  );

  /** The operation; undefined if there is none. */
  function lookUp(method: string, path: string): Match<R> | undefined {
    const wanted = method === 'HEAD' ? 'GET' : method;
    const exact = fixed.get(`${wanted} ${path}`);
    if (exact !== undefined) return exact;
    for (const { route, pattern } of compiled) {
      const found = route.method === wanted ? pattern.exec(path) : null;
      if (found !== null) return { route, params: found.slice(1) };
    }
    return undefined;
  }

  /** @throws {HttpError} 404 for an unknown path; 405 with the allowed methods (RFC 9110 §10.2.1) for another method */
  function find(method: string, path: string): Match<R> {
    const match = lookUp(method, path);
    if (match !== undefined) return match;
    const methods = allowed(path);
    throw methods === undefined ? new HttpError('not_found') : methodNotAllowed(methods);
  }

  /** The methods of a path, as in Allow; undefined for an unknown path. */
  function allowed(path: string): string | undefined {
    return methodsOf(compiled.filter(({ pattern }) => pattern.test(path)).map(({ route }) => route));
  }

  return { find, lookUp, allowed };
}

/** The methods of routes, as in Allow; undefined without routes. */
export function methodsOf(routes: readonly Route[]): string | undefined {
  const methods = routes.flatMap(({ method }) => (method === 'GET' ? ['GET', 'HEAD'] : [method]));
  return methods.length === 0 ? undefined : [...new Set(methods)].join(', ');
}

const nameOf = (route: Route): string => `${route.method} ${route.path}`;

function toPattern(template: string): RegExp {
  const source = template.replaceAll(/[.*+?^$()|[\]\\]/g, '\\$&').replaceAll(/\{\w+\}/g, '([^/]+)');
  return new RegExp(`^${source}$`);
}

/** No path of the API is longer than this. A longer one could make a log line too long for one atomic write. */
export const MAX_LOGGED_PATH = 1_024;

/** The fields that every service logs for a request. A service adds its own. */
interface RequestLine {
  readonly requestId: string;
  readonly traceId: string;
  readonly status: number;
  readonly code: string | undefined;
}

/**
 * Writes the log line of a request. Every failure includes its cause: `err` with the stack for unknown faults,
 * otherwise `reason`.
 * @param error the error in the response
 * @param isRoutine whether machines send this request continually, so that a success is logged at debug level only
 */
export function logRequest(
  logger: Logger,
  message: string,
  line: RequestLine,
  error: HttpError | undefined,
  isRoutine = false,
): void {
  if (error?.code === 'internal_error') logger.error({ ...line, err: error.cause }, message);
  else if (line.status >= 500)
    logger.warn({ ...line, reason: reasonOf(error?.cause ?? error?.message ?? ANSWERED_BY_CORE) }, message);
  else if (error?.cause !== undefined) logger.info({ ...line, reason: reasonOf(error.cause) }, message);
  else if (isRoutine) logger.debug(line, message);
  else logInfoLine(logger, line, message);
}

/** The reason for a failure that is not a gateway error. */
const ANSWERED_BY_CORE = 'The core sent this response. Its log shows why.';

/** Milliseconds, rounded for the log. */
export const roundedMs = (ms: number): number => Math.round(ms * 1_000) / 1_000;

/** A known fault in one line, down to its root cause. A stack would add nothing. */
function reasonOf(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause);
  const message = cause.message || (cause as NodeJS.ErrnoException).code || cause.name;
  return cause.cause instanceof Error ? `${message} ${reasonOf(cause.cause)}` : message;
}
