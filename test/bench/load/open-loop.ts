import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { type Dispatcher, Pool } from 'undici';
import { quantile } from '../../support/statistics.ts';
import type { Load, LoadResult } from './load.ts';

/**
 * Open loop, in a process of its own: requests leave at a fixed rate, whether the last ones were answered or not, and
 * latency counts from the moment at which a request was due. So an answer that is late is late for all that were due
 * behind it, as it is for people (no coordinated omission). Requests that fall due within a grain of time leave together,
 * and an answer is seen up to a grain late: the same for everybody. The latencies of the first second do not count: it opens
 * the connections and warms this driver up.
 *
 *     OPEN_LOOP='{"url":…,"connections":32,"seconds":2,"keys":[…],"rate":1000}' node test/bench/load/open-loop.ts
 */

/** Finer than a timer of Node's, which knows whole milliseconds. */
const GRAIN_MS = 0.2;
const LEAD_IN_SECONDS = 1;
const PATIENCE_MS = 2_000;

const { url, connections, seconds, keys, rate } = JSON.parse(process.env.OPEN_LOOP ?? '{}') as Load & { rate: number };
const { origin, pathname } = new URL(url);
const pool = new Pool(origin, { connections, pipelining: 1 });
const headers = ['Authorization', `Bearer ${keys[0]}`];

/** Nobody ever wakes who waits for it. */
const nobody = new Int32Array(new SharedArrayBuffer(4));

const total = Math.floor(rate * (LEAD_IN_SECONDS + seconds));
const latencies: number[] = [];
let answered = 0;
let refused = 0;
let failures = 0;

/** Notes when an answer is complete. */
class Noted implements Dispatcher.DispatchHandler {
  readonly #due: number;
  #status = 0;

  constructor(due: number) {
    this.#due = due;
  }

  onRequestStart(): void {}

  onResponseStart(_controller: Dispatcher.DispatchController, status: number): void {
    this.#status = status;
  }

  onResponseData(): void {}

  onResponseEnd(): void {
    answered += 1;
    if (this.#due >= countsFrom) latencies.push(performance.now() - this.#due);
    if (this.#status >= 400) refused += 1;
  }

  onResponseError(): void {
    failures += 1;
  }
}

const startedAt = performance.now();
const countsFrom = startedAt + LEAD_IN_SECONDS * 1_000;
for (let sent = 0; sent < total; ) {
  for (; sent < total; sent++) {
    const due = startedAt + (sent * 1_000) / rate;
    if (due > performance.now()) break;
    pool.dispatch({ path: pathname, method: 'GET', headers }, new Noted(due));
  }
  Atomics.wait(nobody, 0, 0, GRAIN_MS);
  await nextTurn();
}
const deadline = performance.now() + PATIENCE_MS;
while (answered + failures < total && performance.now() < deadline) await sleep(5);

const result: LoadResult = {
  requests: answered,
  seconds: (performance.now() - startedAt) / 1_000,
  p50Ms: quantile(latencies, 0.5),
  p99Ms: quantile(latencies, 0.99),
  refused,
  failures: total - answered,
};
process.stdout.write(`${JSON.stringify(result)}\n`);
await pool.destroy();
