import { defineConfig } from 'vitest/config';
import { LongestFirst } from './support/longest-first.ts';

const isThorough = process.env.THOROUGH === '1';
/** Whether files are named, as in `npm test -- <name>`. A named file always runs. */
const isNamed = process.argv.slice(process.argv.indexOf('--config') + 2).some((argument) => !argument.startsWith('-'));

const shared = {
  pool: 'forks' as const,
  // Node runs the test files directly, like the services, without transforming them.
  experimental: { viteModuleRunner: false, nodeLoader: false },
  // Waits are short on an idle machine, but a virtual machine can freeze for a minute.
  testTimeout: 180_000,
  hookTimeout: 300_000,
  expect: { poll: { timeout: 30_000 } },
  // Concurrent tests of a file mostly wait, so all of them run at once.
  maxConcurrency: 10,
};

/**
 * More workers than CPUs, because most files mainly wait. In CI there are fewer, because a slow machine would be busy all
 * the time, and each file would take longer than its time limits allow.
 */
const WORKERS = { long: 4, others: isThorough ? 4 : 6 };

/** Files share a process and its loaded modules, because a new process per file takes twice the CPU time. */
const besideOthers = { ...shared, isolate: false };

/** These files measure time or load the whole machine, so they run one at a time. */
const ALONE = 'test/**/*.alone{,.thorough}.test.ts';
const LONG = 'test/**/*.thorough.test.ts';
/** These files are limited by CPU and run longer in CI. */
const SIMULATIONS = isThorough ? ['test/{limiter/model,limiter/refusal-table,simulation/simulation}.test.ts'] : [];
/** Long files run only in CI or when named. */
const withoutLong = isThorough || isNamed ? [] : [LONG];

/** `npm run test:containers` has its own configuration. */
const CONTAINERS = 'test/containers/**';
const MODULES = '**/node_modules/**';

/** One project for each degree of parallelism. Projects run one after the other, in the order of `groupOrder`. */
export default defineConfig({
  root: new URL('..', import.meta.url).pathname,
  test: {
    sequence: { sequencer: LongestFirst },
    globalSetup: ['test/support/needed-packages.ts', 'test/support/redis.ts', 'test/support/postgres.ts'],
    projects: [
      {
        test: {
          ...besideOthers,
          name: 'long',
          include: [LONG, ...SIMULATIONS],
          exclude: [MODULES, ALONE, CONTAINERS, ...withoutLong],
          maxWorkers: WORKERS.long,
          sequence: { groupOrder: 0 },
        },
      },
      {
        test: {
          ...besideOthers,
          name: 'together',
          include: ['test/**/*.test.ts'],
          exclude: [MODULES, ALONE, CONTAINERS, LONG, ...SIMULATIONS],
          maxWorkers: WORKERS.others,
          sequence: { groupOrder: 1 },
        },
      },
      {
        test: {
          ...shared,
          name: 'alone',
          include: [ALONE],
          exclude: [MODULES, ...withoutLong],
          fileParallelism: false,
          sequence: { groupOrder: 2 },
        },
      },
    ],
    reporters: ['default', './test/support/closing-line.ts'],
  },
});
