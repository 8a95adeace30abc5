import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from './process.ts';

/** How a service ends after SIGTERM, by the numbers in its source, in milliseconds. */

/** From SIGTERM until connections are refused. */
export const LAME_DUCK_MS = constant('shared/run.ts', 'LAME_DUCK_MS');
const GRACE_MS = constant('shared/server.ts', 'DEFAULT_GRACE_MS');
const LAST_LINES_MS = constant('shared/run.ts', 'LAST_LINES_MS');

/** From SIGTERM until the process has ended, at the longest: connections linger for as long as the lame duck lasts. */
export const LONGEST_STOP_MS = {
  core: 2 * LAME_DUCK_MS + GRACE_MS + LAST_LINES_MS,
  // Operators' connections end after those of clients.
  gateway: 2 * LAME_DUCK_MS + 2 * GRACE_MS + LAST_LINES_MS,
};

function constant(file: string, name: string): number {
  const [, digits] = new RegExp(`^const ${name} = ([\\d_]+);$`, 'm').exec(readFileSync(join(ROOT, file), 'utf8')) ?? [];
  if (digits === undefined) throw new Error(`${file} has no ${name}.`);
  return Number(digits.replaceAll('_', ''));
}
