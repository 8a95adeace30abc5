import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { folder, runProgram } from '../machine/processes.ts';
import { type Load, type LoadResult, readResult } from './load.ts';

const DRIVER = join(import.meta.dirname, 'open-loop.ts');

/** Sends `rate` requests a second, come what may. */
export async function runOpenLoop(load: Load, rate: number): Promise<LoadResult> {
  const file = join(folder, 'open-loop.json');
  writeFileSync(file, JSON.stringify({ ...load, rate }));
  return readResult(await runProgram(process.execPath, [DRIVER, file], {}));
}
