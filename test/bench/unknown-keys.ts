import { join } from 'node:path';
import { Pool } from 'undici';
import { createApiKey } from '../../gateway/access/credential.ts';
import { folder, startNode } from './machine/processes.ts';
import { describeMachine, usageOf } from './machine/usage.ts';
import { startRedis } from './setup/stage.ts';

/**
 * A million requests, each with another key that nobody issued and whose check is right: what the gateway's memory and
 * Redis' number of keys do meanwhile. A line each hundred thousand; ends with 1 where either grew.
 *
 *     node test/bench/unknown-keys.ts
 */

const REQUESTS = 1_000_000;
const STEP = 100_000;
const CONNECTIONS = 64;
/** Resident memory may move by so much of what it was after the first steps, which warm everything up. */
const TOLERANCE = 0.05;
const WARM_UP_STEPS = 3;

const { redisUrl, client } = await startRedis();
const gateway = await startNode('gateway', 'gateway/main.ts', {
  PORT: '0',
  ADMIN_PORT: '0',
  REDIS_URL: redisUrl,
  DATA_DIR: join(folder, 'gateway'),
});
const pool = new Pool(gateway.urls.gateway ?? '', { connections: CONNECTIONS });
const keysBefore = await client.dbsize();

async function askUntil(end: number, asked: { count: number }): Promise<void> {
  while (asked.count < end) {
    asked.count += 1;
    const headers = { authorization: `Bearer ${createApiKey().apiKey}` };
    const { statusCode, body } = await pool.request({ path: '/v1/pets', method: 'GET', headers });
    await body.dump();
    if (statusCode !== 401 && statusCode !== 429) throw new Error(`A made-up key was answered ${statusCode}.`);
  }
}

process.stdout.write(`${describeMachine()}\n\n  requests   RSS in MB   keys in Redis\n`);
const asked = { count: 0 };
const resident: number[] = [];
while (asked.count < REQUESTS) {
  const end = asked.count + STEP;
  await Promise.all(Array.from({ length: CONNECTIONS }, () => askUntil(end, asked)));
  resident.push(usageOf(gateway.pid).residentMegabytes);
  const cells = [asked.count.toLocaleString('en'), resident.at(-1)?.toFixed(0) ?? '', String(await client.dbsize())];
  process.stdout.write(`${cells.map((cell) => cell.padStart(11)).join(' ')}\n`);
}
const settled = resident.slice(WARM_UP_STEPS);
const change = (Math.max(...settled) - (settled[0] as number)) / (settled[0] as number);
const grown = (await client.dbsize()) - keysBefore;
process.stdout.write(
  `\nmemory moved by ${(100 * change).toFixed(1)} % after the first ${WARM_UP_STEPS} steps; ${grown} keys more\n`,
);
process.exit(change > TOLERANCE || grown > 0 ? 1 : 0);
