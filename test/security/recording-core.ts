import http from 'node:http';
import { bareCore } from '../support/faulty-core.ts';

/**
 * Starts a core that uses Node's parser and answers every request.
 * @returns its URL, and a function that returns all received bytes, one string per connection
 */
export async function recordingCore() {
  const connections: Buffer[][] = [];
  const server = http.createServer((request, response) => {
    request.resume();
    response.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': '2' });
    response.end('[]');
  });
  const url = await bareCore((socket) => {
    const chunks: Buffer[] = [];
    connections.push(chunks);
    // The listener below is added after the parser has taken over the connection.
    server.emit('connection', socket);
    socket.on('data', (chunk: Buffer) => void chunks.push(chunk));
  });
  return { url, received: () => connections.map((chunks) => Buffer.concat(chunks).toString('latin1')) };
}
