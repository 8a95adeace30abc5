import { isIPv6 } from 'node:net';

/**
 * Whose allowance a caller without a key draws on: the peer's address. An IPv6 host picks freely among the addresses of
 * its /64, so the /64 stands for it; an IPv4 address mapped into IPv6 stands for itself.
 */
export function clientAddress(remoteAddress: string | undefined): string {
  if (remoteAddress === undefined) return 'unknown';
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(remoteAddress)?.[1];
  if (mapped !== undefined) return mapped;
  return isIPv6(remoteAddress) ? prefix64(remoteAddress) : remoteAddress;
}

function prefix64(address: string): string {
  const [head = '', tail] = (address.split('%', 1)[0] ?? '').split('::');
  const groups = head === '' ? [] : head.split(':');
  const behind = tail === undefined || tail === '' ? [] : tail.split(':');
  const missing = tail === undefined ? 0 : 8 - groups.length - behind.length;
  const all = [...groups, ...Array<string>(missing).fill('0'), ...behind];
  return `${all
    .slice(0, 4)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(':')}::/64`;
}
