import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { installPackages, PEERS } from '../support/node-packages.ts';
import { BASELINE, type Contender, type ContenderName, DESCRIPTIONS, startContender } from './contenders.ts';
import { coreBesideFloor } from './core-beside-floor.ts';
import { ROOT } from './machine/processes.ts';
import { installPrograms } from './machine/programs.ts';
import { describeMachine } from './machine/usage.ts';
import { countPerRequest, perRequestTable } from './per-request.ts';
import { FLOOR_SCENARIOS, makePlan, type PlannedScenario, type Wishes } from './plan.ts';
import { markdownOf, speedTable, writeTable } from './results/data.ts';
import { pictureOf } from './results/picture.ts';
import { summarize } from './results/summary.ts';
import { tableOf } from './results/table.ts';
import { type Measured, measure, medianOf, warmUp } from './rounds.ts';
import { type Stage, setStage } from './setup/stage.ts';
import { verify } from './setup/verify.ts';

/**
 * The side-by-side benchmark: this gateway and its peers run interleaved on one machine, in front of one core and one
 * Redis. Each has one worker, or two in the scenario that compares two workers.
 */

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

/** Shows progress: on a terminal in one line that is overwritten, otherwise as one line per step. */
function print(text: string): void {
  const elapsed = Math.round(performance.now() / 1_000);
  const clock = `${Math.floor(elapsed / 60)}:${String(elapsed % 60).padStart(2, '0')}`;
  process.stdout.write(process.stdout.isTTY ? `\r\x1b[K${clock} ${text}` : `${clock} ${text}\n`);
}

async function startAll(names: readonly ContenderName[], stage: Stage): Promise<Map<ContenderName, Contender>> {
  const contenders = new Map<ContenderName, Contender>();
  for (const name of names) {
    print(`${name}: starting, checking, warming up`);
    const contender = await startContender(name, stage, wishes.base ?? ROOT);
    await verify(contender, stage);
    await warmUp(contender, Math.floor(1.5 * plan.seconds));
    contenders.set(name, contender);
  }
  return contenders;
}

/** The maximum rate of the first contender, if it has been measured. The rate for half load is derived from it. */
function capacityOf({ scenario, contenders }: PlannedScenario, measured: readonly Measured[]): number | undefined {
  const whole = measured.find(({ scenario: { name } }) => name === scenario.halfOf);
  const samples = whole?.samples.get(contenders[0] as ContenderName);
  return samples && medianOf(samples, ({ requestsPerSecond }) => requestsPerSecond);
}

const wishes = readWishes();
const plan = makePlan(wishes);
installPrograms();
installPackages(PEERS);
print(describeMachine());
const stage = await setStage();
const names = (Object.keys(DESCRIPTIONS) as ContenderName[]).filter((name) =>
  plan.parts.some(({ contenders }) => contenders.includes(name)),
);
const contenders = await startAll(names, stage);

const measured: Measured[] = [];
for (const part of plan.parts) {
  const capacity = capacityOf(part, measured);
  measured.push(await measure({ stage, part, contenders, seconds: plan.seconds, capacity, print }));
}

const command = ['npm run bench', ...(process.argv.length > 2 ? ['--'] : []), ...process.argv.slice(2)].join(' ');
const baseline = wishes.isFloor ? 'floor' : wishes.base === undefined ? BASELINE : 'gateway-base';
const summaries = measured.map((one) => summarize(one, baseline));
const legend = names.map((name) => `  ${name.padEnd(18)}${DESCRIPTIONS[name]}`).join('\n');
process.stdout.write(`\n\n${command}, ${describeMachine()}\n\n${legend}\n
Medians over rounds of ${plan.seconds} s; CPU in µs per request, its ratio for proxy and Redis together;
calls/s: scripts that Redis ran; ratios to ${baseline} in the same round, median (quartiles).\n\n`);
process.stdout.write(`${summaries.map(tableOf).join('\n')}\n`);
const measuredBy = `${command}, ${new Date().toISOString().slice(0, 10)}, ${describeMachine()}`;
const how = `medians of ${plan.parts[0]?.rounds} rounds, ratios to ${baseline} within a round with their quartiles`;
const speed = speedTable(summaries);
if (wishes.isFloor) {
  const ofOne = perRequestTable(await countPerRequest(stage));
  const ofCore = await coreBesideFloor(plan.parts[0]?.rounds ?? 1);
  process.stdout.write(`${markdownOf(ofOne)}\n${markdownOf(ofCore)}\n`);
  if (wishes.isWritten) {
    writeTable('floor', speed, `${measuredBy}; ${how}`);
    writeTable('floor-of-one-request', ofOne, measuredBy);
    writeTable('floor-of-core', ofCore, measuredBy);
  }
} else if (wishes.isWritten) {
  writeTable('speed', speed, `${measuredBy}; ${how}`);
  writeFileSync(PICTURE, pictureOf(summaries, baseline, measuredBy));
}
process.exit(summaries.some(({ rows }) => rows.some(({ rounds }) => rounds === 0)) ? 1 : 0);
