import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { carriesToken } from './bearer.ts';
import { errorBody, HttpError, toHttpError } from './errors.ts';
import { checkHeaderLines, requestIdOf } from './headers.ts';
import { toJson } from './json.ts';
import { lingerOnClose } from './lingering-close.ts';
import type { Logger } from './logger.ts';
import type { Metrics } from './metrics.ts';
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
}

export interface ServiceOptions<Parts> {
  readonly routes: readonly ServiceRoute<Parts>[];
  readonly parts: Parts;
  readonly logger: Logger;
  readonly metrics: Metrics;
  /** When set, every request but those for open routes must carry it as its bearer token. */
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

export function createService<Parts>(options: ServiceOptions<Parts>): RequestListener {
  const { parts, logger, metrics, token, guard, check } = options;
  const routes = [...options.routes, ...ownRoutes<Parts>(metrics, check)];
  const router = createRouter(routes);
  const open = new Set(routes.filter(({ isOpen }) => isOpen).map(({ path }) => path));
  const answered = metrics.requests();

  async function answer(
    request: IncomingMessage,
    response: ServerResponse,
    told: { operation: string },
  ): Promise<Answer> {
    checkHeaderLines(request.rawHeaders, MAX_HEADER_LINES);
    guard?.admit(request);
    const [path, search] = splitTarget(request.url ?? '');
    if (token !== undefined && !open.has(path)) checkToken(request, token, guard);
    const match = router.find(request.method ?? '', path);
    told.operation = match.route.name;
    const query = new URLSearchParams(search);
    return await match.route.operation({ parts, request, response, params: match.params, path, query });
  }

  function refusal(thrown: unknown, request: IncomingMessage, response: ServerResponse, requestId: string): Answer {
    const error = toHttpError(thrown);
    if (error.code === 'internal_error') {
      logger.error({ requestId, traceId: traceOf(request).id, err: error.cause }, 'request failed');
    }
    if (!request.complete) {
      response.shouldKeepAlive = false;
      lingerOnClose(request.socket);
    }
    const challenge = error.status === 401 ? ['WWW-Authenticate', 'Bearer'] : [];
    return { status: error.status, json: errorBody(error), headers: [...challenge, ...error.headers] };
  }

  return async (request, response) => {
    const startedAt = performance.now();
    const requestId = requestIdOf(request);
    const told = { operation: 'none' };
    try {
      send(response, await answer(request, response, told), requestId);
    } catch (thrown) {
      send(response, refusal(thrown, request, response, requestId), requestId);
    }
    answered(told.operation, response.statusCode, (performance.now() - startedAt) / 1_000);
  };
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
    await check();
    return { status: 200, body: { status: 'ready' } };
  };
  const exposition: Operation<Parts> = async () => {
    const { text, type } = await metrics.expose();
    return { status: 200, json: text, headers: ['Content-Type', type] };
  };
  return [
    { name: 'livez', method: 'GET', path: '/livez', operation: livez, isOpen: true },
    { name: 'readyz', method: 'GET', path: '/readyz', operation: readyz, isOpen: true },
    { name: 'metrics', method: 'GET', path: '/metrics', operation: exposition, isOpen: true },
  ];
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
