import { expect, test } from 'vitest';
import type { DoctorAnswer } from '../../gateway/operators/api/answers.ts';
import { networkKindOf } from '../../gateway/telemetry/request-metrics.ts';
import { send } from '../support/http.ts';
import { manifestsOf, OVERLAY, workloadsOf } from '../support/manifests.ts';
import { get } from '../support/operators.ts';
import { type Stack, startStack } from '../support/stack.ts';
import { startWorkers } from '../support/workers.ts';

/** Tests what `ctl doctor` reports about client addresses. */

const REQUESTS = 100;

async function findingsOf({ admin }: Pick<Stack, 'admin'>): Promise<string[]> {
  const { findings } = await get<DoctorAnswer>({ admin }, '/doctor');
  return findings
    .filter(({ about }) => about === 'client addresses')
    .map(({ status, found, advice }) => [status, found, ...(advice === undefined ? [] : [advice])].join(': '));
}

/** Sends a hundred requests without a key, as a proxy that names these clients in turn. Undefined: none. */
async function ask(gateway: string, clients: readonly (string | undefined)[]): Promise<void> {
  for (let sent = 0; sent < REQUESTS; sent++) {
    const client = clients[sent % clients.length];
    await send(`${gateway}/v1/pets`, { headers: client === undefined ? {} : { 'x-forwarded-for': client } });
  }
}

test.for([
  ['10.0.0.0/8', 'warning: TRUSTED_PROXIES 10.0.0.0/8 covers a whole network'],
  ['10.2.0.0/23', 'warning: TRUSTED_PROXIES 10.2.0.0/23 covers a whole network'],
  ['fd00:1::/48', 'warning: TRUSTED_PROXIES fd00:1::/48 covers a whole network'],
  ['0.0.0.0/0', 'fault: TRUSTED_PROXIES 0.0.0.0/0 covers every address'],
  ['::/0', 'fault: TRUSTED_PROXIES ::/0 covers every address'],
])('the doctor reports TRUSTED_PROXIES %s', async ([TRUSTED_PROXIES, found]) => {
  const stack = await startStack({ TRUSTED_PROXIES: `127.0.0.1,${TRUSTED_PROXIES}` });
  expect(await findingsOf(stack)).toEqual([expect.stringMatching(`^${found}: List only your proxies`)]);
});

test('the doctor does not report single proxies, small blocks, or a gateway with few requests', async () => {
  const stack = await startStack({ TRUSTED_PROXIES: '127.0.0.1,10.2.3.0/24,fd00::/64' });
  expect(await findingsOf(stack)).toEqual(['good: too few requests to judge by']);
});

const PROXY = '203.0.113.9';
const TRUSTING = { TRUSTED_PROXIES: '127.0.0.1' };
const UNTRUSTED = '^warning: 100 % of the requests name a client but come from an untrusted address: If they';

test.for([
  ['names all clients and is not trusted', {}, [PROXY], UNTRUSTED],
  ['is trusted and names a client', TRUSTING, [PROXY], '^good: 0 from the connection, 100 from a trusted proxy$'],
  [
    'is not trusted and forwards only half of the requests',
    {},
    [PROXY, undefined],
    '^good: 50 from the connection, 0 from a trusted proxy$',
  ],
  // This is the case behind a load balancer that hides the clients.
  ['names only private addresses', TRUSTING, ['10.1.2.3', '10.1.2.4'], '^warning: all are private: .*SNAT'],
  [
    'names at least one public address',
    TRUSTING,
    [...Array(99).fill('10.1.2.3'), PROXY],
    '^good: 0 from the connection, 100 from a trusted proxy$',
  ],
] as const)('the doctor reports the state of a proxy that %s', async ([, environment, clients, finding]) => {
  const stack = await startStack(environment);
  await ask(stack.gateway, clients);
  await expect.poll(() => findingsOf(stack)).toEqual([expect.stringMatching(finding)]);
});

test('the doctor counts the requests on all workers', async () => {
  const workers = await startWorkers(TRUSTING);
  await ask(workers.gateway, ['10.1.2.3']);
  const finding = expect.stringMatching('^warning: all are private');
  await expect.poll(() => findingsOf({ admin: workers.change })).toEqual([finding]);
});

test.for([
  ['loopback', '127.0.0.1 127.9.9.9 ::1'],
  ['private', '10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 100.64.0.1 100.127.0.1 169.254.1.1'],
  ['private', 'fd00::1 fc00::1 fe80::1 FD00::1'],
  ['public', '9.9.9.9 11.0.0.1 172.15.0.1 172.32.0.1 100.63.0.1 100.128.0.1 192.169.1.1 2001:db8::1 ff02::1'],
] as const)('these addresses are classified as %s: %s', ([kind, addresses]) => {
  for (const address of addresses.split(' ')) expect([address, networkKindOf(address)]).toEqual([address, kind]);
});

test('the Kubernetes manifests trust no whole network', () => {
  const gateway = workloadsOf(manifestsOf(OVERLAY)).find(({ name }) => name === 'gateway');
  const trusted = gateway?.pod.containers[0]?.env.find(({ name }) => name === 'TRUSTED_PROXIES')?.value;
  expect(trusted).toBe(undefined);
});
