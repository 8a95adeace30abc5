import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import type { Logger } from '../process/logger.ts';
import type { Metrics } from '../process/metrics.ts';
import { toJson } from '../schemas/json.ts';
import type { Access } from './access.ts';
import { errorBody, HttpError, toHttpError, unavailable } from './errors.ts';
import { CALLER_ID, checkHeaderLines, requestIdOf } from './headers.ts';
import { LingeringClose } from './lingering-close.ts';
import { logRequest, MAX_LOGGED_PATH, millisecondsSince } from './request-log.ts';
import { createRouter, type Route } from './router.ts';
import { traceOf } from './trace.ts';

/** More than the gateway accepts, because it adds headers to what it forwards. */
const MAX_HEADER_LINES = 150;

/** The input of an operation. */
export interface Call<Parts, Caller = undefined> {
  readonly deps: Parts;
  /** Who calls, as the service's access rules found. */
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
 * The answer of an operation: a status, and a value to write as JSON or a text. The text is JSON unless a header says
 * otherwise.
 */
export interface Answer {
  readonly status: number;
  readonly body?: unknown;
  readonly json?: string;
  readonly headers?: readonly string[];
}

export type Operation<Parts, Caller = undefined> = (call: Call<Parts, Caller>) => Promise<Answer>;

export interface ServiceRoute<Parts, Caller = undefined> extends Route {
  /** The operation's name in metrics. */
  readonly name: string;
  readonly operation: Operation<Parts, Caller>;
  /** What a caller needs, in the words of the access rules; undefined for their default. */
  readonly needs?: string;
  /** Whether it is answered without a token. */
  readonly isOpen?: boolean;
  /** Whether machines call it all the time, so that only its failures are logged. */
  readonly isRoutine?: boolean;
}

export interface ServiceOptions<Parts, Caller = undefined> {
  readonly routes: readonly ServiceRoute<Parts, Caller>[];
  readonly deps: Parts;
  readonly logger: Logger;
  /** The message of its log lines; `request` by default. */
  readonly logsAs?: string;
  /** Removes secrets from logged text. */
  readonly redact?: (text: string) => string;
  readonly metrics: Metrics;
  readonly access: Access<Caller>;
  /** Throws when the service cannot work; used by `/readyz`. */
  check(): Promise<void>;
}

/** A JSON service: a table of typed operations, and exactly one answer per request. */
export function createService<Parts, Caller>(options: ServiceOptions<Parts, Caller>): RequestListener {
  const { deps, logger, logsAs = 'request', redact = (text) => text, metrics, access, check } = options;
  const routes = [...options.routes, ...ownRoutes<Parts, Caller>(metrics, check)];
  const router = createRouter(routes);
  const open = new Set(routes.filter(({ isOpen }) => isOpen).map(({ path }) => path));
  const answered = metrics.requests();
  const lingeringClose = new LingeringClose();

  async function answer(
    request: IncomingMessage,
    response: ServerResponse,
    told: Told<Parts, Caller>,
  ): Promise<Answer> {
    checkHeaderLines(request.rawHeaders, MAX_HEADER_LINES);
    access.admit(request);
    const [path, search] = splitTarget(request.url ?? '');
    const caller = await access.identify(request, open.has(path));
    told.callerName = access.nameOf(caller);
    const { route, params } = router.find(request.method ?? '', path);
    told.route = route;
    if (!route.isOpen) access.authorize(caller, route);
    const query = new URLSearchParams(search);
    const { requestId } = told;
    return await route.operation({ deps, caller, requestId, request, response, params, path, query });
  }

  function log(request: IncomingMessage, status: number, told: Told<Parts, Caller>): void {
    const { requestId, startedAt, route, error, callerName } = told;
    const caller = request.headers[CALLER_ID];
    const line = {
      requestId,
      traceId: traceOf(request).id,
      method: request.method,
      path: redact(splitTarget(request.url ?? '')[0]).slice(0, MAX_LOGGED_PATH),
      operation: route?.name,
      status,
      code: error?.code,
      actor: callerName,
      callerId: typeof caller === 'string' ? redact(caller).slice(0, MAX_LOGGED_CALLER) : undefined,
      durationMs: millisecondsSince(startedAt),
    };
    logRequest(logger, line, { message: logsAs, error, isRoutine: route?.isRoutine });
  }

  return async (request, response) => {
    const requestId = requestIdOf(request, (id) => redact(id) === id);
    const told: Told<Parts, Caller> = {
      requestId,
      startedAt: performance.now(),
      route: undefined,
      callerName: undefined,
      error: undefined,
    };
    try {
      send(response, await answer(request, response, told), requestId);
    } catch (thrown) {
      told.error = toHttpError(thrown);
      if (!request.complete) {
        response.shouldKeepAlive = false;
        lingeringClose.prepare(request);
      }
      send(response, refusal(told.error), requestId);
    }
    const { statusCode } = response;
    answered(told.route?.name ?? 'none', statusCode, (performance.now() - told.startedAt) / 1_000);
    log(request, statusCode, told);
  };
}

const MAX_LOGGED_CALLER = 64;

/** What is learned of a request on the way. */
interface Told<Parts, Caller> {
  readonly requestId: string;
  readonly startedAt: number;
  route: ServiceRoute<Parts, Caller> | undefined;
  callerName: string | undefined;
  error: HttpError | undefined;
}

function refusal(error: HttpError): Answer {
  const challenge = error.status === 401 ? ['WWW-Authenticate', 'Bearer'] : [];
  return { status: error.status, json: errorBody(error), headers: [...challenge, ...error.headers] };
}

/** What every service answers about itself, without a token. */
function ownRoutes<Parts, Caller>(metrics: Metrics, check: () => Promise<void>): ServiceRoute<Parts, Caller>[] {
  const livez: Operation<Parts, Caller> = async () => ({ status: 200, body: { status: 'alive' } });
  const readyz: Operation<Parts, Caller> = async () => {
    await check().catch(notReady);
    return { status: 200, body: { status: 'ready' } };
  };
  const exposition: Operation<Parts, Caller> = async () => {
    const { text, type } = await metrics.expose();
    return { status: 200, json: text, headers: ['Content-Type', type] };
  };
  return [
    { name: 'livez', method: 'GET', path: '/livez', operation: livez, isOpen: true, isRoutine: true },
    { name: 'readyz', method: 'GET', path: '/readyz', operation: readyz, isOpen: true, isRoutine: true },
    { name: 'metrics', method: 'GET', path: '/metrics', operation: exposition, isOpen: true, isRoutine: true },
  ];
}

/** A service with an unknown fault is not ready either. */
function notReady(fault: unknown): never {
  throw fault instanceof HttpError ? fault : unavailable(fault);
}

function splitTarget(target: string): [path: string, search: string] {
  const mark = target.indexOf('?');
  return mark === -1 ? [target, ''] : [target.slice(0, mark), target.slice(mark + 1)];
}

function send(response: ServerResponse, answer: Answer, requestId: string): void {
  const { status, body, json: text = body === undefined ? '' : toJson(body), headers = [] } = answer;
  const type = text === '' || headers.includes('Content-Type') ? [] : ['Content-Type', 'application/json'];
  const length = text === '' ? [] : ['Content-Length', String(Buffer.byteLength(text))];
  response.writeHead(status, [...type, ...length, 'X-Request-Id', requestId, ...headers]);
  response.end(response.req.method === 'HEAD' ? undefined : text);
}
