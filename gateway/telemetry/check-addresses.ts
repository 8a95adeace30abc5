import type { Family } from '../../shared/process/counts.ts';
import { type CheckResult, fault, good, warning } from '../check-result.ts';
import { CLIENT_ADDRESSES, type Network, type Source } from './request-metrics.ts';
import { seriesOf } from './state.ts';

/** Checks clients' addresses: the allowance of clients without a key and the networks of secrets depend on them. */

const ABOUT = 'client addresses';
/** A block with a prefix of at most this length is a whole network, not just a few proxies. */
const WIDE = { ipv4: 23, ipv6: 63 } as const;
/** Fewer requests prove nothing. */
const ENOUGH_REQUESTS = 100;

/**
 * @param trustedProxies the setting's addresses and blocks
 * @param counted the counts of all processes that serve clients
 */
export function checkAddresses(trustedProxies: readonly string[], counted: readonly Family[]): CheckResult[] {
  const wide = trustedProxies.filter(isWide);
  if (wide.length > 0) return wide.map(warningFor);
  const requests = requestsIn(counted);
  const all = requests();
  if (all < ENOUGH_REQUESTS) return [good(ABOUT, 'too few requests to judge by')];
  return [checkSources(all, requests({ source: 'ignored' })) ?? checkNetworks(requests) ?? good(ABOUT, seen(requests))];
}

/** The finding for a block of TRUSTED_PROXIES that is too wide. Anyone inside it can claim any client address. */
function warningFor(block: string): CheckResult {
  if (block.endsWith('/0'))
    return fault(
      ABOUT,
      `TRUSTED_PROXIES ${block} covers every address`,
      'List only your proxies: any client can spoof its address.',
    );
  return warning(
    ABOUT,
    `TRUSTED_PROXIES ${block} covers a whole network`,
    'List only your proxies: anyone else in that network can spoof any address.',
  );
}

function isWide(block: string): boolean {
  const [address = '', prefix] = block.split('/');
  return prefix !== undefined && Number(prefix) <= (address.includes(':') ? WIDE.ipv6 : WIDE.ipv4);
}

function checkSources(all: number, ignored: number): CheckResult | undefined {
  if (ignored <= all / 2) return undefined;
  return warning(
    ABOUT,
    `${Math.floor((100 * ignored) / all)} % of the requests name a client but come from an untrusted address`,
    'If they come from your own proxy, add it to TRUSTED_PROXIES: until then, all its clients without a key share one allowance.',
  );
}

function checkNetworks(requests: Requests): CheckResult | undefined {
  if (requests({ network: 'public' }) > 0 || requests({ network: 'private' }) < ENOUGH_REQUESTS) return undefined;
  return warning(
    ABOUT,
    'all are private',
    'If some clients are outside your network, something in front of the gateway hides their addresses (SNAT), so all clients without a key share one allowance. Use externalTrafficPolicy: Local or the PROXY protocol.',
  );
}

const seen = (requests: Requests): string =>
  `${requests({ source: 'peer' })} from the connection, ${requests({ source: 'proxy' })} from a trusted proxy`;

/** Counts the requests with these labels. */
type Requests = (wanted?: { readonly source?: Source; readonly network?: Network }) => number;

function requestsIn(counted: readonly Family[]): Requests {
  const series = seriesOf(counted, CLIENT_ADDRESSES);
  return ({ source, network } = {}) =>
    series
      .filter(({ labels }) => (source ?? labels.source) === labels.source)
      .filter(({ labels }) => (network ?? labels.network) === labels.network)
      .reduce((sum, { value }) => sum + value, 0);
}
