import { join } from 'node:path';
import { median, spreadOf } from '../support/statistics.ts';
import { type Ask, LIST } from './load/asks.ts';
import { runWrk } from './load/load.ts';
import { folder, startNode } from './machine/processes.ts';
import { usageOf } from './machine/usage.ts';
import type { Table } from './results/data.ts';
import { addPets } from './setup/stage.ts';

/** Compares the core with its floor (core-floor.ts), in µs of CPU per request for each client operation. */

const CONNECTIONS = 32;
const WARM_SECONDS = 2;
const SECONDS = 2;

/** The core requires no key. */
const key = 'none';
const OPERATIONS: Readonly<Record<string, Ask>> = {
  'a list of 20': { method: 'GET', path: LIST, key },
  'one pet': { method: 'GET', path: `${LIST}/3`, key },
  'a new pet': { method: 'POST', path: LIST, key },
};

interface Measured {
  readonly pid: number;
  readonly url: string;
}

async function start(name: string, script: string, env: NodeJS.ProcessEnv): Promise<Measured> {
  const { pid, urls } = await startNode(name, script, env);
  const { core: url = '' } = urls;
  await addPets(url);
  return { pid, url };
}

async function microsecondsOf({ pid, url }: Measured, ask: Ask): Promise<number> {
  const before = usageOf(pid).cpuMicroseconds;
  const { requests } = await runWrk({ url, connections: CONNECTIONS, asks: [ask], seconds: SECONDS });
  return (usageOf(pid).cpuMicroseconds - before) / requests;
}

/** Calls both without a gateway. Their databases are on disk, in the system's temporary folder. */
export async function coreBesideFloor(rounds: number): Promise<Table> {
  const core = await start('core-measured', 'core/main.ts', {
    PORT: '0',
    DATABASE_URL: `sqlite:${join(folder, 'core-measured.db')}`,
  });
  const floor = await start('core-floor', join(import.meta.dirname, 'core-floor.ts'), {
    DATABASE: join(folder, 'core-floor.db'),
  });
  const table = [['µs of CPU per request', 'core', 'floor', 'ratio']];
  for (const [name, ask] of Object.entries(OPERATIONS)) {
    for (const { url } of [core, floor])
      await runWrk({ url, connections: CONNECTIONS, asks: [ask], seconds: WARM_SECONDS });
    const pairs: (readonly [core: number, floor: number])[] = [];
    for (let round = 0; round < rounds; round++)
      pairs.push([await microsecondsOf(core, ask), await microsecondsOf(floor, ask)]);
    const [ours = '', theirs = ''] = [0, 1].map((at) => median(pairs.map((pair) => pair[at] as number)).toFixed(1));
    const ratio = spreadOf(pairs.map(([one, other]) => one / other));
    const [least, most] = [ratio.low.toFixed(2), ratio.high.toFixed(2)];
    table.push([name, ours, theirs, `${ratio.median.toFixed(2)}× (${least}–${most})`]);
  }
  return table;
}
