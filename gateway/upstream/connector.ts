import type { Socket } from 'node:net';
import { buildConnector } from 'undici';
import type { Connect } from './core-url.ts';

export interface ConnectorOptions {
  /** The destination, if it differs from the URL. */
  readonly connect?: Connect;
  readonly connectTimeoutMs: number;
}

/**
 * Makes connections to a core, by TCP, TLS or a Unix socket.
 * @param onRead called with the length of each piece of data, which is in `buffer` until it returns; false pauses reading
 */
export function connectorTo(
  url: URL,
  { connect, connectTimeoutMs }: ConnectorOptions,
  buffer: Buffer,
  onRead: (length: number) => boolean,
): (callback: (...result: [Error, null] | [null, Socket]) => void) => void {
  const onread = { buffer, callback: onRead };
  const open = buildConnector({ timeout: connectTimeoutMs, allowH2: false, ...connect, ...{ onread } });
  const { host, protocol, port } = url;
  // In a URL an IPv6 address is in brackets.
  const hostname = url.hostname.replace(/^\[|\]$/g, '');
  return (callback) => open({ hostname, host, protocol, port }, callback);
}
