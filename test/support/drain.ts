import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from './process.ts';

/** How long a service takes to stop after SIGTERM, in milliseconds, according to the constants in its source. */

/** The time from SIGTERM until connections are refused. */
export const LAME_DUCK_MS = constant('shared/process/run.ts', 'LAME_DUCK_MS');
const GRACE_MS = constant('shared/http/server.ts', 'DEFAULT_GRACE_MS');
const WEBHOOKS_MS = constant('gateway/webhooks/webhooks.ts', 'STOP_GRACE_MS');
const LAST_LINES_MS = constant('shared/process/run.ts', 'LAST_LINES_MS');

/** The longest time from SIGTERM to the exit of the process. Connections linger for another LAME_DUCK_MS. */
export const LONGEST_STOP_MS = {
  core: 2 * LAME_DUCK_MS + GRACE_MS + LAST_LINES_MS,
  // Operators' connections are closed after those of clients.
  gateway: 2 * LAME_DUCK_MS + 2 * GRACE_MS + WEBHOOKS_MS + LAST_LINES_MS,
};

function constant(file: string, name: string): number {
  const [, digits] = new RegExp(`^const ${name} = ([\\d_]+);$`, 'm').exec(readFileSync(join(ROOT, file), 'utf8')) ?? [];
  if (digits === undefined) throw new Error(`${file} has no ${name}.`);
  return Number(digits.replaceAll('_', ''));
}
