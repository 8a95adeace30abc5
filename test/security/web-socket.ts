import { once } from 'node:events';
import type { IncomingHttpHeaders } from 'node:http';
import { type ClientOptions, WebSocket } from 'ws';
import { type GatewayRoute, ROUTES } from '../../gateway/routes.ts';
import type { ServerLimits } from '../../shared/http/server.ts';
import { cleanUp } from '../support/clean-up.ts';
import { type Stack, startStack } from '../support/stack.ts';

/** The store has no operation for WebSockets, so this adds one. */
const LIVE: GatewayRoute = {
  operation: 'watchPets',
  method: 'GET',
  path: '/v1/live/{room}',
  takesBody: false,
  webSocket: true,
};
export const PATH = '/v1/live/1';
/** A key that gets no new token during a test. */
export const SLOW = { plan: 'enterprise', minute: 3, day: 1_000 };

export const startLive = (environment: Record<string, string>, limits: Partial<ServerLimits> = {}): Promise<Stack> =>
  startStack(environment, limits, [...ROUTES, LIVE]);

export interface Opened {
  readonly webSocket: WebSocket;
  readonly headers: IncomingHttpHeaders;
  /** Resolves with the close code. */
  readonly closed: Promise<number>;
}

/** Opens a WebSocket through the gateway. @returns the open WebSocket, or the status of a refusal */
export async function open(
  stack: Stack,
  key?: string,
  path = PATH,
  options: ClientOptions = {},
): Promise<Opened | number> {
  const url = stack.gateway.replace(/^http/, 'ws') + path;
  const authorization = key === undefined ? {} : { authorization: `Bearer ${key}` };
  const webSocket = new WebSocket(url, { ...options, headers: { ...authorization, ...options.headers } });
  cleanUp(() => webSocket.terminate());
  const answered = Promise.withResolvers<IncomingHttpHeaders | number>();
  const closed = new Promise<number>((resolve) => webSocket.once('close', resolve));
  webSocket.once('upgrade', ({ headers }) => answered.resolve(headers));
  webSocket.once('unexpected-response', (_request, { statusCode }) => answered.resolve(statusCode ?? 0));
  webSocket.on('error', () => answered.resolve(0));
  const headers = await answered.promise;
  if (typeof headers === 'number') return headers;
  if (webSocket.readyState !== WebSocket.OPEN) await once(webSocket, 'open');
  return { webSocket, headers, closed };
}

export const opened = async (...args: Parameters<typeof open>): Promise<Opened> => {
  const result = await open(...args);
  if (typeof result === 'number') throw new Error(`The WebSocket was refused with ${result}.`);
  return result;
};

export async function echo({ webSocket }: Opened, data: string | Buffer): Promise<Buffer> {
  const answered = once(webSocket, 'message');
  webSocket.send(data);
  const [message] = await answered;
  return message as Buffer;
}

/** The headers of a handshake. */
export const HANDSHAKE = {
  Host: 'a',
  Connection: 'Upgrade',
  Upgrade: 'websocket',
  'Sec-WebSocket-Version': '13',
  'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ==',
};
export const headOf = (key: string, headers: Record<string, string> = {}, target = PATH): string => {
  const all = { ...HANDSHAKE, Authorization: `Bearer ${key}`, ...headers };
  return `GET ${target} HTTP/1.1\r\n${Object.entries(all)
    .map(([name, value]) => `${name}: ${value}\r\n`)
    .join('')}\r\n`;
};
