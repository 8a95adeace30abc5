import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { openSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { send } from '../../support/http.ts';
import { sum } from '../../support/statistics.ts';
import { atPriority, FIRST, LAST, setSessionPriority } from '../machine/priority.ts';
import { folder, spawnForRun } from '../machine/processes.ts';
import { usageOf, withChildren } from '../machine/usage.ts';
import type { Keys } from '../setup/keys.ts';
import { addPets } from '../setup/stage.ts';
import type { Drive, HealthyClient, HealthyResult } from './healthy.ts';
import type { Hostile } from './hostile.ts';
import type { Row } from './rows.ts';

/** Measures one row of the table, with a newly started gateway, cores, healthy client and neighbour. */

export interface Measured extends HealthyResult {
  readonly row: Row;
  readonly residentMegabytes: { readonly begin: number; readonly peak: number; readonly end: number };
  /** The number of measurements, of which this is the best. */
  readonly tries: number;
  /** The gateway's CPU time, as a fraction of one CPU. */
  readonly cpu: number;
  /** The number of decisions that the gateway made without Redis, although Redis is healthy in every row. */
  readonly local: number;
  /** The neighbour's responses by status, and the number of its closed connections. */
  readonly neighbour: Readonly<Record<string, number>>;
}

export interface Shared {
  readonly redisUrl: string;
  readonly keys: Keys;
}

const HERE = 'test/bench/neighbours';
const ADMIN_TOKEN = 'token-of-the-bench';
const HEALTHY_ADDRESS = '127.0.0.9';
const HOSTILE_ADDRESS = '127.0.0.2';
const WARM_UP: Drive = { rate: 1_000, seconds: 1.5 };
const MEASURED: Drive = { rate: 200, seconds: 6 };
/** The time in which the neighbour reaches its full rate. */
const LEAD_MS = 1_500;
const SAMPLE_EVERY_MS = 100;

interface Started {
  readonly pid: number;
  readonly child: ChildProcess;
  readonly urls: Readonly<Record<string, string>>;
}

export async function measureRow(row: Row, { redisUrl, keys }: Shared): Promise<Measured> {
  const started: Started[] = [];
  const start = async (name: string, script: string, env: NodeJS.ProcessEnv, output: number | 'pipe' | 'ignore') => {
    const process = await startOne(name, script, env, output);
    started.push(process);
    return process;
  };
  const log = join(folder, 'gateway.log');
  try {
    const cores: Started[] = [];
    while (cores.length < (row.cores ?? 1)) {
      // Their pets are in memory, because no row measures the disk.
      const settings = { PORT: '0', DATABASE_URL: 'sqlite::memory:', SLOTS: String(row.slots ?? 0) };
      const core = await start('core', `${HERE}/core.ts`, settings, 'ignore');
      await addPets(core.urls.core ?? '');
      cores.push(core);
    }
    const gateway = await start(
      'gateway',
      'gateway/main.ts',
      {
        PORT: '0',
        ADMIN_PORT: '0',
        ADMIN_TOKEN,
        CORE_URL: cores.map(({ urls }) => urls.core).join(','),
        // A single client gets half of it.
        CORE_CONCURRENCY: row.slots === undefined ? '' : String(2 * row.slots),
        REDIS_URL: redisUrl,
        DATA_DIR: join(folder, 'gateway'),
      },
      row.isLogUnread ? 'pipe' : openSync(log, 'w'),
    );
    const { gateway: url = '', admin: adminUrl = '' } = gateway.urls;
    const client: HealthyClient = { url, key: keys.hot, from: HEALTHY_ADDRESS, readsOnly: row.readsOnly ?? false };
    const healthy = await start('healthy', `${HERE}/healthy.ts`, { HEALTHY: JSON.stringify(client) }, 'ignore');
    await drive(healthy, { ...WARM_UP, rate: row.rate ?? WARM_UP.rate });

    const memory = watchMemory(gateway);
    const neighbour =
      row.neighbour && startNeighbour(row.neighbour, { url, admin: { url: adminUrl, token: ADMIN_TOKEN } }, keys);
    await sleep(LEAD_MS);
    const localBefore = await localDecisions(adminUrl);
    const cpuBefore = usageOf(gateway.pid).cpuMicroseconds;
    const startedAt = performance.now();
    let isOver = false;
    const pids = { gateway: withChildren(gateway.pid), cores: cores.map(({ pid }) => pid) };
    const disturbance = row.disturb?.(pids, () => isOver);
    const result = await drive(healthy, { ...MEASURED, rate: row.rate ?? MEASURED.rate });
    isOver = true;
    const cpu = (usageOf(gateway.pid).cpuMicroseconds - cpuBefore) / 1_000 / (performance.now() - startedAt);
    const residentMegabytes = memory.stop();
    await disturbance;
    const tally = neighbour?.stop() ?? {};
    const local = (await localDecisions(adminUrl)) - localBefore;
    return { row, tries: 1, ...result, residentMegabytes, cpu, local, neighbour: tally };
  } finally {
    for (const { child } of started) await end(child);
    rmSync(log, { force: true });
  }
}

async function startOne(
  name: string,
  script: string,
  env: NodeJS.ProcessEnv,
  output: number | 'pipe' | 'ignore',
): Promise<Started> {
  const args = atPriority(FIRST, [process.execPath, script]);
  const child = spawnForRun(name, args, env, ['ignore', output, 'inherit', 'ipc']);
  setSessionPriority(child.pid as number, FIRST);
  const ended = once(child, 'exit').then(() => Promise.reject(new Error(`${name} exited before it was ready.`)));
  const [urls] = (await Promise.race([once(child, 'message'), ended])) as [Record<string, string>];
  ended.catch(() => {});
  return { pid: child.pid as number, child, urls };
}

async function drive({ child }: Started, wanted: Drive): Promise<HealthyResult> {
  child.send(wanted);
  const [result] = (await once(child, 'message')) as [HealthyResult];
  return result;
}

/** Starts the neighbour, which gets only the CPU time that the other processes leave unused. */
function startNeighbour(name: Hostile['name'], of: Pick<Hostile, 'url' | 'admin'>, { many, over, banned }: Keys) {
  const hostile: Hostile = { name, ...of, from: HOSTILE_ADDRESS, keys: { boundless: many[0] as string, over, banned } };
  const args = atPriority(LAST, [process.execPath, `${HERE}/hostile.ts`]);
  const child = spawnForRun(name, args, { HOSTILE: JSON.stringify(hostile) }, ['ignore', 'ignore', 'inherit', 'ipc']);
  setSessionPriority(child.pid as number, LAST);
  let tally: Record<string, number> = {};
  child.on('message', (message) => {
    tally = message as Record<string, number>;
  });
  return {
    stop() {
      child.kill('SIGKILL');
      return tally;
    },
  };
}

function watchMemory({ pid, child }: Started) {
  const read = () => (child.exitCode === null ? usageOf(pid).residentMegabytes : 0);
  const samples = [read()];
  const sampling = setInterval(() => samples.push(read()), SAMPLE_EVERY_MS);
  return {
    stop() {
      clearInterval(sampling);
      samples.push(read());
      return { begin: samples[0] as number, peak: Math.max(...samples), end: samples.at(-1) as number };
    },
  };
}

async function localDecisions(adminUrl: string): Promise<number> {
  const { text } = await send(`${adminUrl}/metrics`);
  const samples = text.matchAll(/^gateway_decisions_total\{[^}]*mode="local"[^}]*\} (\d+)$/gm);
  return sum([...samples].map(([, value]) => Number(value)));
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill('SIGKILL');
  await once(child, 'exit');
}
