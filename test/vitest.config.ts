import { defineConfig } from 'vitest/config';
import { LongestFirst } from './support/longest-first.ts';

const isThorough = process.env.THOROUGH === '1';
/** `npm test -- <name>`: what is named runs, whatever its kind. */
const isNamed = process.argv.slice(process.argv.indexOf('--config') + 2).some((argument) => !argument.startsWith('-'));

const shared = {
  pool: 'forks' as const,
  // Node runs the files as it runs the services, without a transformation between.
  experimental: { viteModuleRunner: false, nodeLoader: false },
  // What is waited for comes at once on a quiet machine. A virtual machine can stand still for a minute.
  testTimeout: 180_000,
  hookTimeout: 300_000,
  expect: { poll: { timeout: 30_000 } },
  // Every kind of client at the same time: they wait.
  maxConcurrency: 10,
};

/** Most files wait for processes and times, the long ones for more than half of their time. */
const WORKERS = { long: 3, others: 4 };

/** Files share a process and what it has loaded: a process that starts anew takes twice the processor time. */
const besideOthers = { ...shared, isolate: false };

/** They measure, or fill the machine: one at a time. */
const ALONE = 'test/**/*.alone{,.thorough}.test.ts';
const LONG = 'test/**/*.thorough.test.ts';
/** They compute. CI lets them do it for longer. */
const SIMULATIONS = isThorough ? ['test/limiter/{model,refusal-table}.test.ts'] : [];
/** What takes long at a desk runs in CI, and where it is named. */
const withoutLong = isThorough || isNamed ? [] : [LONG];

/** They have a configuration of their own: `npm run test:containers`. */
const CONTAINERS = 'test/containers/**';
const MODULES = '**/node_modules/**';

/** A project for each way in which files may run beside each other: one project after the other, by `groupOrder`. */
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
