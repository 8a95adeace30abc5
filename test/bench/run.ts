import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { installPackages, PEERS } from '../support/node-packages.ts';
import { BASELINE, type Contender, type ContenderName, DESCRIPTIONS, startContender } from './contenders.ts';
import { coreBesideFloor } from './core-beside-floor.ts';
import { ROOT } from './machine/processes.ts';
import { installPrograms, programPath } from './machine/programs.ts';
import { describeMachine } from './machine/usage.ts';
import { countPerRequest, perRequestTable } from './per-request.ts';
import { estimateSeconds, FLOOR_SCENARIOS, makePlan, type PlannedScenario, type Wishes } from './plan.ts';
import { markdownOf, speedTable, writeTable } from './results/data.ts';
import { pictureOf } from './results/picture.ts';
import { type Summary, summarize } from './results/summary.ts';
import { tableOf } from './results/table.ts';
import { type Measured, measure, medianOf, warmUp } from './rounds.ts';
import { type Stage, setStage } from './setup/stage.ts';
import { verify } from './setup/verify.ts';

/**
 * The side-by-side benchmark: this gateway and its peers on one machine, in one run, interleaved, in front of one core and
 * one Redis, with one worker each, and two where the scenario is about that.
 *
 *     npm run bench                        about six minutes
 *     npm run bench -- --quick             about two; --full about fifteen
 *     npm run bench -- --scenario list-32,banned-32 --only gateway,nginx-lua --rounds 9
 */

const OUTPUT = join(ROOT, '.bench');
const PICTURE = join(import.meta.dirname, 'speed.svg');

function readWishes(): Wishes {
  const { values } = parseArgs({
    options: {
      quick: { type: 'boolean' },
      full: { type: 'boolean' },
      only: { type: 'string' },
      scenario: { type: 'string' },
      rounds: { type: 'string' },
      seconds: { type: 'string' },
      base: { type: 'string' },
      write: { type: 'boolean' },
      floor: { type: 'boolean' },
    },
  });
  const floor = values.floor === true;
  return {
    isFloor: floor,
    mode: values.quick ? 'quick' : values.full ? 'full' : 'default',
    only: values.only?.split(',') ?? (floor ? ['gateway', 'floor'] : undefined),
    scenario: values.scenario?.split(',') ?? (floor ? FLOOR_SCENARIOS : undefined),
    rounds: values.rounds === undefined ? undefined : positive('rounds', values.rounds),
    seconds: values.seconds === undefined ? undefined : positive('seconds', values.seconds),
    base: values.base,
    isWritten: values.write === true,
  };
}

function positive(name: string, text: string): number {
  if (!/^[1-9]\d{0,3}$/.test(text)) throw new Error(`--${name} must be a whole number of at least 1.`);
  return Number(text);
}

/** One line that is written over where there is a terminal; a line a step where there is none. */
function tell(text: string): void {
  const elapsed = Math.round(performance.now() / 1_000);
  const clock = `${Math.floor(elapsed / 60)}:${String(elapsed % 60).padStart(2, '0')}`;
  process.stdout.write(process.stdout.isTTY ? `\r\x1b[K${clock} ${text}` : `${clock} ${text}\n`);
}

async function startAll(names: readonly ContenderName[], stage: Stage): Promise<Map<ContenderName, Contender>> {
  const contenders = new Map<ContenderName, Contender>();
  for (const name of names) {
    tell(`${name}: starting, checking, warming up`);
    const contender = await startContender(name, stage, wishes.base ?? ROOT);
    await verify(contender, stage);
    await warmUp(contender);
    contenders.set(name, contender);
  }
  return contenders;
}

function versions(): Record<string, string> {
  const first = (command: string, args: string[]) =>
    execFileSync(programPath(command), args, { stdio: ['ignore', 'pipe', 'pipe'] })
      .toString()
      .split('\n', 1)[0] ?? '';
  const debian = (name: string) => first('dpkg-query', ['-W', '-f', `\${Version}`, name]);
  const names = ['nginx', 'libnginx-mod-http-lua', 'lua-nginx-redis', 'redis-server', 'wrk'];
  return Object.fromEntries(names.map((name) => [name, tryOr('not of Debian', () => debian(name))]));
}

function tryOr<T>(otherwise: T, act: () => T): T {
  try {
    return act();
  } catch {
    return otherwise;
  }
}

/** What the first contender did in the scenario that a half load is the half of, if that has been measured. */
function capacityOf({ scenario, contenders }: PlannedScenario, measured: readonly Measured[]): number | undefined {
  const whole = measured.find(({ scenario: { name } }) => name === scenario.halfOf);
  const samples = whole?.samples.get(contenders[0] as ContenderName);
  return samples && medianOf(samples, ({ requestsPerSecond }) => requestsPerSecond);
}

function write(summaries: readonly Summary[], measured: readonly Measured[], command: string): void {
  const date = new Date().toISOString();
  const machine = describeMachine();
  const rounds = Object.fromEntries(
    measured.map(({ scenario, samples }) => [scenario.name, Object.fromEntries(samples)]),
  );
  const report = { date, machine, command, versions: versions(), contenders: DESCRIPTIONS, summaries, rounds };
  mkdirSync(OUTPUT, { recursive: true });
  writeFileSync(join(OUTPUT, 'last.json'), `${JSON.stringify(report, undefined, 1)}\n`);
  writeFileSync(join(OUTPUT, 'last.svg'), pictureOf(summaries, baseline, `${date.slice(0, 10)}, ${machine}`));
}

const wishes = readWishes();
const plan = makePlan(wishes);
installPrograms();
installPackages(PEERS);
tell(`about ${Math.ceil(estimateSeconds(plan) / 60)} minutes; ${describeMachine()}`);
const stage = await setStage();
const names = (Object.keys(DESCRIPTIONS) as ContenderName[]).filter((name) =>
  plan.parts.some(({ contenders }) => contenders.includes(name)),
);
const contenders = await startAll(names, stage);

const measured: Measured[] = [];
for (const part of plan.parts) {
  const capacity = capacityOf(part, measured);
  measured.push(await measure({ stage, part, contenders, seconds: plan.seconds, capacity, tell }));
}

const command = ['npm run bench', ...(process.argv.length > 2 ? ['--'] : []), ...process.argv.slice(2)].join(' ');
const baseline = wishes.isFloor ? 'floor' : wishes.base === undefined ? BASELINE : 'gateway-base';
const summaries = measured.map((one) => summarize(one, baseline));
const legend = names.map((name) => `  ${name.padEnd(18)}${DESCRIPTIONS[name]}`).join('\n');
process.stdout.write(`\n\n${command}, ${describeMachine()}\n\n${legend}\n
Medians over rounds of ${plan.seconds} s; CPU in µs a request, its ratio that of proxy and Redis together;
calls/s: scripts that Redis ran; ratios to ${baseline} in the same round, median (quartiles).\n\n`);
process.stdout.write(`${summaries.map(tableOf).join('\n')}\n`);
const beside = wishes.isFloor
  ? {
      'floor-request': perRequestTable(await countPerRequest(stage)),
      'floor-core': await coreBesideFloor(plan.parts[0]?.rounds ?? 1),
    }
  : {};
for (const table of Object.values(beside)) process.stdout.write(`${markdownOf(table)}\n`);
write(summaries, measured, command);
if (wishes.isWritten) {
  const about = `${command}, ${new Date().toISOString().slice(0, 10)}, ${describeMachine()}; medians of ${plan.parts[0]?.rounds} rounds`;
  const measuredBy = `${about}, ratios to ${baseline} within a round with their quartiles`;
  writeTable(wishes.isFloor ? 'floor' : 'speed', speedTable(summaries), measuredBy);
  for (const [name, table] of Object.entries(beside)) writeTable(name, table, measuredBy);
  if (!wishes.isFloor) copyFileSync(join(OUTPUT, 'last.svg'), PICTURE);
}
process.stdout.write('Written: .bench/last.json, .bench/last.svg\n');
process.exit(summaries.some(({ rows }) => rows.some(({ rounds }) => rounds === 0)) ? 1 : 0);
