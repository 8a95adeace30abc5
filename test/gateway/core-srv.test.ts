import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { type AddressedCore, askedDuring, coresOn } from '../support/addressed-cores.ts';
import { type SrvAnswer, startDnsServer } from '../support/dns-server.ts';
import { post, send } from '../support/http.ts';
import { readAndWrite } from '../support/load.ts';
import { eventuallyScraped, scrape } from '../support/metrics.ts';
import { type Stack, startStack, UNLIMITED } from '../support/stack.ts';
import { fact, TIMED } from '../support/timed.ts';

/** CORE_URL names SRV records, which tell where the cores are and on which ports. */

const SRV = '_core._tcp.cores.test';
const CORE_URL = `http+srv://${SRV}`;

const told = ({ log }: Stack): string[] =>
  log.filter(({ msg }) => msg.startsWith('core ')).map(({ msg, core, name }) => `${msg} ${core ?? name}`);

async function startCores() {
  const dns = await startDnsServer();
  const [here, there] = [await coresOn(['127.0.0.1', '127.0.0.2']), await coresOn(['127.0.0.1'])];
  const [one, two, three] = [...here.all, ...there.all] as [AddressedCore, AddressedCore, AddressedCore];
  const at = (target: string, port: number, priority = 0): SrvAnswer => ({ target, port, priority });
  const records = [at('127.0.0.1', here.port), at('127.0.0.2', here.port), at('127.0.0.1', there.port)] as const;
  const urls = records.map(({ target, port }) => `http://${target}:${port}`) as [string, string, string];
  return { dns, one, two, three, records, urls };
}

test('each SRV target of the first priority is a core, and targets come and go without a failed request', async () => {
  const { dns, one, two, three, records, urls } = await startCores();
  dns.set(SRV, [...records.slice(1), { ...records[0], priority: 1 }]);
  const stack = await startStack({ CORE_URL });
  expect(told(stack).sort()).toEqual([`core added ${urls[1]}`, `core added ${urls[2]}`].sort());
  const load = readAndWrite(stack.gateway, await stack.issueKey(UNLIMITED), 8, 10);
  await eventuallyScraped(stack.adminUrl, (metrics) => metrics.sum('gateway_upstream_ready')).toBe(2);
  const [none, ...shares] = await askedDuring([one, two, three], () => sleep(1_000));
  expect([none, Math.min(...shares) / Math.max(...shares) > 0.8], String(shares)).toEqual([0, true]);
  dns.set(SRV, records);
  await expect.poll(() => told(stack)).toContain(`core added ${urls[0]}`);
  dns.set(SRV, records.slice(0, 1));
  await expect.poll(() => told(stack)).toContain(`core left ${urls[1]}`);
  await sleep(300);
  expect((await askedDuring([two, three], () => sleep(500))).concat(told(stack).length)).toEqual([0, 0, 5]);
  await load.end();
  expect([...load.outcomes.keys()].sort()).toEqual(['GET 200', 'POST 200']);
  for (const { hosts } of [two, three]) expect([...hosts][0]).toMatch(/^cores\.test:\d+$/);
});

test('the gateway waits for missing SRV records and keeps the last ones when they are gone', async () => {
  const { dns, records, urls } = await startCores();
  const stack = await startStack({ CORE_URL });
  const key = await stack.issueKey();
  const ask = async () => (await send(`${stack.gateway}/v1/pets`, { key })).status;
  expect(await ask()).toBe(502);
  dns.set(SRV, records.slice(0, 1));
  await expect.poll(() => told(stack)).toContain(`core added ${urls[0]}`);
  expect(await ask()).toBe(200);
  dns.set(SRV, []);
  const asked = dns.asked();
  await expect.poll(dns.asked).toBeGreaterThan(asked + 1);
  expect(await ask()).toBe(200);
  const lost = `core name cannot be resolved ${CORE_URL}`;
  expect(told(stack)).toEqual([lost, `core name is resolved again ${CORE_URL}`, `core added ${urls[0]}`, lost]);
});

test('a core that leaves finishes its requests, including a long answer, and then its connections', TIMED, async () => {
  const dns = await startDnsServer();
  const waitMs = ({ url }: { url?: string | undefined }) => (url?.includes('slow') ? 6_000 : 0);
  const { port, all } = await coresOn(['127.0.0.1', '127.0.0.2'], { waitMs });
  const [stays, leaves] = all as [AddressedCore, AddressedCore];
  const targets = all.map(({ address }) => ({ target: address, port }));
  dns.set(SRV, targets);
  const stack = await startStack({ CORE_URL, CORE_TIMEOUT_MS: '120000' });
  const key = await stack.issueKey();
  await eventuallyScraped(stack.adminUrl, (metrics) => metrics.sum('gateway_upstream_ready')).toBe(2);
  // Every other one is the other's.
  const slow = ['a', 'b'].flatMap((_, at) => [
    post(`${stack.gateway}/v1/pets?slow=${at}`, {}, { key }),
    send(`${stack.gateway}/v1/pets?slow=${at}`, { key }),
  ]);
  await expect.poll(() => leaves.asked + stays.asked).toBe(4);
  expect(leaves.asked).toBeGreaterThan(0);
  dns.set(SRV, targets.slice(0, 1));
  await expect.poll(() => told(stack)).toContain(`core left http://127.0.0.2:${port}`);
  const before = leaves.asked;
  const statuses = (await Promise.all(slow)).map(({ status }) => status);
  await fact(() => expect([...statuses, stays.asked + leaves.asked]).toEqual([200, 200, 200, 200, 4]));
  // At rest, connections end by themselves after four seconds.
  await expect.poll(() => leaves.connections.size, { timeout: 2_500 }).toBe(0);
  expect(leaves.asked).toBe(before);
});

test('metrics of cores that left are kept for a bounded number of cores', async () => {
  const dns = await startDnsServer();
  const targets = Array.from({ length: 45 }, (_, at) => ({ target: `127.0.1.${at + 1}`, port: 1 }));
  dns.set(SRV, targets);
  const stack = await startStack({ CORE_URL });
  const labels = async () =>
    new Set((await scrape(stack.adminUrl)).series('gateway_upstream_errors_total').map(({ labels }) => labels.core));
  expect((await labels()).size).toBeGreaterThanOrEqual(45);
  dns.set(SRV, targets.slice(0, 1));
  await expect.poll(async () => (await labels()).size).toBe(33);
  expect([...(await labels())]).toContain('http://127.0.1.1:1');
  expect((await scrape(stack.adminUrl)).series('gateway_upstream_ready')).toHaveLength(1);
});
