import cluster from 'node:cluster';
import type { Family } from '../../shared/counts.ts';
import type { Logger } from '../../shared/logger.ts';
import { createMetrics, type MetricsSnapshot } from '../../shared/metrics.ts';
import type { Running } from '../../shared/run.ts';
import type { GatewaySettings } from '../config.ts';
import { openAccess } from '../open-access.ts';
import { serveClients } from '../start.ts';
import type { DecisionQuery, DecisionReport } from '../telemetry/recent-decisions.ts';
import { KeysOfMachine } from './keys-of-machine.ts';
import type { FromWorkerLocally } from './local-messages.ts';

/**
 * Told to the primary: where clients are served, once they are; how this process is, each time it asks; and what was counted
 * of its clients, again and again, so that it is not lost with the process.
 */
export type FromWorker =
  | { readonly gateway: string }
  | { readonly metrics: MetricsSnapshot }
  | { readonly traffic: TrafficReport }
  | { readonly decisions: readonly DecisionReport[]; readonly to: number }
  | FromWorkerLocally;

export interface TrafficReport {
  readonly counted: readonly Family[];
  /** Whether decisions are taken here while Redis is away. */
  readonly isLocal: boolean;
}

const REPORT_EVERY_MS = 500;

/** What the primary asks. An answer about decisions bears the number of its question: several can be under way. */
export type Question =
  | { readonly ask: 'metrics' }
  | { readonly ask: 'decisions'; readonly query: DecisionQuery; readonly number: number };

/** The number that the primary gave this worker; undefined in any other process. */
export const workerNumber = (): number | undefined => (cluster.isWorker ? Number(process.argv[2]) : undefined);

/** A worker: serves clients on the port that all workers share. Operators talk to the primary. */
export async function startWorker(settings: GatewaySettings, logger: Logger): Promise<Running> {
  // A terminal that is closed tells all its processes; it is the primary's to act on it.
  process.on('SIGHUP', () => {});
  const access = await openAccess(settings, logger, (known) => new KeysOfMachine(known));
  const metrics = createMetrics('gateway', workerNumber());
  const clients = await serveClients(settings, access, logger, metrics);
  process.on('message', async (message: Question | { ask?: undefined }) => {
    if (message?.ask === 'metrics') tell({ metrics: await metrics.snapshot() });
    if (message?.ask === 'decisions') tell({ decisions: access.recent.find(message.query), to: message.number });
  });
  const report = () => tell({ traffic: { counted: metrics.counted(), isLocal: access.nodesAway() > 0 } });
  const reporting = setInterval(report, REPORT_EVERY_MS).unref();
  outliveThePrimary();
  return {
    addresses: { gateway: clients.url },
    async stop(lameDuckMs, lingerMs) {
      await clients.stop({ lameDuckMs, lingerMs });
      clearInterval(reporting);
      report();
      await access.close();
    },
  };
}

/**
 * Without this mark, node:cluster ends a worker at once where its primary is gone. One that serves ends what it has begun;
 * before that, at once is right.
 */
function outliveThePrimary(): void {
  if (cluster.worker !== undefined) cluster.worker.exitedAfterDisconnect = true;
}

/** A primary that is gone is not told. */
function tell(message: FromWorker): void {
  if (process.connected) process.send?.(message, undefined, undefined, () => {});
}
