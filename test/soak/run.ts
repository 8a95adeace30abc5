import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { miscounted, serverErrors } from '../support/counted-decisions.ts';
import { send } from '../support/http.ts';
import { Scrape } from '../support/scrape.ts';
import { FAULTS } from './faults.ts';
import { METERED, startLoad } from './load.ts';
import type { Holding } from './process.ts';
import { SoakRecord } from './record.ts';
import { progressLine, summaryTable } from './report.ts';
import { CORE_TIMEOUT_MS, setStage } from './stage.ts';

const HELP = `npm run soak -- [--minutes <n>] [--every <seconds>]

Runs Redis, PostgreSQL, two cores and two gateways as real processes under mixed load, while one part after another
fails, and checks every answer against the promises to clients.

  --minutes <n>      duration: default 10
  --every <seconds>  time between faults: default 20, at least 10
  --help             prints this

Load: reads, writes, keys over their limit, a banned key, made-up keys, clients that disconnect, and internal services
that read from the cores directly.
Faults, in turn: ${FAULTS.map(({ name }) => name).join(', ')}.
Prints a table at the end, and exits with 1 if a promise was broken.
`;

/** The time within which everything recovers from a core or Redis fault. */
const SETTLE_MS = 4_000;
const PROGRESS_EVERY_MS = 5_000;
/** How much a process may have grown when the load is over. */
const MAX_MORE_HANDLES = 32;
const MAX_MORE_MEGABYTES = 250;

const { values } = parseArgs({
  options: { minutes: { type: 'string' }, every: { type: 'string' }, help: { type: 'boolean' } },
});
if (values.help) {
  process.stdout.write(HELP);
  process.exit(0);
}
const durationMs = number('minutes', values.minutes ?? '10', 0.1, 10_000) * 60_000;
const everyMs = number('every', values.every ?? '20', 10, 3_600) * 1_000;

function number(name: string, text: string, least: number, most: number): number {
  const value = /^\d{1,5}(\.\d+)?$/.test(text) ? Number(text) : Number.NaN;
  if (value >= least && value <= most) return value;
  process.stderr.write(`--${name} must be a number from ${least} to ${most}.\n`);
  process.exit(2);
}

const startedAt = performance.now();
function print(text: string): void {
  const seconds = Math.round((performance.now() - startedAt) / 1_000);
  process.stdout.write(`${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')} ${text}\n`);
}

const record = new SoakRecord();
const stage = await setStage(record);
// The admissions of clients over their limit are counted, so these clients must not be banned.
await stage.client.hset('gateway:plans', { 'free.ban_after': '1000000000', 'free.day': '1000000000' });
await sleep(1_500);
const load = await startLoad(stage, record);
print(`${stage.processes.map(({ name }) => name).join(', ')} are up; ${durationMs / 60_000} minutes`);
const holdings = (): Holding[] => stage.processes.map((one) => one.holding());
await sleep(SETTLE_MS);
const before = holdings();

let event = 'no fault yet';
const progress = setInterval(() => print(progressLine(record, holdings(), event)), PROGRESS_EVERY_MS);
const endAt = performance.now() + durationMs;
for (let at = 0; performance.now() + everyMs < endAt; at++) {
  await sleep(everyMs - SETTLE_MS);
  const fault = FAULTS[at % FAULTS.length] as (typeof FAULTS)[number];
  event = fault.name;
  const disturbance = record.disturb(fault.kind, fault.name);
  await fault.strike(stage, load);
  disturbance.to = performance.now();
  record.count('faults');
  await sleep(SETTLE_MS);
  event = `after: ${fault.name}`;
}
await sleep(Math.max(0, endAt - performance.now()));
clearInterval(progress);

await load.stop();
await sleep(CORE_TIMEOUT_MS + SETTLE_MS);
const after = holdings();
record.judgeAllowances(METERED, stage.gateways.length);
record.judgeFailures();
for (const [at, url] of stage.adminUrls.entries()) {
  const metrics = await scrape(url);
  // Checks that every request was counted, and that every counted decision was made.
  for (const untruth of miscounted(metrics)) record.broke(`the metrics of ${url}: ${untruth}`);
  checkFailures(stage.urls[at] as string, metrics, 'gateway', 0);
}
for (const [at, url] of stage.coreUrls.entries())
  checkFailures(url, await scrape(url), 'core', stage.cores[at]?.startedAt ?? 0);
await checkLedger();
checkHoldings();
process.stdout.write(`\n${summaryTable(record, stage.processes, before, after)}\n`);
await stage.stop();
process.exit(record.brokenCount > 0 ? 1 : 0);

async function scrape(url: string): Promise<Scrape> {
  return new Scrape((await send(`${url}/metrics`)).text);
}

/** Checks that a service has counted every failure that clients saw since its last start. */
function checkFailures(url: string, metrics: Scrape, service: 'gateway' | 'core', since: number): void {
  const counted = serverErrors(metrics, service);
  const seen = record.failuresOf(url, since);
  if (seen > counted) record.broke(`${url}: ${seen} failures were seen, and ${counted} counted`);
}

/** Checks that every acknowledged pet exists exactly once. */
async function checkLedger(): Promise<void> {
  const names: string[] = [];
  for (let path = '/v1/pets?limit=100'; path !== ''; ) {
    const { json, headers } = await send(stage.coreUrls[0] + path);
    for (const { name } of json as { name: string }[]) names.push(name);
    path = /^<([^>]+)>; rel="next"$/.exec(String(headers.link ?? ''))?.[1] ?? '';
  }
  const there = new Set(names);
  for (const name of load.acknowledged) if (!there.has(name)) record.broke(`an acknowledged pet is lost: ${name}`);
  if (there.size !== names.length) record.broke(`${names.length - there.size} pets exist twice`);
}

function checkHoldings(): void {
  for (const [at, { name }] of stage.processes.entries()) {
    const [was, is] = [before[at] as Holding, after[at] as Holding];
    if (is.fileHandles - was.fileHandles > MAX_MORE_HANDLES)
      record.broke(`${name} has ${is.fileHandles} file handles; before the load it had ${was.fileHandles}`);
    if (is.megabytes - was.megabytes > MAX_MORE_MEGABYTES)
      record.broke(`${name} uses ${is.megabytes.toFixed(0)} MB; before the load it used ${was.megabytes.toFixed(0)}`);
  }
}
