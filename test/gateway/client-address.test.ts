import { expect, test } from 'vitest';
import { clientAddress } from '../../gateway/edge/client-address.ts';

test.for([
  ['127.0.0.1', '127.0.0.1'],
  ['::ffff:10.0.0.1', '10.0.0.1'],
  ['::FFFF:10.0.0.1', '10.0.0.1'],
  ['::1', '0:0:0:0::/64'],
  ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
  ['2001:0db8:0001:0002::9', '2001:db8:1:2::/64'],
  ['fe80::1%eth0', 'fe80:0:0:0::/64'],
  [undefined, 'unknown'],
] as const)('%s draws on the allowance of %s', ([remote, expected]) => {
  expect(clientAddress(remote)).toBe(expected);
});
