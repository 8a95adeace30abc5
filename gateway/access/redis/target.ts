import type { ConnectionOptions } from 'node:tls';

/** Where a Redis is, in any of its forms. */
export interface RedisTarget {
  readonly mode: 'single' | 'cluster' | 'sentinel';
  /** Of the Redis, of nodes of the cluster, or of the sentinels. They differ in their hosts and ports only. */
  readonly urls: readonly string[];
  /** By which the sentinels know the primary. */
  readonly masterName: string | undefined;
  readonly sentinelUsername: string | undefined;
  readonly sentinelPassword: string | undefined;
  /** Certificates for rediss:// in PEM; those of Node when undefined. */
  readonly ca: string | undefined;
  /** After which a command is given up; it may still run. */
  readonly timeoutMs: number;
  /** How long a start waits for it at most; it is connected to all the same. */
  readonly startMs: number;
}

/** What the URLs have in common, as the client library takes it. */
export function commonOptions({ urls: [url = ''], ca }: RedisTarget) {
  const { username, password, protocol, pathname } = new URL(url);
  const tls: ConnectionOptions = ca === undefined ? {} : { ca };
  return {
    username: decodeURIComponent(username),
    password: decodeURIComponent(password),
    db: Number(pathname.slice(1)),
    ...(protocol === 'rediss:' && { tls }),
  };
}

export interface Address {
  readonly host: string;
  readonly port: number;
}

export function addresses({ urls }: RedisTarget, defaultPort: number): Address[] {
  return urls.map((url) => {
    const { hostname, port } = new URL(url);
    return { host: hostname.replace(/^\[|\]$/g, ''), port: Number(port || defaultPort) };
  });
}
