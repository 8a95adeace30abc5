import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { folder, runProgram } from '../machine/processes.ts';
import { type Load, type LoadResult, readResult } from './load.ts';

const SCRIPT = join(import.meta.dirname, 'wrk.lua');

/** Closed loop: every connection sends its next request when it has the answer to the last. */
export async function runWrk({ url, connections, seconds, keys, body }: Load): Promise<LoadResult> {
  const keysFile = join(folder, 'keys.txt');
  writeFileSync(keysFile, keys.join('\n'));
  const args = ['--threads', '1', '--connections', connections, '--duration', `${seconds}s`, '--script', SCRIPT, url];
  const request = body === undefined ? {} : { BENCH_METHOD: 'POST', BENCH_BODY: body };
  return readResult(await runProgram('wrk', args.map(String), { BENCH_KEYS: keysFile, ...request }));
}
