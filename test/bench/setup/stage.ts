import { join } from 'node:path';
import { Redis } from 'ioredis';
import { DEFAULT_PLANS, storedPlans } from '../../../gateway/limiter/plans.ts';
import { post } from '../../support/http.ts';
import { freePort } from '../../support/port.ts';
import { sum } from '../../support/statistics.ts';
import { folder, type Service, startNode, startProgram } from '../machine/processes.ts';

/** The core and the Redis that all contenders share. */
export interface Stage {
  readonly core: Service;
  readonly coreUrl: string;
  readonly redis: Service;
  readonly redisUrl: string;
  /** The run's own connection to Redis. */
  readonly client: Redis;
}

/** One more than a page holds, so that every list is a full page with a link to the next one. */
export const PETS = 21;

export async function setStage(): Promise<Stage> {
  const { redis, redisUrl, client } = await startRedis();
  // One scenario needs a key that is always refused but never banned.
  await client.hset('gateway:plans', { ...storedPlans(DEFAULT_PLANS), 'free.ban_after': '1000000000' });
  const core = await startNode('core', 'core/main.ts', {
    PORT: '0',
    DATABASE_URL: `sqlite:${join(folder, 'store.db')}`,
  });
  const coreUrl = core.urls.core ?? '';
  await addPets(coreUrl);
  return { core, coreUrl, redis, redisUrl, client };
}

export async function addPets(coreUrl: string): Promise<void> {
  for (let number = 1; number <= PETS; number++) {
    const pet = { name: `Rex the ${number}th`, categoryId: number, status: 'available' };
    const { status } = await post(`${coreUrl}/v1/pets`, pet);
    if (status !== 201) throw new Error(`The core returned ${status} for the creation of a pet.`);
  }
}

/** Starts a Redis for this run, without persistence. */
export async function startRedis(): Promise<{ redis: Service; redisUrl: string; client: Redis }> {
  const port = String(await freePort());
  const redisUrl = `redis://127.0.0.1:${port}`;
  const client = new Redis(redisUrl, { lazyConnect: true, retryStrategy: () => null });
  client.on('error', () => {});
  const args = ['redis-server', '--port', port, '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no'];
  const redis = await startProgram('redis', args, redisUrl, () => client.connect());
  return { redis, redisUrl, client };
}

/** The number of scripts that Redis has run, each for one or many decisions. */
export async function scriptCalls(client: Redis): Promise<number> {
  const statistics = await client.info('commandstats');
  const calls = [...statistics.matchAll(/^cmdstat_(?:eval|evalsha|fcall):calls=(\d+)/gm)];
  return sum(calls.map(([, count]) => Number(count)));
}
