import { expect, vi } from 'vitest';
import { cleanUp } from './clean-up.ts';
import { startRedisServer } from './redis.ts';
import { connectedRedis, connectionTo, ownRedis } from './redis-database.ts';
import { temporaryFolder } from './stack.ts';

/** Starts a primary and its replica. @returns connections to the primary (`redis`) and the replica (`follower`) */
export async function startWithReplica() {
  const primary = await ownRedis({
    dir: await temporaryFolder(),
    'repl-diskless-sync-delay': '0',
    'repl-ping-replica-period': '1',
  });
  // A replica writes the initial copy from its primary to a file.
  const dir = await temporaryFolder();
  const replica = await startRedisServer({ dir, replicaof: `127.0.0.1 ${new URL(primary.url).port}` });
  cleanUp(async () => {
    replica.resume();
    await replica.stop();
  });
  const redis = await connectedRedis(primary.url);
  const follower = connectionTo(replica.url);
  const patient = { timeout: 30_000 };
  await vi.waitFor(async () => expect(await redis.info('replication')).toContain('state=online'), patient);
  // The replica confirms writes once it has loaded the initial copy.
  await redis.set('beginning', '1');
  await vi.waitFor(async () => expect(await redis.wait(1, 500)).toBe(1), patient);
  await redis.del('beginning');
  await redis.config('RESETSTAT');
  return { url: primary.url, replica, redis, follower };
}
