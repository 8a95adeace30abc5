import type { Credential } from '../../../gateway/access/credential.ts';
import type { Limiter } from '../../../gateway/access/limiter.ts';
import type { Shard } from './cluster.ts';
import type { RedisCosts } from './model.ts';

const MEASURED_MS = 1_500;
const MANY = 32;

/** What a call costs a shard, and what each decision in it: from calls of one decision, and calls of many. */
export async function calibrate(
  limiter: Limiter,
  credential: Credential,
  shard: Pick<Shard, 'cpuMicroseconds'>,
): Promise<RedisCosts> {
  await microsecondsPerDecision(limiter, credential, shard, MANY);
  const alone = await microsecondsPerDecision(limiter, credential, shard, 1);
  const together = await microsecondsPerDecision(limiter, credential, shard, MANY);
  // alone = call + decision, together = call / MANY + decision
  const call = (alone - together) / (1 - 1 / MANY);
  return { call, decision: alone - call };
}

/** With so many in flight they share a call: what comes while one is under way goes out in the next. */
async function microsecondsPerDecision(
  limiter: Limiter,
  credential: Credential,
  shard: Pick<Shard, 'cpuMicroseconds'>,
  inFlight: number,
) {
  const end = performance.now() + MEASURED_MS;
  const before = shard.cpuMicroseconds();
  let decisions = 0;
  const caller = async () => {
    for (; performance.now() < end; decisions++) await limiter.decide(credential);
  };
  await Promise.all(Array.from({ length: inFlight }, caller));
  return (shard.cpuMicroseconds() - before) / decisions;
}
