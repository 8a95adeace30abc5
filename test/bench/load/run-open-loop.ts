import { join } from 'node:path';
import { runProgram } from '../machine/processes.ts';
import { type Load, type LoadResult, readResult } from './load.ts';

const DRIVER = join(import.meta.dirname, 'open-loop.ts');

/** Sends `rate` requests a second, come what may. */
export async function runOpenLoop(load: Load, rate: number): Promise<LoadResult> {
  return readResult(await runProgram(process.execPath, [DRIVER], { OPEN_LOOP: JSON.stringify({ ...load, rate }) }));
}
