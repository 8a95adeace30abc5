import { type IncomingMessage, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { type ErrorCode, errorBody, HttpError, methodNotAllowed } from '../../shared/http/errors.ts';
import { PLAIN_HTTP } from '../../shared/http/server.ts';
import { pairsOf } from '../../shared/lists.ts';
import { clientHeaders } from './client-headers.ts';
import type { Exchange } from './exchange.ts';

/**
 * Answers with an error in the Error shape.
 * @param lingering closes the connection if the client may still be sending
 */
export function sendError(
  exchange: Exchange,
  error: HttpError,
  draftFields: boolean,
  lingering: (request: IncomingMessage) => void,
): void {
  const { request, response } = exchange;
  if (response.closed) return;
  exchange.error = error;
  if (response.headersSent) {
    // A half-sent answer cannot be withdrawn. Cutting the connection keeps it from looking complete.
    response.destroy();
    return;
  }
  // The rest of a body would be read as the next request. Node reads and drops a short one; after a long one the
  // connection closes.
  if (!request.complete) {
    lingering(request);
    if (mayBeLong(exchange)) response.shouldKeepAlive = false;
    else request.resume();
  }
  const body = errorBody(error);
  const headers = [...head(body), ...clientHeaders(exchange, draftFields), ...error.headers];
  if (error.status === 401) headers.push('WWW-Authenticate', 'Bearer');
  response.writeHead(error.status, headers);
  response.end(request.method === 'HEAD' ? undefined : body);
}

const SHORT_BODY_BYTES = 65_536;

function mayBeLong({ request: { headers } }: Exchange): boolean {
  const isAwaited = headers.expect !== undefined || headers['transfer-encoding'] !== undefined;
  return isAwaited || Number(headers['content-length'] ?? 0) > SHORT_BODY_BYTES;
}

/** The answer for a connection without a valid request. */
export function connectionError({ code = '' }: NodeJS.ErrnoException): HttpError {
  if (code === 'CONNECT') return methodNotAllowed('GET, HEAD, POST');
  if (code === PLAIN_HTTP)
    return new HttpError('invalid_request', 'This port speaks TLS: the URL begins with https://.');
  return new HttpError(CONNECTION_ERRORS[code] ?? 'invalid_request');
}

/** Answers on a bare connection and closes it. */
export function sendRawError(socket: Socket, error: HttpError, requestId: string, limits: readonly string[]): void {
  const body = errorBody(error);
  const headers = [...head(body), 'X-Request-Id', requestId, ...limits, ...error.headers, 'Connection', 'close'];
  const lines = pairsOf(headers).map(([name, value]) => `${name}: ${value}`);
  socket.end([`HTTP/1.1 ${error.status} ${STATUS_CODES[error.status]}`, ...lines, '', body].join('\r\n'));
}

const CONNECTION_ERRORS: Readonly<Record<string, ErrorCode>> = {
  HPE_INVALID_VERSION: 'http_version_not_supported',
  HPE_HEADER_OVERFLOW: 'headers_too_large',
  HPE_CHUNK_EXTENSIONS_OVERFLOW: 'payload_too_large',
  ERR_HTTP_REQUEST_TIMEOUT: 'request_timeout',
};

const head = (body: string): string[] => [
  'Content-Type',
  'application/json',
  'Content-Length',
  String(Buffer.byteLength(body)),
];
