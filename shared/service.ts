import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { carriesToken } from './bearer.ts';
import { errorBody, HttpError, toHttpError, unavailable } from './errors.ts';
import { CALLER_ID, checkHeaderLines, requestIdOf } from './headers.ts';
import { toJson } from './json.ts';
import { lingerOnClose } from './lingering-close.ts';
import type { Logger } from './logger.ts';
import type { Metrics } from './metrics.ts';
import { logRequest, MAX_LOGGED_PATH, millisecondsSince } from './request-log.ts';
import { createRouter, type Route } from './routes.ts';
import { traceOf } from './trace.ts';

/** More than the gateway takes: it adds some of its own to what it passes on. */
const MAX_HEADER_LINES = 150;

/** A JSON service: a table of operations, each of them typed in and typed out, and one answer for every request. */

/** What an operation has to work with. */
export interface Call<Parts> {
  readonly parts: Parts;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** The path's parameters, in order. */
  readonly params: readonly string[];
  readonly path: string;
  readonly query: URLSearchParams;
}

/** What an operation answers: a status, and a value to be written as JSON, or a text, JSON unless a header says otherwise. */
export interface Answer {
  readonly status: number;
  readonly body?: unknown;
  readonly json?: string;
  readonly headers?: readonly string[];
}

export type Operation<Parts> = (call: Call<Parts>) => Promise<Answer>;

export interface ServiceRoute<Parts> extends Route {
  /** Stands for the operation in metrics. */
  readonly name: string;
  readonly operation: Operation<Parts>;
  /** Whether it is answered without a token. */
  readonly isOpen?: boolean;
  /** Whether machines ask it again and again, so that only its failures are worth a line in the log. */
  readonly isRoutine?: boolean;
}

export interface ServiceOptions<Parts> {
  readonly routes: readonly ServiceRoute<Parts>[];
  readonly parts: Parts;
  readonly logger: Logger;
  /** What its lines in the log are called: `request` in a service of its own. */
  readonly logsAs?: string;
  /** Takes out what must not stand in a log. */
  readonly redact?: (text: string) => string;
  readonly metrics: Metrics;
  /** Every request but those for open routes must carry it as its bearer token; undefined asks for none. */
  readonly token: string | undefined;
  readonly guard?: Guard | undefined;
  /** Throws when the service cannot work; tells `/readyz`. */
  check(): Promise<void>;
}

/** Who may ask at all, beside what the token says. What refuses throws an {HttpError}. */
export interface Guard {
  /** Sees every request first. */
  admit(request: IncomingMessage): void;
  /** Sees every request whose token is about to be looked at. */
  beforeToken(request: IncomingMessage): void;
  /** Is told of every request that came with a wrong token. */
  wrongToken(request: IncomingMessage): void;
}

/** @throws {RangeError} for an empty token: it says neither that one is asked for nor that none is */
export function createService<Parts>(options: ServiceOptions<Parts>): RequestListener {
  const { parts, logger, logsAs = 'request', redact = (text) => text, metrics, token, guard, check } = options;
  if (token === '') throw new RangeError('The token of a service must not be empty.');
  const routes = [...options.routes, ...ownRoutes<Parts>(metrics, check)];
  const router = createRouter(routes);
  const open = new Set(routes.filter(({ isOpen }) => isOpen).map(({ path }) => path));
  const answered = metrics.requests();

  async function answer(request: IncomingMessage, response: ServerResponse, told: Told<Parts>): Promise<Answer> {
    checkHeaderLines(request.rawHeaders, MAX_HEADER_LINES);
    guard?.admit(request);
    const [path, search] = splitTarget(request.url ?? '');
    if (token !== undefined && !open.has(path)) checkToken(request, token, guard);
    const match = router.find(request.method ?? '', path);
    told.route = match.route;
    const query = new URLSearchParams(search);
    return await match.route.operation({ parts, request, response, params: match.params, path, query });
  }

  function log(request: IncomingMessage, status: number, { requestId, startedAt, route, error }: Told<Parts>): void {
    const caller = request.headers[CALLER_ID];
    const line = {
      requestId,
      traceId: traceOf(request).id,
      method: request.method,
      path: redact(splitTarget(request.url ?? '')[0]).slice(0, MAX_LOGGED_PATH),
      operation: route?.name,
      status,
      code: error?.code,
      callerId: typeof caller === 'string' ? redact(caller).slice(0, MAX_LOGGED_CALLER) : undefined,
      durationMs: millisecondsSince(startedAt),
    };
    logRequest(logger, line, { message: logsAs, error, isRoutine: route?.isRoutine });
  }

  return async (request, response) => {
    const requestId = requestIdOf(request, (id) => redact(id) === id);
    const told: Told<Parts> = { requestId, startedAt: performance.now(), route: undefined, error: undefined };
    try {
      send(response, await answer(request, response, told), requestId);
    } catch (thrown) {
      told.error = toHttpError(thrown);
      send(response, refusal(told.error, request, response), requestId);
    }
    const { statusCode } = response;
    answered(told.route?.name ?? 'none', statusCode, (performance.now() - told.startedAt) / 1_000);
    log(request, statusCode, told);
  };
}

const MAX_LOGGED_CALLER = 64;

/** What is learned of a request on the way. */
interface Told<Parts> {
  readonly requestId: string;
  readonly startedAt: number;
  route: ServiceRoute<Parts> | undefined;
  error: HttpError | undefined;
}

function refusal(error: HttpError, request: IncomingMessage, response: ServerResponse): Answer {
  if (!request.complete) {
    response.shouldKeepAlive = false;
    lingerOnClose(request.socket);
  }
  const challenge = error.status === 401 ? ['WWW-Authenticate', 'Bearer'] : [];
  return { status: error.status, json: errorBody(error), headers: [...challenge, ...error.headers] };
}

function checkToken(request: IncomingMessage, token: string, guard: Guard | undefined): void {
  guard?.beforeToken(request);
  const { authorization } = request.headers;
  if (carriesToken(authorization, token)) return;
  if (authorization !== undefined) guard?.wrongToken(request);
  throw new HttpError('unauthorized', 'The token of this service is required.');
}

/** What every service answers about itself, to anyone. */
function ownRoutes<Parts>(metrics: Metrics, check: () => Promise<void>): ServiceRoute<Parts>[] {
  const livez: Operation<Parts> = async () => ({ status: 200, body: { status: 'alive' } });
  const readyz: Operation<Parts> = async () => {
    await check().catch(notReady);
    return { status: 200, body: { status: 'ready' } };
  };
  const exposition: Operation<Parts> = async () => {
    const { text, type } = await metrics.expose();
    return { status: 200, json: text, headers: ['Content-Type', type] };
  };
  return [
    { name: 'livez', method: 'GET', path: '/livez', operation: livez, isOpen: true, isRoutine: true },
    { name: 'readyz', method: 'GET', path: '/readyz', operation: readyz, isOpen: true, isRoutine: true },
    { name: 'metrics', method: 'GET', path: '/metrics', operation: exposition, isOpen: true, isRoutine: true },
  ];
}

/** A service that cannot work for a reason unknown to it is not ready all the same. */
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
