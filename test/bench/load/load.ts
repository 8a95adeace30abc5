import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { folder, runProgram } from '../machine/processes.ts';
import { type Ask, inLines, NEW_PET } from './asks.ts';

/** A load on one contender, and its result. */

export interface Load {
  /** The contender's URL, without a path. */
  readonly url: string;
  readonly connections: number;
  readonly seconds: number;
  /** The requests, sent in turn. */
  readonly asks: readonly Ask[];
}

export interface LoadResult {
  readonly requests: number;
  readonly seconds: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** Responses other than 2xx and 3xx. */
  readonly refused: number;
  /** Requests without a response. */
  readonly failures: number;
}

/** Reads the line of JSON that a load generator prints when it exits. */
function readResult(out: string): LoadResult {
  const line = out.split('\n').findLast((text) => text.startsWith('{'));
  if (line === undefined) throw new Error(`The load generator reported nothing: ${out}`);
  return JSON.parse(line) as LoadResult;
}

const DRIVER = join(import.meta.dirname, 'open-loop.ts');

/** Sends `rate` requests per second, however slow the responses are. */
export async function runOpenLoop(load: Load, rate: number): Promise<LoadResult> {
  const file = join(folder, 'open-loop.json');
  writeFileSync(file, JSON.stringify({ ...load, rate }));
  return readResult(await runProgram(process.execPath, [DRIVER, file], {}));
}

const SCRIPT = join(import.meta.dirname, 'wrk.lua');

let runs = 0;

/** Runs wrk, a closed loop: every connection sends its next request after the response to the previous one. */
export async function runWrk({ url, connections, seconds, asks }: Load): Promise<LoadResult> {
  // Each run has its own file, because several may run at once.
  const file = join(folder, `asks-${++runs}.txt`);
  writeFileSync(file, inLines(asks));
  const args = ['--threads', '1', '--connections', connections, '--duration', `${seconds}s`, '--script', SCRIPT, url];
  return readResult(await runProgram('wrk', args.map(String), { BENCH_ASKS: file, BENCH_BODY: NEW_PET }));
}
