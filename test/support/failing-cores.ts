import { DatabaseSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import { cleanUp } from './clean-up.ts';
import { post } from './http.ts';
import type { Load } from './paced-load.ts';
import { alertsOf, issue, keepAsking, type Patient, sharedAlert } from './patient.ts';
import { startRestartable } from './restartable.ts';
import { startStack, temporaryFolder } from './stack.ts';
import { BOUNDLESS } from './workers.ts';

/** Cores that fail, or whose databases fail. */

async function startCore() {
  const file = `${await temporaryFolder()}/store.db`;
  const core = await startRestartable('core/main.ts', { PORT: '0', DATABASE_URL: `sqlite:${file}` });
  return { ...core, file, url: core.addresses.core ?? '' };
}

/** A core that is suspended under load and then killed. */
export async function coreBehindGateway(): Promise<Patient> {
  const core = await startCore();
  const stack = await startStack({ CORE_URL: core.url, CORE_TIMEOUT_MS: '500' });
  const keys = await issue(stack, 1, BOUNDLESS);
  let flood: Load | undefined;
  return {
    gateways: [stack.adminUrl],
    cores: [core.url],
    faults: [
      {
        alerts: [...alertsOf(stack.adminUrl, 'GatewayShedding'), ...sharedAlert('GatewayErrorRatioHigh')],
        cause() {
          core.signal('SIGSTOP');
          flood = keepAsking(stack.gateway, keys, 80, 500);
        },
        heal: () => core.signal('SIGCONT'),
      },
      {
        alerts: [...alertsOf(core.url, 'CoreDown'), { alertname: 'CoreUnreachable', core: core.url }],
        async cause() {
          await flood?.stop();
          keepAsking(stack.gateway, keys, 1, 100);
          core.signal('SIGKILL');
        },
        heal: core.restart,
      },
    ],
  };
}

/** A core whose database is first locked by another connection, which later renames a table. */
export async function coreWithBadStore(): Promise<Patient> {
  const core = await startCore();
  const other = new DatabaseSync(core.file);
  let writing = true;
  const write = async () => {
    // The core does not respond while it waits for the lock. Between two writes, it can be scraped.
    for (; writing; await sleep(700)) await post(`${core.url}/v1/pets`, { name: 'Rex', categoryId: 1 });
  };
  const written = write();
  cleanUp(async () => {
    writing = false;
    await written;
    other.close();
  });
  return {
    cores: [core.url],
    faults: [
      {
        alerts: alertsOf(core.url, 'CoreStoreFailing'),
        cause: () => other.exec('BEGIN IMMEDIATE'),
        heal: () => other.exec('ROLLBACK'),
      },
      {
        alerts: alertsOf(core.url, 'CoreErrors'),
        cause: () => other.exec('ALTER TABLE pets RENAME TO pets_of_yesterday'),
        heal: () => other.exec('ALTER TABLE pets_of_yesterday RENAME TO pets'),
      },
    ],
  };
}
