import { open, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { type AddressedCore, askedDuring, coresOn } from '../support/addressed-cores.ts';
import { post, send } from '../support/http.ts';
import { readAndWrite } from '../support/load.ts';
import { parsedLines } from '../support/log.ts';
import { eventuallyScraped, scrape } from '../support/metrics.ts';
import { startService } from '../support/process.ts';
import { ADMIN_TOKEN, temporaryFolder } from '../support/stack.ts';
import { BOUNDLESS, eventually, workersEnvironment } from '../support/workers.ts';

/** The file is overwritten in place by one write of a constant size, so that no process reads an incomplete file. */
const SIZE = 2_048;
const MOUNT = 'mount --bind "$0" /etc/hosts && mount --bind "$1" /etc/nsswitch.conf && shift && exec "$@"';

/**
 * A private /etc/hosts for one test, mounted for the started process only. Requires root or unprivileged user
 * namespaces.
 * @returns a command prefix that makes the process resolve names only from this file, and a function that replaces all
 * names and their addresses
 */
async function privateHosts() {
  const folder = await temporaryFolder();
  const [hosts, switches] = [join(folder, 'hosts'), join(folder, 'nsswitch.conf')];
  await writeFile(switches, 'hosts: files\n');
  const set = async (names: Readonly<Record<string, readonly string[]>>) => {
    const lines = Object.entries(names).flatMap(([name, addresses]) => addresses.map((one) => `${one} ${name}\n`));
    const file = await open(hosts, 'a+').then((created) => created.close().then(() => open(hosts, 'r+')));
    await file.write(lines.join('').padEnd(SIZE, '\n'), 0);
    await file.close();
  };
  await set({});
  const namespace = process.getuid?.() === 0 ? ['--mount'] : ['--map-root-user', '--mount'];
  return { within: ['unshare', ...namespace, 'sh', '-c', MOUNT, hosts, switches], set };
}

/** Tests CORE_URL with a host name, which the system resolves. */

const NAME = 'cores.test';
const [ONE, TWO, THREE] = ['127.0.0.1', '127.0.0.2', '127.0.0.3'] as const;
/** No core listens here. */
const NOWHERE = '127.0.0.4';

/** Starts three cores, and a gateway that finds some of them through a common name. */
async function startNamed(addresses: readonly string[], settings: NodeJS.ProcessEnv = {}) {
  const [cores, hosts] = [await coresOn([ONE, TWO, THREE]), await privateHosts()];
  await hosts.set({ [NAME]: addresses });
  const environment = {
    ...{ PORT: '0', ADMIN_PORT: '0', ADMIN_TOKEN, DATA_DIR: await temporaryFolder() },
    CORE_URL: `http://${NAME}:${cores.port}`,
    ...settings,
  };
  const { addresses: urls, out } = await startService('gateway/main.ts', environment, hosts.within);
  const { gateway = '', admin: adminUrl = '' } = urls;
  const created = await post(`${adminUrl}/keys`, { name: 'test', ...BOUNDLESS }, { key: ADMIN_TOKEN });
  const lines = parsedLines(out);
  return {
    gateway,
    adminUrl,
    key: (created.json as { key: string }).key,
    cores,
    hosts,
    url: (address: string) => `http://${address}:${cores.port}`,
    /** The log lines about cores: each message with the core or the name. */
    coreLines: () =>
      lines()
        .filter(({ msg }) => msg.startsWith('core '))
        .map(({ msg, core, name }) => `${msg} ${core ?? name}`),
  };
}

/** Expects that no share differs from the mean by more than a fifth. */
function expectEvenShares(shares: readonly number[]): void {
  const mean = shares.reduce((sum, share) => sum + share, 0) / shares.length;
  expect(mean).toBeGreaterThan(50);
  for (const share of shares) expect(Math.abs(share - mean), shares.join(' ')).toBeLessThanOrEqual(mean / 5);
}

test('each address of a name is a core with an equal share, and no request fails when addresses change', async () => {
  const { gateway, adminUrl, key, cores, url, hosts, coreLines } = await startNamed([ONE, TWO]);
  const [one, two, three] = cores.all as [AddressedCore, AddressedCore, AddressedCore];
  await expect.poll(coreLines).toEqual([`core added ${url(ONE)}`, `core added ${url(TWO)}`]);
  const load = readAndWrite(gateway, key, 16, 10);
  const during = (of: AddressedCore[]) => {
    const total = () => of.reduce((sum, { asked }) => sum + asked, 0);
    const enough = total() + 400;
    return askedDuring(of, () => expect.poll(total, { timeout: 20_000 }).toBeGreaterThan(enough));
  };
  await eventuallyScraped(adminUrl, (metrics) => metrics.sum('gateway_upstream_ready')).toBe(2);
  const [first, second, none] = await during([one, two, three]);
  expectEvenShares([first ?? 0, second ?? 0]);
  expect(none).toBe(0);

  await hosts.set({ [NAME]: [THREE, NOWHERE, TWO, ONE] });
  await expect.poll(coreLines).toContain(`core added ${url(THREE)}`);
  await eventuallyScraped(adminUrl, (metrics) => metrics.sum('gateway_upstream_ready', { core: url(THREE) })).toBe(1);
  expectEvenShares(await during([one, two, three]));

  await hosts.set({ [NAME]: [ONE, THREE, NOWHERE] });
  await expect.poll(coreLines).toContain(`core removed ${url(TWO)}`);
  await expect.poll(() => two.connections.size).toBe(0);
  const probes = two.probes;
  const [stays, left, stays2] = await during([one, two, three]);
  expectEvenShares([stays ?? 0, stays2 ?? 0]);
  expect([left, two.probes]).toEqual([0, probes]);

  await load.end();
  expect([...load.outcomes.keys()].sort()).toEqual(['GET 200', 'POST 200']);
  const added = [ONE, TWO, THREE, NOWHERE].map((address) => `core added ${url(address)}`);
  expect(coreLines()).toEqual([...added, `core removed ${url(TWO)}`]);
  // The Host header contains the name, while metrics are labelled with the address.
  for (const core of cores.all) expect([...core.hosts]).toEqual([`${NAME}:${cores.port}`]);
  const metrics = await scrape(adminUrl);
  const ready = metrics.series('gateway_upstream_ready').map(({ labels, value }) => [labels.core, value]);
  expect(ready).toEqual([ONE, THREE, NOWHERE].map((address) => [url(address), Number(address !== NOWHERE)]));
  // A core that joins gets requests only once its probe succeeds.
  expect(metrics.sum('gateway_upstream_errors_total')).toBe(0);
  expect(metrics.sum('gateway_upstream_duration_seconds_count', { core: url(TWO) })).toBeGreaterThan(0);
});

test('a name without addresses is an unreachable core until it has one, and keeps its last address when it is lost', async () => {
  const { gateway, adminUrl, key, url, hosts, coreLines } = await startNamed([]);
  const name = url(NAME);
  const ask = async () => (await send(`${gateway}/v1/pets`, { key })).status;
  expect([await ask(), (await send(`${adminUrl}/readyz`)).status]).toEqual([502, 200]);
  const unreachable = { core: name, kind: 'unreachable' };
  expect((await scrape(adminUrl)).sum('gateway_upstream_errors_total', unreachable)).toBe(1);
  const linesAfter = (before: number) => coreLines().slice(before);
  // IPv4 addresses are preferred.
  await hosts.set({ [NAME]: ['::1', THREE] });
  await expect.poll(coreLines).toContain(`core added ${url(THREE)}`);
  expect(await ask()).toBe(200);
  const before = coreLines().length;
  await hosts.set({});
  await expect.poll(() => linesAfter(before)).toEqual([`core name cannot be resolved ${name}`]);
  // The next attempt follows after two seconds.
  await sleep(2_500);
  for (let sent = 0; sent < 4; sent++) expect(await ask()).toBe(200);
  expect((await scrape(adminUrl)).series('gateway_upstream_ready')).toHaveLength(1);
  await hosts.set({ [NAME]: [TWO] });
  await expect.poll(coreLines).toContain(`core removed ${url(THREE)}`);
  expect(linesAfter(before)).toEqual([
    `core name cannot be resolved ${name}`,
    `core name is resolved again ${name}`,
    `core added ${url(TWO)}`,
    `core removed ${url(THREE)}`,
  ]);
  expect(coreLines().filter((line) => line.startsWith('core added'))).toHaveLength(2);
});

test('each worker resolves names itself, and the doctor checks each address', async () => {
  const { WORKERS, REDIS_URL, REDIS_TIMEOUT_MS } = await workersEnvironment({ CORE_URL: 'http://127.0.0.1:1' });
  const settings = { WORKERS, REDIS_URL, REDIS_TIMEOUT_MS };
  const { gateway, adminUrl, key, url, hosts, coreLines } = await startNamed([ONE, TWO, NOWHERE], settings);
  await eventually(() => coreLines().filter((line) => line === `core added ${url(TWO)}`)).toHaveLength(2);
  expect((await send(`${gateway}/v1/pets`, { key })).status).toBe(200);
  const examine = async () => {
    const { json } = await send(`${adminUrl}/doctor`, { key: ADMIN_TOKEN });
    const { findings } = json as { findings: { about: string; status: string }[] };
    return findings.map(({ about, status }) => `${status} ${about}`).filter((found) => /^\w+ core /.test(found));
  };
  // On a busy machine, a core can answer too slowly to be called good.
  await expect.poll(examine).toEqual([`good core ${url(ONE)}`, `good core ${url(TWO)}`, `fault core ${url(NOWHERE)}`]);
  await hosts.set({ [NAME]: [ONE] });
  await eventually(() => coreLines().filter((line) => line === `core removed ${url(TWO)}`)).toHaveLength(2);
  await hosts.set({});
  expect(await examine()).toEqual([`fault core ${url(NAME)}`]);
});
