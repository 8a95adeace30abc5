import type { Socket } from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';
import type { Answer } from '../../gateway/upstream/answer.ts';
import type { UpstreamRequest } from '../../gateway/upstream/headers.ts';
import { Wire } from '../../gateway/upstream/wire.ts';
import { cleanUp } from './clean-up.ts';
import { faultyCore } from './faulty-core.ts';

/**
 * Opens a pipelined connection to a core controlled by the test.
 * @param onRequest handles a request, given its path and the number of its connection, counted from 0
 * @param needsEcho whether answers must contain the id of their request; otherwise, only their order counts
 */
export async function lineUnderTest(
  onRequest: (socket: Socket, path: string, connection: number) => void,
  keepAliveMs = 60_000,
  needsEcho = false,
) {
  const connections: Socket[] = [];
  const url = await faultyCore((socket, head) => {
    if (!connections.includes(socket)) connections.push(socket);
    onRequest(socket, head.split(' ', 2)[1] ?? '', connections.indexOf(socket));
  });
  const line = lineTo(url, { keepAliveMs, needsEcho });
  return {
    line,
    connections,
    /** Requests a path and returns the body. */
    ask: async (target: string) => textOf(await askOn(line, { target })),
  };
}

/** The body as a string with one character per byte. */
export const textOf = ({ body }: Answer): string => (typeof body === 'string' ? body : body.toString('latin1'));

/** A pipelined connection, closed after the test. */
export function lineTo(url: string, { keepAliveMs = 60_000, needsEcho = false } = {}): Wire {
  const line = new Wire(url, { connectTimeoutMs: 1_000, keepAliveMs, needsEcho });
  cleanUp(() => line.close());
  return line;
}

/** The fields of a request that shares its connection and is not streamed. */
export const NOT_STREAMED = { isAlone: false, sentAt: 0, streamed() {}, piece() {} };

/** Sends a request without a timeout. The request has only one attempt, with the same id. */
export function askOn(line: Wire, asked: Partial<UpstreamRequest>): Promise<Answer> {
  const { promise, resolve: answered, reject: failed } = Promise.withResolvers<Answer>();
  const request = requestFor(asked);
  line.send({ ...NOT_STREAMED, request, id: request.id, isWanted: true, answered, failed }, performance.now());
  return promise;
}

export const requestFor = (asked: Partial<UpstreamRequest>): UpstreamRequest => ({
  method: 'GET',
  target: '/',
  headers: [],
  body: undefined,
  id: '',
  client: { id: '', slowUntil: 0, largeUntil: 0, largePath: '' },
  ...asked,
});

export const answer = (body: string, ...lines: string[]): string =>
  `${['HTTP/1.1 200 OK', `Content-Length: ${body.length}`, ...lines].join('\r\n')}\r\n\r\n${body}`;

/** Sends a string in pieces, which the other side probably reads one by one. */
export async function sendInPieces(socket: Socket, text: string, sizes: readonly number[]): Promise<void> {
  for (let at = 0, piece = 0; at < text.length; piece++) {
    const size = sizes[piece % sizes.length] as number;
    socket.write(text.slice(at, at + size), 'latin1');
    at += size;
    await turn();
  }
}
