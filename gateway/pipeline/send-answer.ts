import { errorBody, type HttpError, helpFor } from '../../shared/http/errors.ts';
import { clientHeaders } from './client-headers.ts';
import type { Exchange } from './exchange.ts';

/** An answer that the gateway makes itself. */
export interface OwnAnswer {
  readonly status: number;
  /** A flat list, without the headers that every answer has. */
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
    // A half-sent answer cannot be withdrawn. Cutting the connection keeps it from looking complete.
    response.destroy();
    return;
  }
  // The rest of a body must not be read as the next request. Node reads and drops a short rest; after a long one the
  // connection closes.
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
