import tls, { type ConnectionOptions, type TLSSocket } from 'node:tls';
import { AbstractConnector, type RedisOptions, SentinelConnector } from 'ioredis';
import type { Logger } from '../../../shared/process/logger.ts';
import type { Address } from './target.ts';

/**
 * Connections over TLS. The library handles only the first error of a socket. A socket that is closed while its
 * certificate is refused emits two, and the second would end the process.
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

export class SentinelTlsConnector extends SentinelConnector {
  constructor(options: unknown) {
    super(options as ConstructorParameters<typeof SentinelConnector>[0]);
  }

  override async connect(emit: Parameters<SentinelConnector['connect']>[0]) {
    return heard(await super.connect(emit));
  }
}

/** ioredis does not report a refused certificate. This connects once more to each address and logs the reason. */
export async function logRefusedTls(
  addresses: readonly Address[],
  options: ConnectionOptions | undefined,
  logger: Logger,
): Promise<void> {
  if (options === undefined) return;
  for (const { host, port } of addresses) {
    const reason = await whyRefused({ host, port, ...options });
    if (reason !== undefined) logger.error({ server: `${host}:${port}`, reason }, 'no TLS with redis');
  }
}

function whyRefused(options: ConnectionOptions): Promise<string | undefined> {
  const { promise, resolve } = Promise.withResolvers<string | undefined>();
  const socket = tls.connect({ ...options, timeout: PROBE_MS });
  const settle = (reason?: string) => {
    resolve(reason);
    socket.destroy();
  };
  socket.on('error', ({ message }) => settle(message));
  socket.once('secureConnect', () => settle());
  socket.once('timeout', () => settle('The handshake took too long.'));
  return promise;
}
