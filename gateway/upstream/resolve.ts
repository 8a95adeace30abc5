import dns from 'node:dns/promises';
import { addressOf, type CoreAddress, type CoreName, isName, parseCoreUrl } from './core-url.ts';

/**
 * The current cores of an entry of CORE_URL, ordered by address.
 * @throws the resolver's fault, or {Error} if no address was found
 */
export async function resolveCores(text: string): Promise<CoreAddress[]> {
  const parsed = parseCoreUrl(text);
  return isName(parsed) ? await resolveName(parsed) : [parsed];
}

/** @throws as above */
export async function resolveName(name: CoreName): Promise<CoreAddress[]> {
  const found = name.srv === undefined ? await lookup(name, name.host, name.port) : await lookupTargets(name, name.srv);
  if (found.length === 0) throw new Error(`${name.text} has no address.`);
  return found.sort((a, b) => (a.origin < b.origin ? -1 : 1));
}

/** Asks the system, so /etc/hosts counts. A core with addresses of both families is one core: IPv4 is used. */
async function lookup(name: CoreName, host: string, port: string): Promise<CoreAddress[]> {
  const all = await dns.lookup(host, { all: true });
  const ipv4 = all.filter(({ family }) => family === 4);
  return (ipv4.length > 0 ? ipv4 : all).map(({ address }) => addressOf(name, address, port));
}

/**
 * Uses the targets of the first priority (RFC 2782). Weights are ignored: the load balances itself. A target without an
 * address is left out.
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
