import { globSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { sum } from '../support/statistics.ts';
import { type Ask, LIST, listsOf } from './load/asks.ts';
import { aDay } from './load/day.ts';
import { runWrk } from './load/load.ts';
import { ROOT } from './machine/processes.ts';
import { installPrograms } from './machine/programs.ts';
import { NAMED_FUNCTIONS, sampleParts } from './machine/stacks.ts';
import { describeMachine, usageOf, withChildren } from './machine/usage.ts';
import { startGateway } from './setup/gateway.ts';
import { issueKeys } from './setup/keys.ts';
import { PETS, setStage } from './setup/stage.ts';

/**
 * Shows where the gateway spends time under several loads, in µs of CPU per request. Each perf sample is attributed to
 * the innermost script on its stack, or to the kernel. The parts add up to the total.
 *
 *     node test/bench/profile.ts
 */

const WARM_SECONDS = 4;
const SECONDS = 6;

interface Row {
  readonly perRequest: number;
  readonly parts: ReadonlyMap<string, number>;
}

installPrograms(['redis-server', 'wrk', 'util-linux', 'linux-perf']);
const stage = await setStage();
const keys = await issueKeys(stage.client);
const settings = { REDIS_URL: stage.redisUrl, NODE_OPTIONS: NAMED_FUNCTIONS };
const { pid: primary, urls } = await startGateway('gateway', stage, settings);
/** The worker: the last of the gateway's processes. */
const pid = withChildren(primary).at(-1) as number;
// V8 writes the function names for perf, and also its own log.
process.once('exit', () => {
  for (const file of [`/tmp/perf-${pid}.map`, ...globSync(join(ROOT, `isolate-*-${pid}-v8.log`))])
    rmSync(file, { force: true });
});

const loads: Readonly<Record<string, { connections: number; asks: readonly Ask[] }>> = {
  'GET, 128 connections': { connections: 128, asks: listsOf([keys.hot]) },
  'a real day, 64': { connections: 64, asks: aDay(keys.many, keys.manyOver, PETS) },
  'POST, 32': { connections: 32, asks: [{ method: 'POST', path: LIST, key: keys.hot }] },
  'GET, 8': { connections: 8, asks: listsOf([keys.hot]) },
  'GET, 1': { connections: 1, asks: listsOf([keys.hot]) },
};

/** @returns µs per request: the total and its parts */
async function profile({ connections, asks }: { connections: number; asks: readonly Ask[] }): Promise<Row> {
  const load = { url: urls.gateway ?? '', connections, asks };
  await runWrk({ ...load, seconds: WARM_SECONDS });
  const before = usageOf(pid).cpuMicroseconds;
  const [{ requests }, samples] = await Promise.all([
    runWrk({ ...load, seconds: SECONDS }),
    sampleParts(pid, SECONDS - 1),
  ]);
  const perRequest = (usageOf(pid).cpuMicroseconds - before) / requests;
  const all = sum([...samples.values()]);
  return { perRequest, parts: new Map([...samples].map(([part, count]) => [part, (count / all) * perRequest])) };
}

const rows: Row[] = [];
for (const [name, load] of Object.entries(loads)) {
  process.stderr.write(`${name} ...\n`);
  rows.push(await profile(load));
}

const [first] = rows as [Row];
const parts = new Set(rows.flatMap((row) => [...row.parts.keys()]));
const inOrder = [...parts].sort((a, b) => (first.parts.get(b) ?? 0) - (first.parts.get(a) ?? 0));
const line = (name: string, value: (row: Row) => number) =>
  process.stdout.write(`| ${[name, ...rows.map((row) => value(row).toFixed(1))].join(' | ')} |\n`);
process.stdout.write(`${describeMachine()}\n\n| µs of CPU per request | ${Object.keys(loads).join(' | ')} |\n`);
process.stdout.write(`| --- |${' --- |'.repeat(rows.length)}\n`);
for (const part of inOrder) line(part, (row) => row.parts.get(part) ?? 0);
line('total', ({ perRequest }) => perRequest);
process.exit(0);
