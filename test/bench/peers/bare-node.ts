import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';

/** node:http with an answer of the gateway's size and nothing else: the least that a Node proxy pays on its client's side. */
const body = JSON.stringify(Array.from({ length: 20 }, (_, id) => ({ id, name: `Rex the ${id}th`, categoryId: id })));
const limits = ['X-RateLimit-Limit', '60', 'X-RateLimit-Remaining', '59', 'X-RateLimit-Reset', '1795236994'];
const head = ['Content-Type', 'application/json', 'Content-Length', String(body.length), 'X-Request-Id', 'bare'];

const server = http.createServer((_request, response) => {
  response.writeHead(200, [...head, ...limits]);
  response.end(body, 'latin1');
});
server.listen(0, '127.0.0.1');
await once(server, 'listening');
process.send?.({ 'bare-node': `http://127.0.0.1:${(server.address() as AddressInfo).port}` });
