import { expect, test } from 'vitest';
import { networkOf, plainAddress } from '../../gateway/pipeline/client-request.ts';
import { listeningCore } from '../support/faulty-core.ts';
import { send } from '../support/http.ts';
import { startStack } from '../support/stack.ts';

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
] as const)('%s uses the allowance of %s', ([remote, expected]) => {
  expect(networkOf(plainAddress(remote))).toBe(expected);
});

/** What a request tells the core, as `for proto host`. */
const told = (head: string): string =>
  ['for', 'proto', 'host'].map((part) => new RegExp(`^x-forwarded-${part}: (.*)$`, 'im').exec(head)?.[1]).join(' ');

test.for([
  ['nothing, from a proxy', '127.0.0.1', {}, '127.0.0.1 http gateway.test'],
  ['one address', '127.0.0.1', { 'x-forwarded-for': '203.0.113.9' }, '203.0.113.9 http gateway.test'],
  ['a proxy behind it', '127.0.0.1', { 'x-forwarded-for': '203.0.113.9, 10.1.2.3' }, '203.0.113.9 http gateway.test'],
  [
    'what the client wrote in front',
    '127.0.0.1',
    { 'x-forwarded-for': '10.9.9.9,6.6.6.6,203.0.113.9, 10.1.2.3' },
    '203.0.113.9 http gateway.test',
  ],
  ['two headers', '127.0.0.1', { 'x-forwarded-for': ['6.6.6.6', '203.0.113.9'] }, '203.0.113.9 http gateway.test'],
  ['proxies only', '127.0.0.1', { 'x-forwarded-for': '10.3.3.3, 10.1.2.3' }, '10.3.3.3 http gateway.test'],
  [
    'an IPv6 address',
    '127.0.0.1',
    { 'x-forwarded-for': '2001:db8:1:2::9, 2001:db8:ffff::1' },
    '2001:db8:1:2::9 http gateway.test',
  ],
  [
    'an IPv4 address in IPv6',
    '127.0.0.1',
    { 'x-forwarded-for': '::ffff:203.0.113.9, ::ffff:10.1.2.3' },
    '203.0.113.9 http gateway.test',
  ],
  [
    'an IPv4 address in IPv6, in hex',
    '127.0.0.1',
    { 'x-forwarded-for': '::ffff:c0a8:0101, ::ffff:0a01:0203' },
    '192.168.1.1 http gateway.test',
  ],
  [
    'addresses with ports',
    '127.0.0.1',
    { 'x-forwarded-for': '203.0.113.7:5678, 10.1.2.3:80' },
    '203.0.113.7 http gateway.test',
  ],
  [
    'an IPv6 address with a port',
    '127.0.0.1',
    { 'x-forwarded-for': '[2001:db8::1]:443, [2001:db8:ffff::1]' },
    '2001:db8::1 http gateway.test',
  ],
  [
    'what only looks like a port',
    '127.0.0.1',
    { 'x-forwarded-for': '203.0.113.7:567890' },
    '127.0.0.1 http gateway.test',
  ],
  [
    'empty elements at its end',
    '127.0.0.1',
    { 'x-forwarded-for': '203.0.113.9, 10.1.2.3, ,' },
    '203.0.113.9 http gateway.test',
  ],
  ['no address at its end', '127.0.0.1', { 'x-forwarded-for': '203.0.113.9, unknown' }, '127.0.0.1 http gateway.test'],
  [
    'no address in its midst',
    '127.0.0.1',
    { 'x-forwarded-for': '203.0.113.9, x, 10.1.2.3' },
    '10.1.2.3 http gateway.test',
  ],
  [
    'scheme and host',
    '127.0.0.1',
    { 'x-forwarded-proto': 'https', 'x-forwarded-host': 'store.example:8443' },
    '127.0.0.1 https store.example:8443',
  ],
  [
    'a scheme and a host that are none',
    '127.0.0.1',
    { 'x-forwarded-proto': 'gopher', 'x-forwarded-host': 'a, b' },
    '127.0.0.1 http gateway.test',
  ],
  [
    'everything, from a stranger',
    '127.0.0.2',
    {
      'x-forwarded-for': '203.0.113.9',
      'x-forwarded-proto': 'https',
      'x-forwarded-host': 'evil',
      'x-forwarded-port': '1',
      forwarded: 'for=6.6.6.6',
    },
    '127.0.0.2 http gateway.test',
  ],
] as const)(
  'given %s, the core receives only what is trusted about the client',
  async ([, from, headers, expected]) => {
    const core = await listeningCore();
    const stack = await startStack({ CORE_URL: core.url, TRUSTED_PROXIES: '127.0.0.1, 10.0.0.0/8,2001:db8:ffff::/48' });
    const key = await stack.issueKey();
    const sent = { key, from, headers: { host: 'gateway.test', ...headers } as Record<string, string | string[]> };
    expect((await send(`${stack.gateway}/v1/pets`, sent)).status).toBe(200);
    expect(told(core.heads[0] ?? '')).toBe(expected);
    expect(core.heads[0]?.match(/^(x-forwarded|forwarded)/gim)).toHaveLength(3);
  },
);

test('behind a trusted proxy each client has its own allowance, and IPv6 clients of a /64 share one', async () => {
  const stack = await startStack({ TRUSTED_PROXIES: '127.0.0.0/31' });
  const startedAt = performance.now();
  /** This many are left, plus one for each second since the start. */
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
  // From an untrusted peer the header has no effect: all of these are one address.
  expect(await remaining('203.0.113.20', '127.0.0.2')).toEqual(left(59));
  expect(await remaining('203.0.113.21', '127.0.0.2')).toEqual(left(58));
  expect(stack.log.filter(({ msg }) => msg === 'request').map(({ address }) => address)).toEqual([
    '203.0.113.9',
    '203.0.113.9',
    '203.0.113.10',
    '2001:db8:1:2::/64',
    '2001:db8:1:2::/64',
    '2001:db8:1:3::/64',
    '127.0.0.2',
    '127.0.0.2',
  ]);
});
