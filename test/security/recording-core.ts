import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { cleanUp } from '../support/clean-up.ts';

/** A core that uses Node's parser, answers every request, and records all bytes that it receives. */
export interface RecordingCore {
  readonly url: string;
  /** The received bytes, one text per connection. */
  received(): string[];
}

/** @param answerAfterMs gives a forwarder time to send the rest */
export async function recordingCore(answerAfterMs = 0): Promise<RecordingCore> {
  const connections: Buffer[][] = [];
  const server = http.createServer(async (request, response) => {
    request.resume();
    if (answerAfterMs > 0) await sleep(answerAfterMs);
    response.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': '2' });
    response.end('[]');
  });
  server.on('connection', (socket) => {
    const chunks: Buffer[] = [];
    connections.push(chunks);
    socket.on('data', (chunk: Buffer) => void chunks.push(chunk));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  cleanUp(() => {
    server.closeAllConnections();
    server.close();
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    received: () => connections.map((chunks) => Buffer.concat(chunks).toString('latin1')),
  };
}
