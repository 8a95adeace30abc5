import https from 'node:https';
import net, { isIP, type Socket } from 'node:net';
import tls from 'node:tls';
import { http } from '../../shared/http/node-http.ts';
import { bare, type Connect, type CoreAddress } from './core-addresses.ts';
import { CoreTooSlow, NotConnected } from './faults.ts';
import { foreignType } from './headers.ts';

/** Connections to a core: for clients' requests, and to check whether it is ready. */

export const TOO_SLOW = 'The core did not accept a connection in time.';
/** How often the kernel checks that the peer of an idle connection is still there. */
const TCP_KEEP_ALIVE_MS = 60_000;

/**
 * Returns a function that connects to a core by TCP, TLS or a Unix socket.
 * @param onRead called with the length of each piece of data, which is in `buffer` until the call returns; returning
 *   false pauses reading. It calls back with a {NotConnected} if it fails
 */
export function connectorTo(
  url: URL,
  { connect = {}, connectTimeoutMs }: { readonly connect?: Connect; readonly connectTimeoutMs: number },
  buffer: Buffer,
  onRead: (length: number) => boolean,
): (callback: (...result: [Error, null] | [null, Socket]) => void) => void {
  const isSecure = url.protocol === 'https:';
  const host = bare(url.hostname);
  const port = Number(url.port || (isSecure ? 443 : 80));
  const { lookup, socketPath } = connect;
  const where = { host, port, onread: { buffer, callback: onRead }, ...(lookup && { lookup }) };
  const options = socketPath === undefined ? where : { ...where, path: socketPath };
  // Names, but not addresses, may be sent in the handshake (RFC 6066 §3).
  const names = { servername: isIP(host) === 0 ? host : '', ALPNProtocols: ['http/1.1'] };
  /** The session of the last TLS connection, with which the next handshake is shorter. */
  let session: Buffer | undefined;

  return (callback) => {
    const socket = isSecure ? tls.connect({ ...options, ...names, ...(session && { session }) }) : net.connect(options);
    const timer = setTimeout(() => socket.destroy(new CoreTooSlow(TOO_SLOW)), connectTimeoutMs);
    const failed = (fault: Error) => {
      clearTimeout(timer);
      callback(new NotConnected(fault), null);
    };
    socket.once('error', failed);
    socket.once(isSecure ? 'secureConnect' : 'connect', () => {
      clearTimeout(timer);
      socket.removeListener('error', failed);
      callback(null, socket);
    });
    socket.on('session', (latest: Buffer) => {
      session = latest;
    });
    socket.setNoDelay(true).setKeepAlive(true, TCP_KEEP_ALIVE_MS);
  };
}

/** The user agent in the core's log. */
const PROBE_AGENT = 'animal-store-gateway-health';

/** The response to a probe. */
interface ProbeAnswer {
  readonly status: number;
  /** Its type, if it is not JSON. */
  readonly foreignType: string | undefined;
}

/**
 * The response to a GET on a separate connection. On a busy one, a probe would measure the gateway.
 * @returns undefined if none arrives in time
 * @throws {NotConnected}
 */
export function answerTo(
  { url, connect }: CoreAddress,
  path: string,
  withinMs: number,
  given: Readonly<Record<string, string>> = {},
): Promise<ProbeAnswer | undefined> {
  const { promise, resolve, reject } = Promise.withResolvers<ProbeAnswer | undefined>();
  const { request } = url.startsWith('https:') ? https : http;
  const headers = { 'user-agent': PROBE_AGENT, ...given };
  const asked = request(`${url}${path}`, { ...connect, headers, agent: false }, (answer) => {
    const { statusCode: status = 0, rawHeaders } = answer;
    let isEmpty = true;
    answer.once('error', (fault) => reject(new NotConnected(fault)));
    answer.once('end', () => resolve({ status, foreignType: foreignType(rawHeaders, isEmpty) }));
    answer.on('data', () => {
      isEmpty = false;
    });
  });
  const timer = setTimeout(() => {
    resolve(undefined);
    asked.destroy();
  }, withinMs).unref();
  asked.once('error', (fault: Error) => reject(new NotConnected(fault)));
  asked.once('close', () => {
    clearTimeout(timer);
    // For example after a response with the status 101. After any other outcome, this has no effect.
    reject(new NotConnected(new Error('The connection was closed without a response.')));
  });
  asked.end();
  return promise;
}
