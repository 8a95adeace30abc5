import { parseArgs } from 'node:util';
import { Redis } from 'ioredis';
import { startRedisServer } from '../support/redis.ts';
import { BREAKS } from './breaks.ts';
import { INVARIANTS } from './invariants.ts';
import { describe, planOf } from './plan.ts';
import { run } from './run.ts';
import { firstSeedWith, QUICK_SEEDS, STEPS, simulateSeeds } from './seeds.ts';
import { shortest } from './shortest.ts';

const HELP = `npm run simulate -- [--seed <n>] [--seeds <n>] [--steps <n>] [--break <name>] [--table]

Runs gateways' limiters in virtual time against a real Redis, over a network with random faults, and checks every
invariant after each step. For a seed that violates one, it prints the shortest history, and the exit status is 1.

  --seed <n>      the first seed: default 1
  --seeds <n>     number of seeds: default 1
  --steps <n>     steps of each seed: default ${STEPS}
  --break <name>  runs with a deliberate break: ${Object.keys(BREAKS).join('; ')}
  --table         prints a table: the quick seeds, and the seeds that find each break
  --help          prints this

Invariants:
${Object.entries(INVARIANTS)
  .map(([name, what]) => `  ${name.padEnd(20)} ${what}`)
  .join('\n')}
`;

const { values } = parseArgs({
  options: {
    seed: { type: 'string', default: '1' },
    seeds: { type: 'string', default: '1' },
    steps: { type: 'string', default: String(STEPS) },
    break: { type: 'string' },
    table: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
const print = (text: string) => void process.stdout.write(`${text}\n`);
const numbers = [values.seed, values.seeds, values.steps].map(Number);
const broken = values.break === undefined ? undefined : BREAKS[values.break];
if (values.help) print(HELP);
else if (numbers.some((number) => !Number.isInteger(number) || number < 1) || (values.break && !broken)) {
  process.stderr.write(HELP);
  process.exitCode = 2;
} else {
  const server = await startRedisServer();
  const redis = new Redis(server.url);
  try {
    await (values.table ? printTable(redis) : simulate(redis));
  } finally {
    redis.disconnect();
    await server.stop();
  }
}

async function simulate(redis: Redis): Promise<void> {
  const [first = 1, count = 1, steps = STEPS] = numbers;
  const options = { redis, broken };
  for (let seed = first; seed < first + count; seed++) {
    const plan = planOf(seed, steps);
    const result = await run(plan, options);
    const { violation, decisions, faults, virtualMs, digest } = result;
    print(`seed ${seed}: ${decisions} decisions, ${faults} faults, ${virtualMs / 1_000} s, history ${digest}`);
    if (violation === undefined) continue;
    process.exitCode = 1;
    const found = await shortest(plan, result, (shorter) => run(shorter, options));
    print(`\nViolated: ${violation.invariant} (${INVARIANTS[violation.invariant]}).\n\nThe shortest history:`);
    for (const step of found.plan.steps) print(`${String(step.at + 1_000).padStart(7)} ms  ${describe(step)}`);
    print(
      `\nIts last lines:\n${withoutRepetitions(found.result.history).slice(-20).join('\n')}\n\nAt ${found.result.violation?.at} ms: ${found.result.violation?.message}\n`,
    );
  }
}

/** Merges lines that differ only in their times. */
function withoutRepetitions(lines: readonly string[]): string[] {
  const text = (line = '') => line.replaceAll(/\d+ ms|asked at \d+/g, '');
  return lines.filter((line, at) => at === 0 || text(line) !== text(lines[at - 1]));
}

async function printTable(redis: Redis): Promise<void> {
  const { seeds, decisions, local, faults, virtualMs, violations } = await simulateSeeds(
    { redis },
    numbers[1] === 1 ? QUICK_SEEDS : numbers[1],
  );
  const found = [];
  for (const [name, { finds }] of Object.entries(BREAKS))
    found.push({ name, finds, seed: await firstSeedWith(name, redis) });
  const breaks = `${found.filter(({ seed }) => seed !== undefined).length} of ${found.length}`;
  print('| seeds | steps each | virtual time | decisions | without Redis | faults | violations | breaks found |');
  print('|---|---|---|---|---|---|---|---|');
  const minutes = `${Math.round(virtualMs / 60_000)} min`;
  print(
    `| ${seeds} | ${STEPS} | ${minutes} | ${decisions} | ${local} | ${faults} | ${violations.length} | ${breaks} |\n`,
  );
  print('| break | found by | first seed |\n|---|---|---|');
  for (const { name, finds, seed } of found) print(`| ${name} | ${finds} | ${seed ?? 'none'} |`);
}
