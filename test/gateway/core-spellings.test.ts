import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import tls from 'node:tls';
import { expect, test } from 'vitest';
import { readGatewaySettings } from '../../gateway/config.ts';
import { SettingsError } from '../../shared/process/env.ts';
import { echo, opened, PATH, startLive } from '../security/web-socket.ts';
import { webSocketCore } from '../security/web-socket-core.ts';
import { createAuthority } from '../support/certificates.ts';
import { cleanUp } from '../support/clean-up.ts';
import { startDnsServer } from '../support/dns-server.ts';
import { listeningCore } from '../support/faulty-core.ts';
import { post, send } from '../support/http.ts';
import { scrape } from '../support/metrics.ts';
import { type Stack, startStack, temporaryFolder } from '../support/stack.ts';

/** The ways in which CORE_URL can name a core. */

/** What goes to a core in each of the ways that there are: a read, a write, a WebSocket, the doctor. */
async function useAll(stack: Stack): Promise<void> {
  const key = await stack.issueKey();
  expect((await send(`${stack.gateway}/v1/pets`, { key })).status).toBe(200);
  expect((await post(`${stack.gateway}/v1/pets`, {}, { key })).status).toBe(200);
  // Whatever the client calls the gateway is nothing to the core's certificate.
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

test('a missing Unix socket is an unreachable core', async () => {
  const path = join(await temporaryFolder(), 'core.sock');
  const stack = await startStack({ CORE_URL: `unix:${path}` });
  expect((await send(`${stack.gateway}/v1/pets`, { key: await stack.issueKey() })).status).toBe(502);
  const unreachable = { core: `unix:${path}`, kind: 'unreachable' };
  expect((await scrape(stack.adminUrl)).sum('gateway_upstream_errors_total', unreachable)).toBe(1);
});

test.for(['cores.test', 'other.test'])(
  'a certificate is checked against the name, whatever the address: %s',
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

test('localhost is one core with this name', async () => {
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
] as const)('%s as a core is refused', ([CORE_URL, fault]) => {
  const read = () => readGatewaySettings({ CORE_URL: `http://good,${CORE_URL}` });
  expect(read).toThrow(new SettingsError(`The settings have a fault:\n  CORE_URL.1: ${fault}`));
});

test.for([
  'http://core:7001',
  'https://[::1]:7001',
  'http+srv://_core._tcp.example.com',
  'https+srv://_core-api._tcp.core_1.local',
  'unix:/run/core.sock',
  `unix:/${'a'.repeat(106)}`,
])('%s as a core is taken', (CORE_URL) => {
  expect(readGatewaySettings({ CORE_URL }).CORE_URL).toEqual([CORE_URL]);
});
