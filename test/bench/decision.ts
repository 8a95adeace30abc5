import { type Credential, parseApiKey } from '../../gateway/limiter/credential.ts';
import { DEFAULT_PLANS } from '../../gateway/limiter/plans.ts';
import { connectRedis } from '../../gateway/stores/redis/connection.ts';
import { RedisLimiter } from '../../gateway/stores/redis/limiter.ts';
import { createLogger } from '../../shared/process/logger.ts';
import { targetOf } from '../support/redis-target.ts';
import { median } from '../support/statistics.ts';
import { keepInFlight } from './load/in-flight.ts';
import { installPrograms } from './machine/programs.ts';
import { describeMachine, usageOf } from './machine/usage.ts';
import { issueKeys, issueKeysOf20 } from './setup/keys.ts';
import { scriptCalls, startRedis } from './setup/stage.ts';

/**
 * What a decision alone costs, without HTTP: decisions a second, and µs of CPU a decision in this process and in Redis, with
 * so many in flight, each of them followed by the next one when it is answered. Of 1,000 keys in turn, of one key, whose
 * decisions in a call are taken together, and of 1,000 keys that have 20 secrets each; interleaved rounds, medians.
 *
 *     node test/bench/decision.ts
 */

const IN_FLIGHT = [1, 8, 32, 128, 512];
const ROUNDS = 9;
const ROUND_MS = 500;

interface Round {
  readonly perSecond: number;
  readonly clientCpu: number;
  readonly redisCpu: number;
  readonly decisionsPerCall: number;
}

installPrograms();
const { redis, redisUrl, client } = await startRedis();
const connection = await connectRedis(
  targetOf('single', redisUrl, { timeoutMs: 5_000 }),
  createLogger('bench', 'warn'),
);
const limiter = new RedisLimiter(connection, () => DEFAULT_PLANS);
const { many, hot } = await issueKeys(client);
const sets = new Map([
  ['1,000 keys', many],
  ['one key', [hot]],
  ['1,000 keys of 20 secrets', await issueKeysOf20(client)],
]);
let turn = 0;

async function round(inFlight: number, credentials: readonly Credential[]): Promise<Round> {
  const decide = async () => {
    const { outcome } = await limiter.decide(credentials[turn++ % credentials.length] as Credential);
    if (outcome !== 'admitted') throw new Error(`A key without limits was ${outcome}.`);
  };
  const callsBefore = await scriptCalls(client);
  const [startedAt, ownBefore, redisBefore] = [performance.now(), process.cpuUsage(), usageOf(redis.pid)];
  const decisions = await keepInFlight(inFlight, ROUND_MS, decide);
  const [seconds, own] = [(performance.now() - startedAt) / 1_000, process.cpuUsage(ownBefore)];
  const redisCpu = usageOf(redis.pid).cpuMicroseconds - redisBefore.cpuMicroseconds;
  return {
    perSecond: decisions / seconds,
    clientCpu: (own.user + own.system) / decisions,
    redisCpu: redisCpu / decisions,
    decisionsPerCall: decisions / ((await scriptCalls(client)) - callsBefore),
  };
}

const line = (cells: readonly string[]): string => `${cells.map((cell) => cell.padStart(12)).join('')}\n`;
process.stdout.write(`${describeMachine()}; µs of CPU a decision\n`);
for (const [name, keys] of sets) {
  const credentials = keys.map((key) => parseApiKey(key) as Credential);
  process.stdout.write(`\n${name}\n`);
  process.stdout.write(line(['in flight', 'decisions/s', 'client µs', 'Redis µs', 'both µs', 'a call']));
  for (const [inFlight, rounds] of await measure(credentials)) process.stdout.write(line(row(inFlight, rounds)));
}
process.exit(0);

async function measure(credentials: readonly Credential[]): Promise<Map<number, Round[]>> {
  const rounds = new Map<number, Round[]>(IN_FLIGHT.map((inFlight) => [inFlight, []]));
  for (const inFlight of IN_FLIGHT) await round(inFlight, credentials);
  for (let at = 0; at < ROUNDS; at++) {
    for (let step = 0; step < IN_FLIGHT.length; step++) {
      const inFlight = IN_FLIGHT[(at + step) % IN_FLIGHT.length] as number;
      rounds.get(inFlight)?.push(await round(inFlight, credentials));
    }
  }
  return rounds;
}

function row(inFlight: number, rounds: readonly Round[]): string[] {
  const figure = (of: (round: Round) => number) => median(rounds.map(of));
  const cpu = [figure(({ clientCpu }) => clientCpu), figure(({ redisCpu }) => redisCpu)];
  const both = figure(({ clientCpu, redisCpu }) => clientCpu + redisCpu);
  return [
    String(inFlight),
    Math.round(figure(({ perSecond }) => perSecond)).toLocaleString('en'),
    ...[...cpu, both, figure(({ decisionsPerCall }) => decisionsPerCall)].map((value) => value.toFixed(1)),
  ];
}
