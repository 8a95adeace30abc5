import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { PROBE_AGENT } from '../../gateway/upstream/probe-core.ts';
import { cleanUp } from './clean-up.ts';

/** An HTTP server of the test's own, on a free port. @returns its URL */
export async function serveHttp(onRequest: http.RequestListener): Promise<string> {
  const server = http
    .createServer((request, response) => {
      // The operators' process asks a core once a second whether it is ready.
      if (request.headers['user-agent'] === PROBE_AGENT) response.end();
      else onRequest(request, response);
    })
    .listen(0, '127.0.0.1');
  await once(server, 'listening');
  cleanUp(() => server.close().closeAllConnections());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
