import { expect, test } from 'vitest';
import { networkOf, plainAddress } from '../../gateway/pipeline/client-http.ts';
import { listeningCore } from '../support/faulty-core.ts';
import { send } from '../support/http.ts';
import { stackBefore } from '../support/stack-before.ts';

test.for([
  ['127.0.0.1', '127.0.0.1'],
  ['::ffff:10.0.0.1', '10.0.0.1'],
  ['::FFFF:10.0.0.1', '10.0.0.1'],
  ['::ffff:c0a8:0101', '192.168.1.1'],
  ['0:0:0:0:0:ffff:c0a8:101', '192.168.1.1'],
  ['::1', '0:0:0:0::/64'],
  ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
  ['2001:0db8:0001:0002::9', '2001:db8:1:2::/64'],
  ['64:ff9b::10.0.0.1', '64:ff9b:0:0::/64'],
  ['1:2:3:4::192.0.2.1', '1:2:3:4::/64'],
  ['1::2:3:4:5:192.0.2.1', '1:0:2:3::/64'],
  ['::1:2:3:4:192.0.2.1', '0:0:1:2::/64'],
  ['fe80::1%eth0', 'fe80:0:0:0::/64'],
  [undefined, 'unknown'],
] as const)('the address %s uses the allowance of %s', ([remote, expected]) => {
  expect(networkOf(plainAddress(remote))).toBe(expected);
});

const core = await listeningCore();
const { stack, get } = await stackBefore(core.url, { TRUSTED_PROXIES: '127.0.0.1, 10.0.0.0/8,2001:db8:ffff::/48' });

/** Returns the X-Forwarded headers that the core receives for a request with these headers, as `for proto host`. */
async function forwardedOf(headers: Record<string, string | string[]>, from = '127.0.0.1'): Promise<string> {
  core.heads.length = 0;
  expect((await get('', { from, headers: { host: 'gateway.test', ...headers } })).status).toBe(200);
  const [head = ''] = core.heads;
  expect(head.match(/^(x-forwarded|forwarded)/gim)).toHaveLength(3);
  const forwarded = ['for', 'proto', 'host'].map(
    (part) => new RegExp(`^x-forwarded-${part}: (.*)$`, 'im').exec(head)?.[1],
  );
  return forwarded.join(' ');
}

test.for([
  ['one address', '203.0.113.9', '203.0.113.9'],
  ['a proxy after the address', '203.0.113.9, 10.1.2.3', '203.0.113.9'],
  ['forged addresses in front', '10.9.9.9,6.6.6.6,203.0.113.9, 10.1.2.3', '203.0.113.9'],
  ['two headers', ['6.6.6.6', '203.0.113.9'], '203.0.113.9'],
  ['proxies only', '10.3.3.3, 10.1.2.3', '10.3.3.3'],
  ['an IPv6 address', '2001:db8:1:2::9, 2001:db8:ffff::1', '2001:db8:1:2::9'],
  ['an IPv4 address in IPv6', '::ffff:203.0.113.9, ::ffff:10.1.2.3', '203.0.113.9'],
  ['an IPv4 address in IPv6, in hex', '::ffff:c0a8:0101, ::ffff:0a01:0203', '192.168.1.1'],
  ['addresses with ports', '203.0.113.7:5678, 10.1.2.3:80', '203.0.113.7'],
  ['an IPv6 address with a port', '[2001:db8::1]:443, [2001:db8:ffff::1]', '2001:db8::1'],
  ['an invalid port', '203.0.113.7:567890', '127.0.0.1'],
  ['trailing empty elements', '203.0.113.9, 10.1.2.3, ,', '203.0.113.9'],
  ['a trailing word', '203.0.113.9, unknown', '127.0.0.1'],
  ['a word in the middle', '203.0.113.9, x, 10.1.2.3', '10.1.2.3'],
] as [what: string, forwardedFor: string | string[], client: string][])(
  'given X-Forwarded-For with %s, the core receives the outermost address that a trusted proxy reports',
  async ([, forwardedFor, client]) => {
    expect(await forwardedOf({ 'x-forwarded-for': forwardedFor })).toBe(`${client} http gateway.test`);
  },
);

test('the core receives the scheme and host that a trusted proxy sends, if valid, and no forwarding headers from other peers', async () => {
  const stated = (proto: string, host: string) => ({ 'x-forwarded-proto': proto, 'x-forwarded-host': host });
  expect(await forwardedOf({})).toBe('127.0.0.1 http gateway.test');
  expect(await forwardedOf(stated('https', 'store.example:8443'))).toBe('127.0.0.1 https store.example:8443');
  expect(await forwardedOf(stated('gopher', 'a, b'))).toBe('127.0.0.1 http gateway.test');
  const others = { 'x-forwarded-for': '203.0.113.9', 'x-forwarded-port': '1', forwarded: 'for=6.6.6.6' };
  expect(await forwardedOf({ ...stated('https', 'evil'), ...others }, '127.0.0.2')).toBe('127.0.0.2 http gateway.test');
});

test('behind a trusted proxy, each client has its own allowance, and IPv6 clients in a /64 share one', async () => {
  const startedAt = performance.now();
  /** Expects 401 with `count` remaining requests, plus at most one for each second since the start. */
  const left = (count: number) => [
    401,
    expect.toSatisfy((seen: number) => seen >= count && seen <= count + refilled()),
  ];
  const refilled = () => Math.floor((performance.now() - startedAt) / 1_000);
  const remaining = async (forwardedFor: string, from = '127.0.0.1') => {
    const { status, headers } = await send(`${stack.gateway}/v1/pets`, {
      from,
      headers: { 'x-forwarded-for': forwardedFor },
    });
    return [status, Number(headers['x-ratelimit-remaining'])] as const;
  };
  expect(await remaining('203.0.113.9')).toEqual(left(59));
  expect(await remaining('203.0.113.9')).toEqual(left(58));
  expect(await remaining('203.0.113.10')).toEqual(left(59));
  expect(await remaining('2001:db8:1:2::1')).toEqual(left(59));
  expect(await remaining('2001:db8:1:2:ffff::2')).toEqual(left(58));
  expect(await remaining('2001:db8:1:3::1')).toEqual(left(59));
  // The header of an untrusted peer has no effect: both requests are charged to the peer's own address.
  expect(await remaining('203.0.113.20', '127.0.0.2')).toEqual(left(59));
  expect(await remaining('203.0.113.21', '127.0.0.2')).toEqual(left(58));
  expect(stack.log.filter(({ status }) => status === 401).map(({ address }) => address)).toEqual([
    '203.0.113.9',
    '203.0.113.9',
    '203.0.113.10',
    '2001:db8:1:2::1',
    '2001:db8:1:2:ffff::2',
    '2001:db8:1:3::1',
    '127.0.0.2',
    '127.0.0.2',
  ]);
});
