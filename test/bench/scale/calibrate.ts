import type { Credential } from '../../../gateway/limiter/credential.ts';
import type { Limiter } from '../../../gateway/limiter/limiter.ts';
import { median } from '../../support/statistics.ts';
import type { RedisCosts } from './model.ts';

interface Shard {
  cpuMicroseconds(): number;
}

const ROUNDS = 7;
const ROUND_MS = 400;
const MANY = 32;

/**
 * What a call costs a shard, and what each decision in it: from calls of one decision and calls of many, in turn.
 * @param credentials taken in turn; with one alone it is a decision on a key that is in the call anyway
 */
export async function calibrate(
  limiter: Limiter,
  credentials: readonly Credential[],
  shard: Shard,
): Promise<RedisCosts> {
  let turn = 0;
  const decide = () => limiter.decide(credentials[turn++ % credentials.length] as Credential);
  const measure = (inFlight: number) => microsecondsPerDecision(decide, shard, inFlight);
  await measure(MANY);
  const [alone, together]: [number[], number[]] = [[], []];
  for (let round = 0; round < ROUNDS; round++) {
    alone.push(await measure(1));
    together.push(await measure(MANY));
  }
  // alone = call + decision, together = call / MANY + decision
  const call = (median(alone) - median(together)) / (1 - 1 / MANY);
  return { call, decision: median(alone) - call };
}

/** With so many in flight they share a call: what comes while one is under way goes out in the next. */
async function microsecondsPerDecision(
  decide: () => Promise<unknown>,
  shard: Shard,
  inFlight: number,
): Promise<number> {
  const before = shard.cpuMicroseconds();
  const end = performance.now() + ROUND_MS;
  let decisions = 0;
  const caller = async () => {
    for (; performance.now() < end; decisions++) await decide();
  };
  await Promise.all(Array.from({ length: inFlight }, caller));
  return (shard.cpuMicroseconds() - before) / decisions;
}
