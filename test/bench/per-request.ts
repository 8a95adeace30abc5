import { existsSync, readFileSync, rmSync } from 'node:fs';
import http from 'node:http';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { send } from '../support/http.ts';
import { sum } from '../support/statistics.ts';
import { LIST } from './load/asks.ts';
import type { Counted } from './machine/counting.ts';
import { folder, ROOT, type Service, startNode } from './machine/processes.ts';
import { withChildren } from './machine/usage.ts';
import type { Table } from './results/data.ts';
import { startGateway } from './setup/gateway.ts';
import { issueKeys } from './setup/keys.ts';
import type { Stage } from './setup/stage.ts';

/** The cost of one admitted GET in a process: new objects, bytes and promises, and the files and functions that run. */

const WARM = 300;
const COUNTED = 500;
/** Objects, promises and calls are counted in separate passes. */
const COUNTS = 3;
const SETTLE_MS = 300;
const COUNTING = join(import.meta.dirname, 'machine/counting.ts');

type PerRequest = Awaited<ReturnType<typeof count>>;

export async function countPerRequest(stage: Stage): Promise<PerRequest[]> {
  const env = (name: string) => ({
    REDIS_URL: stage.redisUrl,
    BENCH_COUNTED: join(folder, `${name}.json`),
    NODE_OPTIONS: `--import=${pathToFileURL(COUNTING)}`,
  });
  const { hot } = await issueKeys(stage.client);
  const gateway = await startGateway('gateway-counted', stage, env('gateway'));
  const floor = await startNode('floor-counted', join(import.meta.dirname, 'floor.ts'), {
    CORE_URL: stage.coreUrl,
    ...env('floor'),
  });
  return [
    await count('gateway', gateway, gateway.urls.gateway ?? '', hot),
    await count('floor', floor, floor.urls.floor ?? '', hot),
  ];
}

async function count(name: string, { pid }: Service, url: string, key: string) {
  // The worker is the last of the gateway's processes.
  const serving = withChildren(pid).at(-1) as number;
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  const ask = async (times: number) => {
    for (let at = 0; at < times; at++) {
      const { status } = await send(url + LIST, { key, agent });
      if (status !== 200) throw new Error(`${name} returned ${status}.`);
    }
  };
  const file = join(folder, `${name}.json`);
  rmSync(file, { force: true });
  await ask(WARM);
  for (let counted = 0; counted < COUNTS; counted++) {
    process.kill(serving, 'SIGUSR2');
    await sleep(SETTLE_MS);
    await ask(COUNTED);
  }
  process.kill(serving, 'SIGUSR2');
  for (let waited = 0; !existsSync(file) && waited < 200; waited++) await sleep(50);
  await sleep(SETTLE_MS);
  agent.destroy();
  const { objects, promises, scripts } = JSON.parse(readFileSync(file, 'utf8')) as Counted;
  // Only functions that run for every request are counted, not those of timers that happen to fire.
  const ran = scripts
    .filter(({ url: at }) => isOurs(at))
    .map(({ calls }) => calls.filter((times) => times >= COUNTED).length)
    .filter((functions) => functions > 0);
  const perRequest = (numbers: readonly number[]) => sum(numbers) / COUNTED;
  return {
    name,
    /** Objects created by the project's own code. */
    objects: perRequest(objects.filter(({ url: at }) => isOurs(at)).map(({ count: made }) => made)),
    allObjects: perRequest(objects.map(({ count: made }) => made)),
    kilobytes: perRequest(objects.map(({ bytes }) => bytes)) / 1_024,
    promises: promises / COUNTED,
    files: ran.length,
    functions: sum(ran),
  };
}

const isOurs = (url: string): boolean =>
  url.startsWith(pathToFileURL(ROOT).href) && !/\/node_modules\/|\/counting\.ts$/.test(url);

/** The costs of one admitted GET on one connection. */
export const perRequestTable = (all: readonly PerRequest[]): Table => [
  ['gateway', 'our objects', 'all objects', 'kB', 'promises', 'our files', 'our functions'],
  ...all.map(({ name, objects, allObjects, kilobytes, promises, files, functions }) => [
    name,
    ...[objects, allObjects, kilobytes, promises, files, functions].map((value) => value.toFixed(0)),
  ]),
];
