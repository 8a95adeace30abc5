import { beforeAll, describe, expect, inject, test } from 'vitest';
import { dockerOn, environmentOf } from '../support/containers/docker.ts';
import { makePostgresOfNpm, makeService } from '../support/containers/stand-ins.ts';
import { startProcess } from '../support/process.ts';

/**
 * Runs the limiter and store tests on versions of Redis and PostgreSQL that are not installed on the machine.
 * test/support starts these versions with testcontainers, as it does whenever an engine runs. The images come from
 * Debian 13 and npm, neither of which has Redis 7.2. On Debian 12, the other tests use Redis 7.0 and PostgreSQL 15.
 */

const engine = inject('engineSocket');
const docker = dockerOn(engine);

/** Files that use only the run's Redis and PostgreSQL, and start no servers themselves. */
const FILES = ['limiter/rules', 'limiter/agreement', 'core/store.test', 'core/idempotency'];

/** Variables of this run that would affect the inner run. */
const OWN = /^(VITEST|THOROUGH$|REDIS_|POSTGRES_|NODE_ENV$|TEST$|PROD$|DEV$|MODE$)/;

interface Pair {
  readonly redis: string;
  readonly postgres: string;
  readonly make: () => Promise<void>;
}

const PAIRS: readonly Pair[] = [
  {
    redis: 'redis:8.0',
    postgres: 'postgres:16',
    make: () => makePostgresOfNpm(docker, 'postgres:16', '16.14.0-beta.17'),
  },
  {
    redis: 'redis:8.0',
    postgres: 'postgres:17',
    make: () => makeService(docker, 'postgres:17'),
  },
  {
    redis: 'redis:8.0',
    postgres: 'postgres:18',
    make: () => makePostgresOfNpm(docker, 'postgres:18', '18.4.0-beta.17'),
  },
];

describe.skipIf(engine === '')('limiter and store', () => {
  beforeAll(async () => {
    await makeService(docker, 'redis:8.0');
    for (const { make } of PAIRS) await make();
  }, 1_200_000);

  test.for(PAIRS)('the limiter and store tests pass on $redis and $postgres', async ({ redis, postgres }) => {
    const vitest = ['test/node_modules/vitest/vitest.mjs', 'run', '--config', 'test/vitest.config.ts', ...FILES];
    const environment = Object.entries(environmentOf(engine)).filter(([name]) => !OWN.test(name));
    const startedAt = performance.now();
    const { code, out } = await startProcess(process.execPath, vitest, {
      ...Object.fromEntries(environment),
      REDIS_IMAGE: redis,
      POSTGRES_IMAGE: postgres,
      // The reaper would only remove leftovers, which are removed with the engine anyway.
      TESTCONTAINERS_RYUK_DISABLED: 'true',
    }).ended;
    const [counted = out] = /^\d+ passed, .*$/m.exec(out) ?? [];
    process.stdout.write(
      `${redis} ${postgres}: ${counted}, ${((performance.now() - startedAt) / 1_000).toFixed(0)} s\n`,
    );
    const failed = out.match(/^failed: .*(?:\n {2}.*)*/gm) ?? [];
    expect([failed, counted, code]).toEqual([[], expect.stringMatching(/^[1-9]\d+ passed, 0 failed$/), 0]);
    for (const image of [redis, postgres]) expect(out).toContain(`The tests use a container of ${image}.`);
  });
});
