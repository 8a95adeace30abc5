import { once } from 'node:events';
import http, { type IncomingHttpHeaders, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { cleanUp } from './clean-up.ts';

export const WEBHOOK_SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';

export interface Told {
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
  /** Parsed. */
  readonly event: { type: string; timestamp: string; data: Record<string, unknown> };
}

/**
 * A receiver of webhooks that keeps what it is told.
 * @param answer by number of the request, from 0 on; 204 unless it says otherwise
 * @param host where it listens
 */
export async function webhookReceiver(
  answer: (response: ServerResponse, number: number) => void = noContent,
  host = '127.0.0.1',
) {
  const told: Told[] = [];
  const server = http.createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = Buffer.concat(chunks).toString();
    told.push({ headers: request.headers, body, event: JSON.parse(body) });
    answer(response, told.length - 1);
  });
  server.listen(0, host);
  await once(server, 'listening');
  cleanUp(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://${host}:${(server.address() as AddressInfo).port}/hook`;
  return { url, told, types: () => told.map(({ event }) => event.type).sort() };
}

const noContent = (response: ServerResponse): void => void response.writeHead(204).end();
