import { once } from 'node:events';
import http, { type IncomingMessage, type ServerResponse } from 'node:http';
import https from 'node:https';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { cleanUp } from './clean-up.ts';
import { freePort } from './port.ts';

/** A core on its own loopback address. */
export interface AddressedCore {
  readonly address: string;
  /** The number of requests, not counting probes. */
  asked: number;
  probes: number;
  readonly connections: Set<Socket>;
  /** All values of the Host header that the core received. */
  readonly hosts: Set<string | undefined>;
}

interface Answering {
  /** How long the core waits before it answers. */
  readonly waitMs?: (request: IncomingMessage) => number;
  readonly certificate?: { readonly cert: Buffer; readonly key: Buffer };
}

/** Starts cores that answer everything with an empty list, on several addresses (127.0.0.2 …) and one port. */
export async function coresOn(addresses: readonly string[], answering: Answering = {}) {
  const port = await freePort();
  return { port, all: await Promise.all(addresses.map((address) => coreOn(address, port, answering))) };
}

async function coreOn(address: string, port: number, { waitMs, certificate }: Answering): Promise<AddressedCore> {
  const core: AddressedCore = { address, asked: 0, probes: 0, connections: new Set(), hosts: new Set() };
  const answer = async (request: IncomingMessage, response: ServerResponse) => {
    if (request.url === '/readyz') core.probes += 1;
    else core.asked += 1;
    core.hosts.add(request.headers.host);
    request.resume();
    const wait = waitMs?.(request) ?? 0;
    if (wait > 0) await sleep(wait);
    const id = request.headers['x-request-id'];
    if (id !== undefined) response.setHeader('X-Request-Id', id);
    response.setHeader('Content-Type', 'application/json');
    response.end('[]');
  };
  const server = certificate ? https.createServer(certificate, answer) : http.createServer(answer);
  server.on('connection', (socket) => {
    core.connections.add(socket);
    socket.once('close', () => core.connections.delete(socket));
  });
  server.listen(port, address);
  await once(server, 'listening');
  cleanUp(() => {
    server.close();
    server.closeAllConnections();
  });
  return core;
}

/** The number of requests that each core received while `during` ran. */
export async function askedDuring(cores: readonly AddressedCore[], during: () => Promise<unknown>): Promise<number[]> {
  const before = cores.map(({ asked }) => asked);
  await during();
  return cores.map(({ asked }, at) => asked - (before[at] as number));
}
