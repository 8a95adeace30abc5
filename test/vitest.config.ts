import { defineConfig } from 'vitest/config';

const shared = {
  pool: 'forks' as const,
  globalSetup: ['test/support/redis.ts', 'test/support/postgres.ts'],
  testTimeout: 60_000,
  hookTimeout: 120_000,
  // What is waited for comes at once on a quiet machine; on a busy one it is given time.
  expect: { poll: { timeout: 10_000 } },
};

/** Two kinds of tests: those that may run beside each other, and those that measure or fill the machine and run alone. */
export default defineConfig({
  root: new URL('..', import.meta.url).pathname,
  test: {
    projects: [
      {
        test: {
          ...shared,
          name: 'together',
          include: ['test/**/*.test.ts'],
          exclude: ['test/**/*.alone.test.ts'],
          sequence: { groupOrder: 0 },
        },
      },
      {
        test: {
          ...shared,
          name: 'alone',
          include: ['test/**/*.alone.test.ts'],
          fileParallelism: false,
          sequence: { groupOrder: 1 },
        },
      },
    ],
    maxWorkers: 2,
    reporters: ['default', './test/support/closing-line.ts'],
    coverage: {
      // Coverage costs time, so CI alone measures it.
      enabled: process.env.THOROUGH === '1',
      provider: 'v8',
      include: ['gateway/**/*.ts', 'core/**/*.ts', 'shared/**/*.ts'],
      exclude: ['**/main.ts', '**/program.ts', 'gateway/admin/cli*.ts', 'gateway/reference/write-openapi.ts'],
      reporter: ['text'],
      reportsDirectory: '.coverage',
    },
  },
});
