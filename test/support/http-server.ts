import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { cleanUp } from './clean-up.ts';

/** Starts an HTTP server for one test, on a free port. @returns its URL */
export async function serveHttp(onRequest: http.RequestListener, host = '127.0.0.1'): Promise<string> {
  const server = http.createServer(onRequest).listen(0, host);
  await once(server, 'listening');
  cleanUp(() => server.close().closeAllConnections());
  return `http://${host}:${(server.address() as AddressInfo).port}`;
}
