import type { Socket } from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';
import { SharedLine } from '../../gateway/upstream/shared-line.ts';
import { cleanUp } from './clean-up.ts';
import { faultyCore } from './faulty-core.ts';

/** A line to a core that answers as the test says, and the connections that it has had. */
export interface LineUnderTest {
  readonly line: SharedLine;
  readonly connections: Socket[];
  /** Asks for `path`, and is given the body. Whoever asks later must wait for as long at least, as in the gateway. */
  ask(path: string, asked?: { method?: string; waitMs?: number }): Promise<string>;
}

/** What a test does with a request: to what path, and on which connection, counted from 0. */
type OnRequest = (socket: Socket, path: string, connection: number) => void;

export async function lineUnderTest(onRequest: OnRequest, keepAliveMs = 60_000): Promise<LineUnderTest> {
  const connections: Socket[] = [];
  const url = await faultyCore((socket, head) => {
    if (!connections.includes(socket)) connections.push(socket);
    onRequest(socket, head.split(' ', 2)[1] ?? '', connections.indexOf(socket));
  });
  const line = new SharedLine(url, { connectTimeoutMs: 1_000, keepAliveMs });
  cleanUp(() => line.close());
  return {
    line,
    connections,
    async ask(target, { method = 'GET', waitMs = 30_000 } = {}) {
      const request = { method, target, headers: [], body: undefined };
      return (await line.ask(request, performance.now() + waitMs)).body;
    },
  };
}

export const answer = (body: string, ...lines: string[]): string =>
  `${['HTTP/1.1 200 OK', `Content-Length: ${body.length}`, ...lines].join('\r\n')}\r\n\r\n${body}`;

/** Sends a text in pieces, each of which is most likely read by itself. */
export async function sendInPieces(socket: Socket, text: string, sizes: readonly number[]): Promise<void> {
  for (let at = 0, piece = 0; at < text.length; piece++) {
    const size = sizes[piece % sizes.length] as number;
    socket.write(text.slice(at, at + size), 'latin1');
    at += size;
    await turn();
  }
}
