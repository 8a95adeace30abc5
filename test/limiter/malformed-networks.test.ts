import { describe, expect, test } from 'vitest';
import { createApiKey, credentialOf } from '../../gateway/limiter/credential.ts';
import { describeNetwork, isNetwork, isWithin, parseNetwork } from '../../gateway/limiter/networks.ts';
import { bothLimiters } from '../support/limiters.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { secretWith } from '../support/secrets.ts';

/** A malformed network that was written into a key by hand matches no address. */

const { url } = await emptyDatabase();
const MANY = '9'.repeat(20);
const MALFORMED = `
  10.0.0.0/${MANY} 4:0a/${MANY} 4:/${MANY} 4:0a/ 4:0a 4: /0 / 0/0 x 10.0.0.0/8 10.0.0.1 0.0.0.0/0 ::/0 4:0a000001/0
  4:0a000001/8 4:0a/-8 4:0a/8.0 4:0a/1e0 4:0a/32 4:0a000001ff/40 :0a/8 04:0a/8 14:0a/8 4:/00 4:0/01 4:0a/08 4:0A/8
`
  .trim()
  .split(/\s+/);

describe.for(bothLimiters(url))('with %s', async ([, open]) => {
  const under = await open();
  const decided = async (networks: string[], address = '10.0.0.1') => {
    const { digest } = createApiKey().credential;
    const { id } = await under.createKey({ secrets: [secretWith(digest, { networks })] });
    return (await under.limiter.decide(credentialOf(id, digest, { scope: undefined, address }))).outcome;
  };

  test.for(MALFORMED)('the malformed network %s admits no address', async (network) => {
    expect(await decided([network])).not.toBe('admitted');
  });

  test('a valid network beside a malformed one admits its addresses', async () => {
    expect(await decided([`10.0.0.0/${MANY}`, parseNetwork('10.0.0.0/8') as string])).toBe('admitted');
    expect(await decided([parseNetwork('10.0.0.0/9') as string, '4:0a'], '10.200.0.1')).not.toBe('admitted');
    expect(await decided([parseNetwork('0.0.0.0/0') as string])).toBe('admitted');
  });
});

test('a malformed network is rejected, contains no address, and is shown unchanged', () => {
  for (const network of MALFORMED)
    expect([isNetwork(network), isWithin(network, '4:0a000001'), describeNetwork(network)]).toEqual([
      false,
      false,
      network,
    ]);
});

test.for(['10.0.0.0/8', '10.0.0.1', '0.0.0.0/0', '::/0', '2001:db8::/33', '::ffff:10.0.0.0/104'])(
  '%s is accepted as a network',
  (text) => {
    expect(isNetwork(parseNetwork(text) as string)).toBe(true);
  },
);

test.for([`10.0.0.0/${MANY}`, '10.0.0.0/33', '10.0.0.0/', '10.0.0.0/-1', '10.0.0.0/08x'])(
  '%s is refused as a network',
  (text) => {
    expect(parseNetwork(text)).toBeUndefined();
  },
);
