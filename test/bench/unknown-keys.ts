import { Pool } from 'undici';
import { createApiKey } from '../../gateway/limiter/credential.ts';
import { quantile } from '../support/statistics.ts';
import { installPrograms } from './machine/programs.ts';
import { describeMachine, usageOf } from './machine/usage.ts';
import { startGateway } from './setup/gateway.ts';
import { issueKeys } from './setup/keys.ts';
import { setStage } from './setup/stage.ts';

/**
 * Sends a million requests, each with a different made-up key that has a valid checksum. Measures what they leave
 * behind in the gateway's memory and in Redis, and the latency of a valid key after each hundred thousand. Exits with 1
 * if memory or the number of keys has grown.
 *
 *     node test/bench/unknown-keys.ts
 */

const REQUESTS = 1_000_000;
const STEP = 100_000;
const CONNECTIONS = 64;
/** The share by which resident memory may change after the first steps, which warm everything up. */
const TOLERANCE = 0.05;
const WARM_UP_STEPS = 3;
/** The number of requests with a valid key after each step, sent one after another. */
const GOOD_REQUESTS = 1_000;

installPrograms();
const { redisUrl, client, coreUrl } = await setStage();
const { hot } = await issueKeys(client);
const gateway = await startGateway('gateway', { coreUrl }, { REDIS_URL: redisUrl });
const pool = new Pool(gateway.urls.gateway ?? '', { connections: CONNECTIONS });
const keysBefore = await client.dbsize();

async function ask(key: string): Promise<number> {
  const { statusCode, body } = await pool.request({
    path: '/v1/pets',
    method: 'GET',
    headers: { authorization: `Bearer ${key}` },
  });
  await body.dump();
  return statusCode;
}

async function askUntil(end: number, asked: { count: number }): Promise<void> {
  while (asked.count < end) {
    asked.count += 1;
    const statusCode = await ask(createApiKey().apiKey);
    if (statusCode !== 401 && statusCode !== 429) throw new Error(`A made-up key got a ${statusCode}.`);
  }
}

/** The p99 latency of requests with a valid key, in ms. */
async function p99(): Promise<number> {
  const times: number[] = [];
  while (times.length < GOOD_REQUESTS) {
    const startedAt = performance.now();
    const statusCode = await ask(hot);
    times.push(performance.now() - startedAt);
    if (statusCode !== 200) throw new Error(`A valid key got a ${statusCode}.`);
  }
  return quantile(times, 0.99);
}

await p99();
const before = await p99();
process.stdout.write(`${describeMachine()}; p99 of a valid key before: ${before.toFixed(2)} ms\n\n`);
process.stdout.write('  requests      RSS MB   keys in Redis  p99 of a valid key, ms\n');
const asked = { count: 0 };
const resident: number[] = [];
while (asked.count < REQUESTS) {
  const end = asked.count + STEP;
  await Promise.all(Array.from({ length: CONNECTIONS }, () => askUntil(end, asked)));
  resident.push(usageOf(gateway.pid).residentMegabytes);
  const cells = [
    asked.count.toLocaleString('en'),
    resident.at(-1)?.toFixed(0) ?? '',
    String(await client.dbsize()),
    (await p99()).toFixed(2),
  ];
  process.stdout.write(`${cells.map((cell) => cell.padStart(11)).join(' ')}\n`);
}
const settled = resident.slice(WARM_UP_STEPS);
const change = (Math.max(...settled) - (settled[0] as number)) / (settled[0] as number);
const grown = (await client.dbsize()) - keysBefore;
process.stdout.write(
  `\nmemory changed by ${(100 * change).toFixed(1)} % after the first ${WARM_UP_STEPS} steps; ${grown} additional keys\n`,
);
process.exit(change > TOLERANCE || grown > 0 ? 1 : 0);
