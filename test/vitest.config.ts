import { defineConfig } from 'vitest/config';

const isThorough = process.env.THOROUGH === '1';
/** `npm test -- <name>`: what is named runs, whatever its kind. */
const isNamed = process.argv.slice(process.argv.indexOf('--config') + 2).some((argument) => !argument.startsWith('-'));

const shared = {
  pool: 'forks' as const,
  // What is waited for comes at once on a quiet machine. A virtual machine can stand still for a minute.
  testTimeout: 180_000,
  hookTimeout: 300_000,
  expect: { poll: { timeout: 30_000 } },
  // Every kind of client at the same time: they wait.
  maxConcurrency: 10,
};

/** At a desk most files wait, so there are more workers than processors. Many of CI's compute or measure time. */
const WORKERS = isThorough ? 2 : 4;

/** They measure, or fill the machine: one at a time. */
const ALONE = 'test/**/*.alone{,.thorough}.test.ts';
const LONG = 'test/**/*.thorough.test.ts';
/** What takes long at a desk runs in CI, and where it is named. */
const withoutLong = isThorough || isNamed ? [] : [LONG];

/** They have a configuration of their own: `npm run test:containers`. */
const CONTAINERS = 'test/containers/**';

/** A project for each way in which files may run beside each other. Those of one `groupOrder` run at the same time. */
export default defineConfig({
  root: new URL('..', import.meta.url).pathname,
  test: {
    globalSetup: [
      // What is named installs by itself what it needs.
      ...(isNamed ? [] : ['test/support/packages.ts']),
      'test/support/redis.ts',
      'test/support/postgres.ts',
    ],
    projects: [
      {
        test: {
          ...shared,
          name: 'long',
          include: [LONG],
          exclude: [ALONE, CONTAINERS, ...withoutLong],
          // Many of them measure time, so nothing of another file is in their process.
          isolate: isThorough,
          maxWorkers: WORKERS,
          sequence: { groupOrder: 0 },
        },
      },
      {
        test: {
          ...shared,
          name: 'together',
          include: ['test/**/*.test.ts'],
          exclude: [ALONE, CONTAINERS, LONG],
          // Files share a process and what it has loaded: a process that starts anew takes twice the processor time.
          isolate: false,
          maxWorkers: WORKERS,
          sequence: { groupOrder: 0 },
        },
      },
      {
        test: {
          ...shared,
          name: 'alone',
          include: [ALONE],
          exclude: withoutLong,
          fileParallelism: false,
          sequence: { groupOrder: 1 },
        },
      },
    ],
    reporters: ['default', './test/support/closing-line.ts'],
    coverage: {
      // Coverage costs time, so CI alone measures it.
      enabled: isThorough,
      provider: 'v8',
      include: ['gateway/**/*.ts', 'core/**/*.ts', 'shared/**/*.ts'],
      exclude: [
        '**/main.ts',
        '**/program.ts',
        'gateway/operators/cli/{main,program}.ts',
        'gateway/reference/write-openapi.ts',
      ],
      reporter: ['text'],
      reportsDirectory: '.coverage',
    },
  },
});
