import { clientHeaders } from './client-headers.ts';
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
