import { type Family, Label, Tally } from '../../shared/process/counts.ts';
import type { Exchange } from '../pipeline/exchange.ts';

/** Where the addresses of clients come from, counted without the addresses. */

export const CLIENT_ADDRESSES = 'gateway_client_addresses_total';

/** `ignored`: the peer named a client, and was not believed. */
export const SOURCES = ['peer', 'proxy', 'ignored'] as const;
export type Source = (typeof SOURCES)[number];

export const NETWORKS = ['public', 'private', 'loopback'] as const;
export type Network = (typeof NETWORKS)[number];

const LOOPBACK = /^(?:127\.|::1$)/;
/** RFC 1918, RFC 6598, RFC 3927, RFC 4193, RFC 4291. */
const PRIVATE =
  /^(?:10\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|100\.(?:6[4-9]|[7-9]\d|1[01]\d|12[0-7])\.|169\.254\.|f[cd]|fe[89ab])/i;

export class ClientOrigins {
  readonly #source = new Label('source', SOURCES);
  readonly #network = new Label('network', NETWORKS);
  readonly #requests = new Tally(
    { name: CLIENT_ADDRESSES, help: 'Requests, by who named the address of the client, and its kind of network.' },
    this.#source,
    this.#network,
  );

  /** Must be called once for every request. */
  note({ client, peer, request }: Exchange): void {
    const source = request.headers['x-forwarded-for'] === undefined ? 'peer' : client === peer ? 'ignored' : 'proxy';
    this.#requests.add(this.#source.positionOf(source), this.#network.positionOf(networkKindOf(client)));
  }

  family(): Family {
    return this.#requests.family();
  }
}

export function networkKindOf(address: string): Network {
  if (LOOPBACK.test(address)) return 'loopback';
  return PRIVATE.test(address) ? 'private' : 'public';
}
