import cluster from 'node:cluster';
import { setTimeout as sleep } from 'node:timers/promises';
import { forkWorker } from '../../gateway/workers/worker-process.ts';

/**
 * A primary that asks its worker for metrics many times and then reports how many answers are still in memory. Run it
 * with --expose-gc.
 */

const AT_ONCE = 20;
const ROUNDS = 5;

async function askedFor(worker: ReturnType<typeof forkWorker>): Promise<WeakRef<object>[]> {
  const answers = await Promise.all(Array.from({ length: AT_ONCE }, () => worker.metrics()));
  return answers.map((answer) => new WeakRef(answer as object));
}

async function askAgainAndAgain(): Promise<void> {
  const worker = forkWorker(1);
  await worker.serving;
  const told: WeakRef<object>[] = [];
  for (let round = 0; round < ROUNDS; round++) told.push(...(await askedFor(worker)));
  // The channel may hold the last message until the next one arrives.
  await worker.metrics();
  await sleep(10);
  globalThis.gc?.();
  const kept = told.filter((answer) => answer.deref() !== undefined).length;
  process.stdout.write(JSON.stringify({ told: told.length, kept }));
  worker.kill();
  await worker.ended;
}

if (cluster.isPrimary) await askAgainAndAgain();
else {
  process.on('message', () => process.send?.({ metrics: [{ name: 'one' }] }));
  process.send?.({ gateway: 'http://127.0.0.1' });
}
