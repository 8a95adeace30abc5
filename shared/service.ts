import { randomUUID } from 'node:crypto';
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { carriesToken } from './bearer.ts';
import { errorBody, HttpError, toHttpError } from './errors.ts';
import { isRequestId } from './headers.ts';
import { toJson } from './json.ts';
import type { Logger } from './logger.ts';
import { createRouter, type Route } from './routes.ts';

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

/** What an operation answers: a status and a value to be written as JSON; no body where the value is undefined. */
export interface Answer {
  readonly status: number;
  readonly body: unknown;
  readonly headers?: readonly string[];
}

export type Operation<Parts> = (call: Call<Parts>) => Promise<Answer>;

export interface ServiceRoute<Parts> extends Route {
  readonly operation: Operation<Parts>;
}

export interface ServiceOptions<Parts> {
  readonly routes: readonly ServiceRoute<Parts>[];
  readonly parts: Parts;
  readonly logger: Logger;
  /** When set, every request but a probe's must carry it as its bearer token. */
  readonly token: string | undefined;
  /** False while the service is going down. */
  ready(): boolean;
}

export function createService<Parts>({ routes, parts, logger, token, ready }: ServiceOptions<Parts>): RequestListener {
  const router = createRouter(routes);

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<Answer> {
    const [path, search] = splitTarget(request.url ?? '');
    if (path === '/livez') return { status: 200, body: { status: 'alive' } };
    if (path === '/readyz') return readiness(ready());
    if (token !== undefined && !carriesToken(request.headers.authorization, token))
      throw new HttpError('unauthorized', 'The token of this service is required.');
    const match = router.find(request.method ?? '', path);
    if (match === undefined) throw noRoute(router.allowed(path));
    const query = new URLSearchParams(search);
    return await match.route.operation({ parts, request, response, params: match.params, path, query });
  }

  return async (request, response) => {
    const given = request.headers['x-request-id'];
    const requestId = typeof given === 'string' && isRequestId(given) ? given : randomUUID();
    try {
      const { status, body, headers = [] } = await answer(request, response);
      send(response, status, body === undefined ? '' : toJson(body), requestId, headers);
    } catch (thrown) {
      const error = toHttpError(thrown);
      if (error.code === 'internal_error') logger.error({ requestId, err: error.cause }, 'request failed');
      if (!request.complete) response.shouldKeepAlive = false;
      const challenge = error.status === 401 ? ['WWW-Authenticate', 'Bearer'] : [];
      send(response, error.status, errorBody(error), requestId, [...challenge, ...error.headers]);
    }
  };
}

function splitTarget(target: string): [path: string, search: string] {
  const mark = target.indexOf('?');
  return mark === -1 ? [target, ''] : [target.slice(0, mark), target.slice(mark + 1)];
}

function readiness(ready: boolean): Answer {
  if (!ready) throw new HttpError('unavailable', 'The service is stopping.');
  return { status: 200, body: { status: 'ready' } };
}

function noRoute(allowed: readonly string[]): HttpError {
  if (allowed.length === 0) return new HttpError('not_found');
  return new HttpError('method_not_allowed', undefined, { headers: ['Allow', allowed.join(', ')] });
}

function send(
  response: ServerResponse,
  status: number,
  body: string,
  requestId: string,
  headers: readonly string[],
): void {
  const about =
    body === '' ? [] : ['Content-Type', 'application/json', 'Content-Length', String(Buffer.byteLength(body))];
  response.writeHead(status, [...about, 'X-Request-Id', requestId, ...headers]);
  response.end(response.req.method === 'HEAD' ? undefined : body);
}
