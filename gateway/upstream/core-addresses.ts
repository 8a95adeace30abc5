import dns from 'node:dns/promises';
import { isIP, type LookupFunction } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from '../../shared/process/logger.ts';

/** How CORE_URL names cores, and what a connection to a core needs. */

/** Where connections to a core go. It is empty if the URL is enough. */
export interface Connect {
  /** Returns the one address of this core. */
  readonly lookup?: LookupFunction;
  readonly socketPath?: string;
}

export interface CoreAddress {
  /** The name of the core in logs and metrics: a URL with its address, or its socket. */
  readonly origin: string;
  /** A URL with its name, for the Host header and the certificate. */
  readonly url: string;
  readonly connect: Connect;
}

/** A name that can have several addresses, now or later. */
interface CoreName {
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
/** The kernel's maximum length of a socket path (unix(7)). */
const MAX_PATH_BYTES = 107;

/** What is wrong with an entry of CORE_URL; undefined if it is valid. */
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
function parseCoreUrl(text: string): CoreAddress | CoreName {
  if (text.startsWith('unix:')) return { origin: text, url: 'http://localhost', connect: { socketPath: pathOf(text) } };
  const [, scheme, srv, host] = SRV.exec(text) ?? [];
  if (scheme && srv && host) return { text, protocol: `${scheme.toLowerCase()}:`, host, port: '', srv };
  const url = new URL(text);
  const { origin, hostname } = url;
  // The system resolves localhost without DNS. All its addresses are this machine's, so they count as one core.
  const isFixed = isIP(bare(hostname)) > 0 || /(^|\.)localhost\.?$/.test(hostname);
  if (isFixed) return { origin, url: origin, connect: {} };
  return { text: origin, protocol: url.protocol, host: hostname, port: url.port };
}

const isName = (parsed: CoreAddress | CoreName): parsed is CoreName => 'text' in parsed;

/** A core at one of the addresses of a name. */
function addressOf({ protocol, host }: CoreName, address: string, port: string): CoreAddress {
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

/** A placeholder for a name without an address. Connections to it fail. */
function withoutAddress({ text, protocol, host, port }: CoreName): CoreAddress {
  const lookup: LookupFunction = (_name, _options, callback) => {
    const fault = new Error(`${text} has no address yet.`);
    callback(Object.assign(fault, { code: 'ENOTFOUND', syscall: 'getaddrinfo' }), []);
  };
  return { origin: text, url: `${protocol}//${host}${port === '' ? '' : `:${port}`}`, connect: { lookup } };
}

/** In a URL an IPv6 address is in brackets. */
export const bare = (hostname: string): string => hostname.replace(/^\[|\]$/g, '');

const pathOf = (text: string): string => text.slice('unix:'.length);

/** CoreDNS caches records for another 5 s. The sum is below the 8 s of `preStop`, during which a core still serves. */
const RESOLVE_EVERY_MS = 2_000;
/** At startup, the gateway waits this long for names to resolve, then continues without them. */
const START_WITHIN_MS = 2_000;

/** The addresses of all cores. Names are resolved regularly; one that cannot be resolved keeps its last addresses. */
export class CoreNames {
  readonly #entries: readonly (CoreAddress | Watched)[];
  readonly #onChange: (addresses: CoreAddress[]) => void;

  /**
   * @param urls entries of CORE_URL
   * @param onChange called with all addresses: at once, then after each change
   */
  constructor(urls: readonly string[], logger: Logger, onChange: (addresses: CoreAddress[]) => void) {
    this.#onChange = onChange;
    this.#entries = urls.map((url) => {
      const parsed = parseCoreUrl(url);
      return isName(parsed) ? new Watched(parsed, logger, () => this.#announce()) : parsed;
    });
    this.#announce();
  }

  /** Starts to resolve all names regularly. Returns after the first round, or earlier if that takes too long. */
  async start(): Promise<void> {
    const asked = this.#watched().map((name) => name.watch());
    const enough = new AbortController();
    const late = sleep(START_WITHIN_MS, undefined, { signal: enough.signal }).catch(() => {});
    await Promise.race([Promise.all(asked), late]);
    enough.abort();
  }

  /** How many names currently cannot be resolved. */
  get lost(): number {
    return this.#watched().filter(({ isLost }) => isLost).length;
  }

  close(): void {
    for (const name of this.#watched()) name.close();
  }

  #announce(): void {
    this.#onChange(this.#entries.flatMap((entry) => (entry instanceof Watched ? entry.addresses : [entry])));
  }

  #watched(): Watched[] {
    return this.#entries.filter((entry) => entry instanceof Watched);
  }
}

class Watched {
  addresses: readonly CoreAddress[];
  readonly #name: CoreName;
  readonly #logger: Logger;
  readonly #onChange: () => void;
  /** Whether the last attempt to resolve it failed. */
  isLost = false;
  #isClosed = false;
  #timer: NodeJS.Timeout | undefined;
  #known: readonly string[] = [];

  constructor(name: CoreName, logger: Logger, onChange: () => void) {
    this.#name = name;
    this.#logger = logger;
    this.#onChange = onChange;
    this.addresses = [withoutAddress(name)];
  }

  /** Resolves the name at once, and then regularly. Returns after the first attempt. */
  async watch(): Promise<void> {
    try {
      const found = await resolveName(this.#name);
      if (!this.#isClosed) this.#take(found);
    } catch (fault) {
      if (!this.isLost) this.#logger.warn({ name: this.#name.text, err: fault }, 'core name cannot be resolved');
      this.isLost = true;
    }
    if (!this.#isClosed) this.#timer = setTimeout(() => void this.watch(), RESOLVE_EVERY_MS).unref();
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
  }

  #take(found: readonly CoreAddress[]): void {
    const name = this.#name.text;
    if (this.isLost) this.#logger.info({ name }, 'core name is resolved again');
    this.isLost = false;
    const origins = [...new Set(found.map(({ origin }) => origin))];
    const added = origins.filter((origin) => !this.#known.includes(origin));
    const left = this.#known.filter((origin) => !origins.includes(origin));
    if (added.length + left.length === 0) return;
    for (const core of added) this.#logger.info({ core, name }, 'core added');
    for (const core of left) this.#logger.info({ core, name }, 'core removed');
    this.#known = origins;
    this.addresses = found;
    this.#onChange();
  }
}

/**
 * Finds the current cores of an entry of CORE_URL, ordered by address.
 * @throws the resolver's fault, or {Error} if no address was found
 */
export async function resolveCores(text: string): Promise<CoreAddress[]> {
  const parsed = parseCoreUrl(text);
  return isName(parsed) ? await resolveName(parsed) : [parsed];
}

/** @throws like {resolveCores} */
async function resolveName(name: CoreName): Promise<CoreAddress[]> {
  const found = name.srv === undefined ? await lookup(name, name.host, name.port) : await lookupTargets(name, name.srv);
  if (found.length === 0) throw new Error(`${name.text} has no address.`);
  return found.sort((a, b) => (a.origin < b.origin ? -1 : 1));
}

/**
 * Uses the system's resolver, so /etc/hosts applies. If there are IPv4 and IPv6 addresses, only IPv4 is used, so that
 * each core counts once.
 */
async function lookup(name: CoreName, host: string, port: string): Promise<CoreAddress[]> {
  const all = await dns.lookup(host, { all: true });
  const ipv4 = all.filter(({ family }) => family === 4);
  return (ipv4.length > 0 ? ipv4 : all).map(({ address }) => addressOf(name, address, port));
}

/**
 * Uses only the targets of the highest priority (RFC 2782), and ignores weights. A target without an address is left
 * out.
 */
async function lookupTargets(name: CoreName, srv: string): Promise<CoreAddress[]> {
  const records = await dns.resolveSrv(srv);
  const first = Math.min(...records.map(({ priority }) => priority));
  const targets = records.filter(({ priority, name: target }) => priority === first && target !== '' && target !== '.');
  const found = await Promise.allSettled(targets.map((target) => lookup(name, target.name, String(target.port))));
  const addresses = found.flatMap((one) => (one.status === 'fulfilled' ? one.value : []));
  const [lost] = found.filter((one) => one.status === 'rejected');
  if (addresses.length === 0 && lost !== undefined) throw lost.reason;
  return addresses;
}
