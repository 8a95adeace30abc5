import { readFileSync } from 'node:fs';
import { startPostgres } from '../../support/postgres.ts';
import { sum } from '../../support/statistics.ts';
import { listsOf } from '../load/asks.ts';
import { runWrk } from '../load/load.ts';
import { startNode } from '../machine/processes.ts';
import { installPrograms } from '../machine/programs.ts';
import { describeMachine, usageOf, withChildren } from '../machine/usage.ts';
import { connectTo, startGateway } from '../setup/gateway.ts';
import { issueKeys } from '../setup/keys.ts';
import { setStage } from '../setup/stage.ts';

/**
 * Measures the memory of a gateway on Redis and of a core on PostgreSQL, at rest and at its peak under load. The memory
 * requests of the containers are derived from the result.
 *
 *     node test/bench/scale/memory.ts
 */

const SECONDS = 20;
const CONNECTIONS = [32, 512];
const IDLE_CONNECTIONS = 5_000;

installPrograms();
const stage = await setStage();
const postgres = await startPostgres();
const core = await startNode('core on postgres', 'core/main.ts', { PORT: '0', DATABASE_URL: postgres.url });
const { hot } = await issueKeys(stage.client);
const gateway = await startGateway('gateway', { coreUrl: core.urls.core ?? '' }, { REDIS_URL: stage.redisUrl });
const url = gateway.urls.gateway ?? '';

/** The sum of the peak resident memory of a service's processes so far, in megabytes. */
const most = (pid: number): number =>
  sum(
    withChildren(pid).map((one) =>
      Number(/^VmHWM:\s+(\d+) kB/m.exec(readFileSync(`/proc/${one}/status`, 'utf8'))?.[1]),
    ),
  ) / 1_024;

const say = (what: string, megabytes: (pid: number) => number) =>
  process.stdout.write(
    `${what.padEnd(34)} gateway ${megabytes(gateway.pid).toFixed(0)} MB, core ${megabytes(core.pid).toFixed(0)} MB\n`,
  );

process.stdout.write(`${describeMachine()}\n\n`);
say('at rest', (pid) => usageOf(pid).residentMegabytes);
for (const connections of CONNECTIONS) {
  await runWrk({ url, connections, seconds: SECONDS, asks: listsOf([hot]) });
  say(`peak, ${connections} connections`, most);
}
const sockets = await Promise.all(Array.from({ length: IDLE_CONNECTIONS }, () => connectTo(url)));
await runWrk({ url, connections: CONNECTIONS[0] ?? 0, seconds: SECONDS, asks: listsOf([hot]) });
say(`peak, with ${IDLE_CONNECTIONS} idle ones`, most);
for (const socket of sockets) socket.destroy();
await postgres.stop();
process.exit(0);
