import { isIP, type LookupFunction } from 'node:net';

/** How CORE_URL names cores, and what a connection to a core needs. */

/** Where connections to a core go. It is empty if the URL is enough. */
export interface Connect {
  /** Returns the one address of this core. */
  readonly lookup?: LookupFunction;
  readonly socketPath?: string;
}

export interface CoreAddress {
  /** The core in logs and metrics: a URL with its address, or its socket. */
  readonly origin: string;
  /** A URL with its name, for the Host header and the certificate. */
  readonly url: string;
  readonly connect: Connect;
}

/** A name that can have several addresses, now or later. */
export interface CoreName {
  /** The entry of CORE_URL. */
  readonly text: string;
  readonly protocol: string;
  /** The host name of its cores, without the port. */
  readonly host: string;
  /** Empty for the protocol's default. */
  readonly port: string;
  /** The name of the SRV records with targets and ports. */
  readonly srv?: string;
}

const SRV = /^(https?)\+srv:\/\/(_[a-z\d-]+\._tcp\.([a-z\d_-]+(?:\.[a-z\d_-]+)*))$/i;
/** Maximum length of a socket path in the kernel (unix(7)). */
const MAX_PATH_BYTES = 107;

/** The fault of an entry of CORE_URL; undefined if it is valid. */
export function coreUrlFault(text: string): string | undefined {
  if (text.startsWith('unix:')) {
    const isPath = text.startsWith('unix:/') && Buffer.byteLength(pathOf(text)) <= MAX_PATH_BYTES;
    return isPath ? undefined : `must be like unix:/run/core.sock, with a path of at most ${MAX_PATH_BYTES} bytes`;
  }
  if (/^https?\+srv:/i.test(text)) {
    const isName = URL.canParse(`http://${SRV.exec(text)?.[3] ?? ''}`);
    return isName ? undefined : 'must be like http+srv://_core._tcp.example.com, without a port or path';
  }
  if (!/^https?:/i.test(text)) return 'must be an http://, https://, http+srv://, https+srv:// or unix: URL';
  if (!URL.canParse(text)) return 'must be an http:// or https:// URL';
  const { href, origin } = new URL(text);
  return href === `${origin}/` ? undefined : 'must be an origin like http://127.0.0.1:7001, without a path';
}

/** @param text a valid entry */
export function parseCoreUrl(text: string): CoreAddress | CoreName {
  if (text.startsWith('unix:')) return { origin: text, url: 'http://localhost', connect: { socketPath: pathOf(text) } };
  const [, scheme, srv, host] = SRV.exec(text) ?? [];
  if (scheme && srv && host) return { text, protocol: `${scheme.toLowerCase()}:`, host, port: '', srv };
  const url = new URL(text);
  const { origin, hostname } = url;
  // The system resolves this name without DNS. It is one core, whichever of its addresses answers.
  const isFixed = isIP(bare(hostname)) > 0 || /(^|\.)localhost\.?$/.test(hostname);
  if (isFixed) return { origin, url: origin, connect: {} };
  return { text: origin, protocol: url.protocol, host: hostname, port: url.port };
}

export const isName = (parsed: CoreAddress | CoreName): parsed is CoreName => 'text' in parsed;

/** A core at one of the addresses of a name. */
export function addressOf({ protocol, host }: CoreName, address: string, port: string): CoreAddress {
  const family = isIP(address);
  const end = port === '' ? '' : `:${port}`;
  const lookup: LookupFunction = (_name, { all }, callback) => {
    if (all) callback(null, [{ address, family }]);
    else callback(null, address, family);
  };
  return {
    origin: `${protocol}//${family === 6 ? `[${address}]` : address}${end}`,
    url: `${protocol}//${host}${end}`,
    connect: { lookup },
  };
}

/** A placeholder for a name without an address: it cannot be reached. */
export function withoutAddress({ text, protocol, host, port }: CoreName): CoreAddress {
  const lookup: LookupFunction = (_name, _options, callback) => {
    const fault = new Error(`${text} has no address yet.`);
    callback(Object.assign(fault, { code: 'ENOTFOUND', syscall: 'getaddrinfo' }), []);
  };
  return { origin: text, url: `${protocol}//${host}${port === '' ? '' : `:${port}`}`, connect: { lookup } };
}

/** In a URL an IPv6 address is in brackets. */
const bare = (hostname: string): string => hostname.replace(/^\[|\]$/g, '');

const pathOf = (text: string): string => text.slice('unix:'.length);
