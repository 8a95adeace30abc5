import type { IncomingHttpHeaders, ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import { serveHttp } from './http-server.ts';

export const WEBHOOK_SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';

export interface Delivery {
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
  /** The parsed body of the webhook. */
  readonly event: { type: string; timestamp: string; data: Record<string, unknown> };
}

/**
 * Starts a receiver that records all webhooks.
 * @param answer sends the response to the request with this number, counted from 0; default 204
 * @param host the address to listen on
 */
export async function webhookReceiver(
  answer: (response: ServerResponse, number: number) => void = noContent,
  host = '127.0.0.1',
) {
  const deliveries: Delivery[] = [];
  const url = await serveHttp(async (request, response) => {
    const body = await text(request);
    deliveries.push({ headers: request.headers, body, event: JSON.parse(body) });
    answer(response, deliveries.length - 1);
  }, host);
  return { url: `${url}/hook`, deliveries, types: () => deliveries.map(({ event }) => event.type).sort() };
}

const noContent = (response: ServerResponse): void => void response.writeHead(204).end();
