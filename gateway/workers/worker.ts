import cluster from 'node:cluster';
import type { Family } from '../../shared/process/counts.ts';
import type { Logger } from '../../shared/process/logger.ts';
import { createMetrics, type MetricsSnapshot } from '../../shared/process/metrics.ts';
import type { Running } from '../../shared/process/run.ts';
import type { GatewaySettings } from '../config.ts';
import { openBackend } from '../open-backend.ts';
import { serveClients } from '../start.ts';
import type { KeysOfMinute } from '../telemetry/key-watch.ts';
import type { DecisionQuery, DecisionReport } from '../telemetry/recent-decisions.ts';
import type { ProcessState } from '../telemetry/watched-traffic.ts';
import { KeysOfMachine } from './keys-of-machine.ts';
import type { FromWorkerLocally } from './local-messages.ts';

/**
 * Messages to the primary: the client address, once it serves; metrics and decisions, on request; and traffic counts at
 * intervals, so that they are not lost with the process.
 */
export type FromWorker =
  | { readonly gateway: string }
  | { readonly metrics: MetricsSnapshot }
  | { readonly traffic: TrafficReport }
  | { readonly decisions: readonly DecisionReport[]; readonly to: number }
  | FromWorkerLocally;

export interface TrafficReport extends ProcessState {
  readonly counted: readonly Family[];
  /** Whether decisions are local because Redis is unavailable. */
  readonly isLocal: boolean;
  readonly banned: KeysOfMinute;
}

const REPORT_EVERY_MS = 500;

/** The primary's questions. Those about decisions have a number, because several can be open at once. */
export type Question =
  | { readonly ask: 'metrics' }
  | { readonly ask: 'decisions'; readonly query: DecisionQuery; readonly number: number };

/** The worker's number, given by the primary; undefined in any other process. */
export const workerNumber = (): number | undefined => (cluster.isWorker ? Number(process.argv[2]) : undefined);

/** A worker: serves clients on the port shared by all workers. Operators talk to the primary. */
export async function startWorker(settings: GatewaySettings, logger: Logger): Promise<Running> {
  // A closing terminal signals all its processes; only the primary must react.
  process.on('SIGHUP', () => {});
  const backend = await openBackend(settings, logger, (known) => new KeysOfMachine(known));
  const metrics = createMetrics('gateway', workerNumber());
  const clients = await serveClients(settings, backend, logger, metrics);
  process.on('message', async (message: Question | { ask?: undefined }) => {
    if (message?.ask === 'metrics') tell({ metrics: await metrics.snapshot() });
    if (message?.ask === 'decisions') tell({ decisions: backend.recent.find(message.query), to: message.number });
  });
  const report = () =>
    tell({
      traffic: {
        counted: metrics.counted(),
        isLocal: backend.nodesAway() > 0,
        banned: backend.banned.latest(),
        cores: clients.cores(),
        redis: backend.redis(),
      },
    });
  const reporting = setInterval(report, REPORT_EVERY_MS).unref();
  outliveThePrimary();
  return {
    addresses: { gateway: clients.url },
    async stop(lameDuckMs, lingerMs) {
      await clients.stop({ lameDuckMs, lingerMs });
      clearInterval(reporting);
      report();
      await backend.close();
    },
  };
}

/**
 * By default, node:cluster ends a worker at once when its primary is gone. With this mark a serving worker finishes its
 * requests; one that does not serve yet still ends at once.
 */
function outliveThePrimary(): void {
  if (cluster.worker !== undefined) cluster.worker.exitedAfterDisconnect = true;
}

/** Sends nothing if the primary is gone. */
function tell(message: FromWorker): void {
  if (process.connected) process.send?.(message, undefined, undefined, () => {});
}
