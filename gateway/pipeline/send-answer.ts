import { randomUUID } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import type { NoRequest } from '../../shared/http/connection.ts';
import { errorBody, type HttpError } from '../../shared/http/errors.ts';
import { beginTrace, NO_SNIFF } from '../../shared/http/headers.ts';
import type { Logger } from '../../shared/process/logger.ts';
import type { AddressAllowance } from '../limiter/address-allowance.ts';
import type { Traffic } from '../telemetry/request-metrics.ts';
import { networkOf, plainAddress } from './client-address.ts';
import { clientHeaders, limitHeaders } from './client-headers.ts';
import type { Exchange } from './exchange.ts';

/** An answer that the gateway makes itself. */
export interface OwnAnswer {
  readonly status: number;
  /** As a flat list, without the headers that every answer has. */
  readonly headers: readonly string[];
  readonly body?: string | Buffer | undefined;
}

export function sendOwnAnswer(exchange: Exchange, { status, headers, body }: OwnAnswer, draftFields: boolean): void {
  const { request, response } = exchange;
  const all = [...headers, ...clientHeaders(exchange, draftFields, headers)];
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
  // The rest of a body would be read as the next request. Node reads and drops a short one; after a long one the
  // connection closes.
  if (!request.complete) {
    if (mayBeLong(exchange)) response.shouldKeepAlive = false;
    else request.resume();
  }
  if (error.closes || exchange.limitStatus?.closesConnection) response.shouldKeepAlive = false;
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

interface UnusableDependencies {
  readonly allowance: AddressAllowance;
  readonly draftFields: boolean;
  readonly logger: Logger;
  readonly traffic: Traffic;
}

/** Answers a connection that brought no valid request, charges its address, counts it and logs it. */
export function refuseUnusable(
  { error, reason, socket }: NoRequest,
  response: ServerResponse,
  { allowance, draftFields, logger, traffic }: UnusableDependencies,
): void {
  const address = networkOf(plainAddress(socket.remoteAddress));
  allowance.consume(address);
  const requestId = randomUUID();
  traffic.unusable(error.status);
  logger.info(
    { requestId, traceId: beginTrace().id, status: error.status, code: error.code, address, reason },
    'request',
  );
  const limits = limitHeaders(allowance.peek(address), draftFields);
  const body = errorBody(error);
  response.writeHead(error.status, [
    ...head(body),
    ...NO_SNIFF,
    'X-Request-Id',
    requestId,
    ...limits,
    ...error.headers,
  ]);
  response.end(body);
}

const head = (body: string): string[] => [
  'Content-Type',
  'application/json',
  'Content-Length',
  String(Buffer.byteLength(body)),
];
