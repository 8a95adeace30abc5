import net from 'node:net';
import { expect, test } from 'vitest';
import { emptyPostgres } from '../support/databases.ts';
import { bareCore } from '../support/faulty-core.ts';
import { readAndWrite } from '../support/load.ts';
import { type Started, startService } from '../support/process.ts';
import { startStack } from '../support/stack.ts';
import { eventually } from '../support/workers.ts';

/** Cores behind one address, like a Kubernetes Service, are replaced under load. */

const REPLACEMENTS = 2;

/** Forwards each new connection to the next of these ports. Open connections keep their port. */
function startServiceAddress(endpoints: () => readonly number[]): Promise<string> {
  let turn = 0;
  return bareCore((client) => {
    const ports = endpoints();
    const core = net.connect(ports[turn++ % ports.length] as number, '127.0.0.1');
    for (const [one, other] of [
      [client, core],
      [core, client],
    ] as const) {
      one.on('error', () => other.destroy());
      one.on('close', () => other.destroy());
      one.pipe(other);
    }
  });
}

const portOf = (core: Started & { addresses: Record<string, string> }): number =>
  Number(new URL(core.addresses.core ?? '').port);

test(`${REPLACEMENTS} cores are replaced one after the other, and no request fails`, async () => {
  const DATABASE_URL = await emptyPostgres();
  const start = () => startService('core/main.ts', { PORT: '0', DATABASE_URL });
  // All cores start at the same time on an empty database, as pods do.
  const cores = await Promise.all(Array.from({ length: 2 + REPLACEMENTS }, start));
  let first = 0;
  const CORE_URL = await startServiceAddress(() => cores.slice(first, first + 2).map(portOf));
  const stack = await startStack({ CORE_URL });
  const key = await stack.issueKey({ plan: 'enterprise', minute: 1_000_000_000, day: 1_000_000_000 });
  const load = readAndWrite(stack.gateway, key, 8, 10);
  const answered = () => [...load.outcomes.values()].reduce((sum, count) => sum + count, 0);
  for (const [index, { child, ended }] of cores.slice(0, REPLACEMENTS).entries()) {
    first = index + 1;
    const before = answered();
    await eventually(answered).toBeGreaterThan(before + 100);
    child.kill('SIGTERM');
    expect((await ended).code).toBe(0);
  }
  await load.end();
  expect([...load.outcomes.keys()].sort()).toEqual(['GET 200', 'POST 201']);
}, 60_000);
