import { once } from 'node:events';
import net, { type AddressInfo, type Socket } from 'node:net';
import { expect, test } from 'vitest';
import { cleanUp } from '../support/clean-up.ts';
import { emptyPostgres } from '../support/databases.ts';
import { readAndWrite } from '../support/load.ts';
import { type Started, startService } from '../support/process.ts';
import { startStack } from '../support/stack.ts';
import { eventually } from '../support/workers.ts';

/** Cores behind one address, like a Kubernetes Service, are replaced under load. */

const REPLACEMENTS = 2;

interface Service {
  readonly url: string;
  /** Ports for new connections. Open connections stay where they are. */
  endpoints: number[];
}

/** Connects each new connection to the next of its endpoints, byte for byte. */
async function startServiceAddress(): Promise<Service> {
  const sockets = new Set<Socket>();
  let turn = 0;
  const server = net.createServer((client) => {
    const core = net.connect(service.endpoints[turn++ % service.endpoints.length] as number, '127.0.0.1');
    for (const [one, other] of [
      [client, core],
      [core, client],
    ] as const) {
      sockets.add(one);
      one.on('error', () => other.destroy());
      one.on('close', () => other.destroy());
      one.pipe(other);
    }
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  cleanUp(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const service: Service = { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, endpoints: [] };
  return service;
}

const portOf = (core: Started & { addresses: Record<string, string> }): number =>
  Number(new URL(core.addresses.core ?? '').port);

test(`${REPLACEMENTS} cores are replaced one after the other, and no request fails`, async () => {
  const DATABASE_URL = await emptyPostgres();
  const start = () => startService('core/main.ts', { PORT: '0', DATABASE_URL });
  const service = await startServiceAddress();
  // They start at the same time on an empty database, as pods do.
  const cores = await Promise.all(Array.from({ length: 2 + REPLACEMENTS }, start));
  const endpointsFrom = (first: number) => cores.slice(first, first + 2).map(portOf);
  service.endpoints = endpointsFrom(0);
  const stack = await startStack({ CORE_URL: service.url });
  const key = await stack.issueKey({ plan: 'enterprise', minute: 1_000_000_000, day: 1_000_000_000 });
  const load = readAndWrite(stack.gateway, key, 8, 10);
  const answered = () => [...load.outcomes.values()].reduce((sum, count) => sum + count, 0);
  for (const [index, { child, ended }] of cores.slice(0, REPLACEMENTS).entries()) {
    service.endpoints = endpointsFrom(index + 1);
    const before = answered();
    await eventually(answered).toBeGreaterThan(before + 100);
    child.kill('SIGTERM');
    expect((await ended).code).toBe(0);
  }
  await load.end();
  expect([...load.outcomes.keys()].sort()).toEqual(['GET 200', 'POST 201']);
}, 60_000);
