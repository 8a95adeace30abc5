import type { ConnectionOptions } from 'node:tls';

/** How long a start waits for Redis by default. */
export const START_MS = 3_000;

/** Names of metrics. They are here because a process without Redis reads them and does not load the client library. */
export const REDIS_CALL = 'gateway_redis_call_duration_seconds';
export const DEADLINES_MISSED = 'gateway_redis_deadlines_missed_total';

export interface RedisTarget {
  readonly mode: 'single' | 'cluster' | 'sentinel';
  /** The URL of a single Redis, or those of cluster nodes or sentinels. They differ only in host and port. */
  readonly urls: readonly string[];
  readonly masterName: string | undefined;
  readonly sentinelUsername: string | undefined;
  /** The current credentials, which can change while the gateway runs. */
  readonly credentials: () => Credentials;
  /** The current CA certificates for rediss:// in PEM. If undefined, Node's own apply. */
  readonly ca: (() => string) | undefined;
  /** The timeout of a command, which may still run afterwards. */
  readonly timeoutMs: number;
  /** The longest time that a start waits for the connection. Connecting continues after that. */
  readonly startMs: number;
}

export interface Credentials {
  readonly username: string;
  readonly password: string;
  readonly sentinelPassword?: string;
}

/** @param url any URL of a target: all of them have the same user and password */
export function credentialsOf(url: string, sentinelPassword?: string): Credentials {
  const { username, password } = new URL(url);
  return {
    username: decodeURIComponent(username),
    password: decodeURIComponent(password),
    ...(sentinelPassword !== undefined && { sentinelPassword }),
  };
}

/** The common part of the URLs without the credentials, as options of the client library. */
export function commonOptions({ urls: [url = ''], ca }: RedisTarget) {
  const { protocol, pathname } = new URL(url);
  const tls: ConnectionOptions = {};
  // The library reads the certificates for every new connection.
  if (ca !== undefined) Object.defineProperty(tls, 'ca', { get: ca, enumerable: true });
  return { db: Number(pathname.slice(1)), ...(protocol === 'rediss:' && { tls }) };
}

export interface Address {
  readonly host: string;
  readonly port: number;
}

export function addresses({ urls }: Pick<RedisTarget, 'urls'>, defaultPort: number): Address[] {
  return urls.map((url) => {
    const { hostname, port } = new URL(url);
    return { host: hostname.replace(/^\[|\]$/g, ''), port: Number(port || defaultPort) };
  });
}
