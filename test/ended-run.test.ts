import { Redis } from 'ioredis';
import { expect, test } from 'vitest';
import { startProcess } from './support/process.ts';

/** A test run that starts a server and cannot stop it, because it is killed. */
const A_RUN = `
const { startRedisServer } = await import('./test/support/redis.ts');
process.stdout.write((await startRedisServer()).url);
setInterval(() => {}, 1_000);`;

test('a killed test run leaves no server behind', async () => {
  const run = startProcess(process.execPath, ['--input-type=module', '--eval', A_RUN], {});
  await expect.poll(run.out, { timeout: 30_000 }).toMatch(/^redis:/);
  const answers = async () => {
    const redis = new Redis(run.out(), { lazyConnect: true, retryStrategy: () => null });
    redis.on('error', () => {});
    const isUp = await redis.connect().then(
      () => true,
      () => false,
    );
    redis.disconnect();
    return isUp;
  };
  expect(await answers()).toBe(true);
  run.child.kill('SIGKILL');
  await expect.poll(answers).toBe(false);
});
