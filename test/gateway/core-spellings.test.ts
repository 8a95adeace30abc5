import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import tls from 'node:tls';
import { expect, test } from 'vitest';
import { readGatewaySettings } from '../../gateway/config.ts';
import { SettingsError } from '../../shared/process/env.ts';
import { echo, opened, PATH, startLive } from '../security/web-socket.ts';
import { webSocketCore } from '../security/web-socket-core.ts';
import { type AddressedCore, askedDuring, coresOn } from '../support/addressed-cores.ts';
import { createAuthority } from '../support/certificates.ts';
import { cleanUp } from '../support/clean-up.ts';
import { type SrvAnswer, startDnsServer } from '../support/dns-server.ts';
import { listeningCore } from '../support/faulty-core.ts';
import { post, send } from '../support/http.ts';
import { readAndWrite } from '../support/load.ts';
import { eventuallyScraped, scrape } from '../support/metrics.ts';
import { type Stack, startStack, temporaryFolder, UNLIMITED } from '../support/stack.ts';
import { fact, TIMED } from '../support/timed.ts';

/** Tests all forms of CORE_URL except host names, which `core-names.test.ts` tests. */

/** Uses each kind of connection to a core: for a read, a write and a WebSocket. */
async function useAll(stack: Stack): Promise<void> {
  const key = await stack.issueKey();
  expect((await send(`${stack.gateway}/v1/pets`, { key })).status).toBe(200);
  expect((await post(`${stack.gateway}/v1/pets`, {}, { key })).status).toBe(200);
  // The core's certificate is not checked against the client's Host header.
  const tunnel = await opened(stack, key, PATH, { headers: { Host: 'store.test' } });
  expect((await echo(tunnel, 'hello')).toString()).toBe('hello');
}

async function coreFindings(stack: Stack): Promise<string[]> {
  const { json } = await stack.admin('GET', '/doctor');
  const { findings } = json as { findings: { about: string; status: string }[] };
  return findings.filter(({ about }) => about.startsWith('core')).map(({ about, status }) => `${status} ${about}`);
}

const labelsOf = async (stack: Stack) =>
  (await scrape(stack.adminUrl)).series('gateway_upstream_ready').map(({ labels }) => labels.core);

test('reads, writes and tunnels reach a core on a Unix socket', async () => {
  const path = join(await temporaryFolder(), 'core.sock');
  const core = await webSocketCore(undefined, { path });
  const stack = await startLive({ CORE_URL: `unix:${path}` });
  await useAll(stack);
  expect(core.requests.concat(core.handshakes).map(({ headers }) => headers.host)).toEqual(Array(3).fill('localhost'));
  expect(await labelsOf(stack)).toEqual([`unix:${path}`]);
  expect(await coreFindings(stack)).toEqual([`good core unix:${path}`]);
});

test('a missing Unix socket counts as an unreachable core', async () => {
  const path = join(await temporaryFolder(), 'core.sock');
  const stack = await startStack({ CORE_URL: `unix:${path}` });
  expect((await send(`${stack.gateway}/v1/pets`, { key: await stack.issueKey() })).status).toBe(502);
  const unreachable = { core: `unix:${path}`, kind: 'unreachable' };
  expect((await scrape(stack.adminUrl)).sum('gateway_upstream_errors_total', unreachable)).toBe(1);
});

test.for(['cores.test', 'other.test'])(
  'a certificate is checked against the SRV name and not the address: %s',
  async (name) => {
    const { caFile, certFile, keyFile } = await createAuthority(`DNS:${name}`);
    const before = tls.getCACertificates('default');
    tls.setDefaultCACertificates([...before, await readFile(caFile, 'utf8')]);
    cleanUp(() => tls.setDefaultCACertificates(before));
    const certificate = { cert: await readFile(certFile), key: await readFile(keyFile) };
    const core = await webSocketCore(undefined, { certificate });
    const { port } = new URL(core.url);
    (await startDnsServer()).set('_core._tcp.cores.test', [{ target: '127.0.0.1', port: Number(port) }]);
    const stack = await startLive({ CORE_URL: 'https+srv://_core._tcp.cores.test' });
    if (name === 'cores.test') {
      await useAll(stack);
      expect(core.handshakes.concat(core.requests).map(({ headers }) => headers.host)).toEqual(
        Array(3).fill(`cores.test:${port}`),
      );
      expect(await coreFindings(stack)).toEqual([`good core ${core.url}`]);
    } else {
      const key = await stack.issueKey();
      expect((await send(`${stack.gateway}/v1/pets`, { key })).status).toBe(502);
      expect((await post(`${stack.gateway}/v1/pets`, {}, { key })).status).toBe(502);
      await expect(opened(stack, key)).rejects.toThrow('502');
      expect(await coreFindings(stack)).toEqual([`fault core ${core.url}`]);
    }
  },
);

test('localhost counts as a single core of that name', async () => {
  const core = await listeningCore();
  const CORE_URL = core.url.replace('127.0.0.1', 'localhost');
  const stack = await startStack({ CORE_URL });
  expect((await send(`${stack.gateway}/v1/pets`, { key: await stack.issueKey() })).status).toBe(200);
  expect(await labelsOf(stack)).toEqual([CORE_URL]);
  expect(stack.log.filter(({ msg }) => msg.startsWith('core '))).toEqual([]);
});

const LIKE_ORIGINS = 'must be an origin like http://127.0.0.1:7001, without a path';
const LIKE_SRV = 'must be like http+srv://_core._tcp.example.com, without a port or path';
const LIKE_SOCKETS = 'must be like unix:/run/core.sock, with a path of at most 107 bytes';

test.for([
  ['core:7001', 'must be an http://, https://, http+srv://, https+srv:// or unix: URL'],
  ['http://', 'must be an http:// or https:// URL'],
  ['http://a:99999', 'must be an http:// or https:// URL'],
  ['http://a/b', LIKE_ORIGINS],
  ['http://user@a', LIKE_ORIGINS],
  ['http+srv://core.example', LIKE_SRV],
  ['http+srv://_core._udp.example', LIKE_SRV],
  ['http+srv://_core._tcp.example:7001', LIKE_SRV],
  ['https+srv://_core._tcp.example/', LIKE_SRV],
  ['http+srv://_core._tcp.', LIKE_SRV],
  ['unix:core.sock', LIKE_SOCKETS],
  [`unix:/${'a'.repeat(107)}`, LIKE_SOCKETS],
] as const)('CORE_URL=%s is refused', ([CORE_URL, fault]) => {
  const read = () => readGatewaySettings({ CORE_URL: `http://good,${CORE_URL}` });
  expect(read).toThrow(new SettingsError(`The settings are invalid:\n  CORE_URL.1: ${fault}`));
});

test.for([
  'http://core:7001',
  'https://[::1]:7001',
  'http+srv://_core._tcp.example.com',
  'https+srv://_core-api._tcp.core_1.local',
  'unix:/run/core.sock',
  `unix:/${'a'.repeat(106)}`,
])('CORE_URL=%s is accepted', (CORE_URL) => {
  expect(readGatewaySettings({ CORE_URL }).CORE_URL).toEqual([CORE_URL]);
});

const SRV = '_core._tcp.cores.test';
const SRV_URL = `http+srv://${SRV}`;

const coreLines = ({ log }: Stack): string[] =>
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

test('each SRV target with the highest priority is a core, and no request fails when the targets change', async () => {
  const { dns, one, two, three, records, urls } = await startCores();
  dns.set(SRV, [...records.slice(1), { ...records[0], priority: 1 }]);
  const stack = await startStack({ CORE_URL: SRV_URL });
  expect(coreLines(stack).sort()).toEqual([`core added ${urls[1]}`, `core added ${urls[2]}`].sort());
  const load = readAndWrite(stack.gateway, await stack.issueKey(UNLIMITED), 8, 10);
  await eventuallyScraped(stack.adminUrl, (metrics) => metrics.sum('gateway_upstream_ready')).toBe(2);
  const [none, ...shares] = await askedDuring([one, two, three], () => sleep(1_000));
  expect([none, Math.min(...shares) / Math.max(...shares) > 0.8], String(shares)).toEqual([0, true]);
  dns.set(SRV, records);
  await expect.poll(() => coreLines(stack)).toContain(`core added ${urls[0]}`);
  dns.set(SRV, records.slice(0, 1));
  await expect.poll(() => coreLines(stack)).toContain(`core removed ${urls[1]}`);
  await sleep(300);
  expect((await askedDuring([two, three], () => sleep(500))).concat(coreLines(stack).length)).toEqual([0, 0, 5]);
  await load.end();
  expect([...load.outcomes.keys()].sort()).toEqual(['GET 200', 'POST 200']);
  for (const { hosts } of [two, three]) expect([...hosts][0]).toMatch(/^cores\.test:\d+$/);
});

test('the gateway waits for missing SRV records, and keeps using the last ones when they disappear', async () => {
  const { dns, records, urls } = await startCores();
  const stack = await startStack({ CORE_URL: SRV_URL });
  const key = await stack.issueKey();
  const ask = async () => (await send(`${stack.gateway}/v1/pets`, { key })).status;
  expect(await ask()).toBe(502);
  dns.set(SRV, records.slice(0, 1));
  await expect.poll(() => coreLines(stack)).toContain(`core added ${urls[0]}`);
  expect(await ask()).toBe(200);
  dns.set(SRV, []);
  const asked = dns.asked();
  await expect.poll(dns.asked).toBeGreaterThan(asked + 1);
  expect(await ask()).toBe(200);
  const lost = `core name cannot be resolved ${SRV_URL}`;
  expect(coreLines(stack)).toEqual([lost, `core name is resolved again ${SRV_URL}`, `core added ${urls[0]}`, lost]);
});

test(
  'a core that is removed from the SRV records finishes its requests, even slow ones, before its connections are closed',
  TIMED,
  async () => {
    const dns = await startDnsServer();
    const waitMs = ({ url }: { url?: string | undefined }) => (url?.includes('slow') ? 6_000 : 0);
    const { port, all } = await coresOn(['127.0.0.1', '127.0.0.2'], { waitMs });
    const [stays, leaves] = all as [AddressedCore, AddressedCore];
    const targets = all.map(({ address }) => ({ target: address, port }));
    dns.set(SRV, targets);
    const stack = await startStack({ CORE_URL: SRV_URL, CORE_TIMEOUT_MS: '120000' });
    const key = await stack.issueKey();
    await eventuallyScraped(stack.adminUrl, (metrics) => metrics.sum('gateway_upstream_ready')).toBe(2);
    // The cores take turns.
    const slow = ['a', 'b'].flatMap((_, at) => [
      post(`${stack.gateway}/v1/pets?slow=${at}`, {}, { key }),
      send(`${stack.gateway}/v1/pets?slow=${at}`, { key }),
    ]);
    await expect.poll(() => leaves.asked + stays.asked).toBe(4);
    expect(leaves.asked).toBeGreaterThan(0);
    dns.set(SRV, targets.slice(0, 1));
    await expect.poll(() => coreLines(stack)).toContain(`core removed http://127.0.0.2:${port}`);
    const before = leaves.asked;
    const statuses = (await Promise.all(slow)).map(({ status }) => status);
    await fact(() => expect([...statuses, stays.asked + leaves.asked]).toEqual([200, 200, 200, 200, 4]));
    // This timeout is shorter than the four seconds after which an idle connection is closed.
    await expect.poll(() => leaves.connections.size, { timeout: 2_500 }).toBe(0);
    expect(leaves.asked).toBe(before);
  },
);

test('the metrics of at most 32 removed cores are kept', async () => {
  const dns = await startDnsServer();
  const targets = Array.from({ length: 45 }, (_, at) => ({ target: `127.0.1.${at + 1}`, port: 1 }));
  dns.set(SRV, targets);
  const stack = await startStack({ CORE_URL: SRV_URL });
  const labels = async () =>
    new Set((await scrape(stack.adminUrl)).series('gateway_upstream_errors_total').map(({ labels }) => labels.core));
  expect((await labels()).size).toBeGreaterThanOrEqual(45);
  dns.set(SRV, targets.slice(0, 1));
  await expect.poll(async () => (await labels()).size).toBe(33);
  expect([...(await labels())]).toContain('http://127.0.1.1:1');
  expect((await scrape(stack.adminUrl)).series('gateway_upstream_ready')).toHaveLength(1);
});
