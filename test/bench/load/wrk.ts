import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { folder, runProgram } from '../machine/processes.ts';
import { inLines, NEW_PET } from './asks.ts';
import { type Load, type LoadResult, readResult } from './load.ts';

const SCRIPT = join(import.meta.dirname, 'wrk.lua');

let runs = 0;

/** Closed loop: every connection sends its next request when it has the answer to the last. */
export async function runWrk({ url, connections, seconds, asks }: Load): Promise<LoadResult> {
  // One of its own: several may run at once.
  const file = join(folder, `asks-${++runs}.txt`);
  writeFileSync(file, inLines(asks));
  const args = ['--threads', '1', '--connections', connections, '--duration', `${seconds}s`, '--script', SCRIPT, url];
  return readResult(await runProgram('wrk', args.map(String), { BENCH_ASKS: file, BENCH_BODY: NEW_PET }));
}
