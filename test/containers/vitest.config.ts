import { defineConfig } from 'vitest/config';

/** Tests in containers, on an engine of their own: `npm run test:containers`. */
export default defineConfig({
  root: new URL('../..', import.meta.url).pathname,
  test: {
    pool: 'forks',
    include: ['test/containers/*.test.ts'],
    globalSetup: ['test/containers/setup.ts'],
    // All files share one engine and one machine, so they run one at a time.
    fileParallelism: false,
    testTimeout: 300_000,
    hookTimeout: 300_000,
    teardownTimeout: 60_000,
    expect: { poll: { timeout: 30_000, interval: 100 } },
    reporters: ['default', './test/support/closing-line.ts'],
  },
});
