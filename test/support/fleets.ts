import type { Decision } from '../../gateway/limiter/limiter.ts';
import { retryAfterSeconds } from '../../gateway/pipeline/client-http.ts';
import { limitHeaders } from './limit-headers.ts';

/** Simulates the clients of one key, with a clock in microseconds. Simulated minutes take milliseconds. */

const SECOND = 1_000_000;
const MINUTE = 60 * SECOND;

/** Decides one request, like a limiter, at a given time on the simulated clock. */
export type DecideAt = (now: number) => Decision | Promise<Decision>;

/** Clients that wait for at least Retry-After, each with one request at a time. */
export interface Fleet {
  readonly workers: number;
  readonly minutes: number;
  /** The seconds over which the workers start, evenly spaced. */
  readonly joinSeconds: number;
  /** The maximum pause after a 200, in seconds. The actual pause is at least half of it. */
  readonly pauseSeconds: number;
  /** The maximum delay of a worker after Retry-After has passed, as a fraction of Retry-After. */
  readonly jitter: number;
  /** The seconds by which a worker may send too early, because timers can fire early. */
  readonly hurrySeconds?: number;
  /** If set, workers wait until X-RateLimit-Reset, each by its own clock, which is off by up to this many seconds. */
  readonly clockErrorSeconds?: number;
  /** Workers per minute that forget their Retry-After and start again. */
  readonly restartsAMinute: number;
  /** Additional requests sent at once. Each is repeated after Retry-After until it is served. */
  readonly burst?: { readonly atSecond: number; readonly requests: number } | undefined;
  readonly seed: number;
}

interface Worker {
  generation: number;
  wasRefused: boolean;
  servedAt: number;
  served: number;
  readonly isOnce: boolean;
  readonly clockError: number;
}

/**
 * Runs a fleet to completion.
 * @returns the number of decisions by outcome; the number of requests that were refused even though Retry-After had
 *   passed (`again`); the requests `served` per worker; the longest time that any worker went without a 200; and all
 *   Retry-After values in order
 */
export async function runFleet(decideAt: DecideAt, begin: number, fleet: Fleet) {
  const random = generator(fleet.seed);
  /** In reverse order of time. Simultaneous events happen in the order in which they were added. */
  const events: { at: number; what: 'restart' | { worker: Worker; generation: number } }[] = [];
  const add = (at: number, what: (typeof events)[number]['what']) => {
    const place = events.findIndex((event) => event.at <= at);
    events.splice(place === -1 ? events.length : place, 0, { at, what });
  };
  const end = begin + fleet.minutes * MINUTE;
  const latency = () => Math.floor((0.5 + random()) * 20_000);
  const start = (at: number, isOnce: boolean): Worker => {
    const clockError = fleet.clockErrorSeconds === undefined ? 0 : (2 * random() - 1) * fleet.clockErrorSeconds;
    const worker = { generation: 0, wasRefused: false, servedAt: at, served: 0, isOnce, clockError };
    add(at, { worker, generation: 0 });
    return worker;
  };
  const workers = Array.from({ length: fleet.workers }, (_, index) =>
    start(begin + Math.floor((index * fleet.joinSeconds * SECOND) / fleet.workers + random() * 1_000), false),
  );
  const { burst, restartsAMinute } = fleet;
  for (let sent = 0; burst !== undefined && sent < burst.requests; sent++)
    start(begin + burst.atSecond * SECOND + Math.floor(random() * 300_000), true);
  for (let index = 1; index <= restartsAMinute * fleet.minutes; index++)
    add(begin + Math.floor(random() * fleet.minutes * MINUTE), 'restart');

  const retryAfters: number[] = [];
  let [admitted, refused, banned, again, longest] = [0, 0, 0, 0, 0];
  for (let next = events.pop(); next !== undefined && next.at <= end; next = events.pop()) {
    const { at, what } = next;
    if (what === 'restart') {
      const worker = workers[Math.floor(random() * workers.length)] as Worker;
      Object.assign(worker, { generation: worker.generation + 1, wasRefused: false });
      add(at + Math.floor(random() * SECOND), { worker, generation: worker.generation });
      continue;
    }
    const { worker, generation } = what;
    if (worker.generation !== generation) continue;
    const decision = await decideAt(at);
    if (decision.outcome === 'admitted') {
      admitted += 1;
      longest = Math.max(longest, worker.isOnce ? 0 : at - worker.servedAt);
      Object.assign(worker, { wasRefused: false, servedAt: at, served: worker.served + 1 });
      const pause = Math.floor(fleet.pauseSeconds * SECOND * (0.5 + random() / 2));
      if (!worker.isOnce) add(at + latency() + pause, what);
      continue;
    }
    if (decision.outcome === 'banned') banned += 1;
    else refused += 1;
    if (worker.wasRefused) again += 1;
    worker.wasRefused = true;
    const seconds = retryAfterSeconds(decision) as number;
    retryAfters.push(seconds);
    const asked = fleet.clockErrorSeconds === undefined ? seconds : resetOf(decision) - at / SECOND - worker.clockError;
    const wait = Math.max(0, asked * (1 + fleet.jitter * random()) - (fleet.hurrySeconds ?? 0) * random());
    add(at + latency() + Math.floor(wait * SECOND), what);
  }
  for (const { servedAt } of workers) longest = Math.max(longest, end - servedAt);
  const served = workers.map((worker) => worker.served);
  return { admitted, refused, banned, again, served, longestSeconds: longest / SECOND, retryAfters };
}

function resetOf(decision: Decision): number {
  const headers = limitHeaders(decision, false);
  return Number(headers[headers.indexOf('X-RateLimit-Reset') + 1]);
}

/**
 * The seconds from the first of these requests to the ban, or undefined without a ban. The requests are sent whatever
 * the answers are.
 */
export async function secondsToBan(decideAt: DecideAt, requests: Iterable<number>): Promise<number | undefined> {
  let first: number | undefined;
  for (const at of requests) {
    first ??= at;
    if ((await decideAt(at)).outcome === 'banned') return (at - first) / SECOND;
  }
  return undefined;
}

/** Pseudorandom numbers from 0 to 1 (xorshift). The seed determines them. */
export function generator(seed: number): () => number {
  let state = (seed * 7_919 + 13) >>> 0 || 1;
  const next = () => {
    state ^= state << 13;
    state >>>= 0;
    state ^= state >>> 17;
    state ^= state << 5;
    state >>>= 0;
    return state / 2 ** 32;
  };
  for (let step = 0; step < 50; step++) next();
  return next;
}
