import tls, { type ConnectionOptions, type TLSSocket } from 'node:tls';
import { AbstractConnector, type RedisOptions, SentinelConnector } from 'ioredis';

/**
 * Connections over TLS. The library hears the first error of a socket only; one that is ended in the middle of a handshake,
 * with a certificate that is refused, has two, and the second would end the process.
 */

const DISCONNECT_TIMEOUT_MS = 2_000;
const PROBE_MS = 1_000;

const heard = <Socket extends NodeJS.EventEmitter>(socket: Socket): Socket => socket.on('error', () => undefined);

export class TlsConnector extends AbstractConnector {
  readonly #options: RedisOptions;

  constructor(options: unknown) {
    super(DISCONNECT_TIMEOUT_MS);
    this.#options = options as RedisOptions;
  }

  async connect(): Promise<TLSSocket> {
    const { host = '127.0.0.1', port = 6379, tls: options } = this.#options;
    this.connecting = true;
    const socket = heard(tls.connect({ host, port, ...options }));
    this.stream = socket;
    return socket;
  }
}

/** To the primary that sentinels name. */
export class SentinelTlsConnector extends SentinelConnector {
  constructor(options: unknown) {
    super(options as ConstructorParameters<typeof SentinelConnector>[0]);
  }

  override async connect(emit: Parameters<SentinelConnector['connect']>[0]) {
    return heard(await super.connect(emit));
  }
}

/** Why a TLS connection cannot be made, where the library does not tell; undefined when it can. */
export function whyRefused(
  address: { host: string; port: number },
  options: ConnectionOptions,
): Promise<string | undefined> {
  const { promise, resolve } = Promise.withResolvers<string | undefined>();
  const socket = tls.connect({ ...address, ...options, timeout: PROBE_MS });
  const settle = (reason?: string) => {
    resolve(reason);
    socket.destroy();
  };
  socket.on('error', ({ message }) => settle(message));
  socket.once('secureConnect', () => settle());
  socket.once('timeout', () => settle('The handshake took too long.'));
  return promise;
}
