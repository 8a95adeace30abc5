import { execFileSync } from 'node:child_process';
import { cpSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { ROOT } from './root.ts';

/**
 * `node test/support/node-packages.ts <folder>` installs packages that only tests and benchmarks use. Each kind has a
 * folder with its own lock file. Tests and benchmarks install what they use, so `npm ci` installs only what the product
 * needs.
 */

/** How long to wait for the lock. No installation takes this long. */
const LOCK_MS = 300_000;

/** For checks, tests and their helpers. */
export const TOOLS = 'test';
/** Third-party generators, linters and clients. */
export const EXAMPLES = 'test/examples';
/** Third-party gateways. */
export const PEERS = 'test/bench/peers';

/**
 * Installs the packages of a folder's lock file, unless they are already installed. If several processes need them, one
 * of them installs, and the others wait.
 * @throws if npm fails
 */
export function installPackages(folder: string): void {
  if (isInstalled(folder)) return;
  using lock = new DatabaseSync(join(ROOT, folder, '.installing'), { timeout: LOCK_MS });
  // The system releases the lock of a database when the process exits, however it exits.
  lock.exec('BEGIN EXCLUSIVE');
  if (isInstalled(folder)) return;
  process.stderr.write(`Installing the packages of ${relative(process.cwd(), join(ROOT, folder))}.\n`);
  execFileSync('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error'], {
    cwd: join(ROOT, folder),
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  cpSync(lockFileOf(folder), installedOf(folder));
}

const lockFileOf = (folder: string): string => join(ROOT, folder, 'package-lock.json');
/** The path of a copy of the lock file that was last installed. */
const installedOf = (folder: string): string => join(ROOT, folder, 'node_modules/.installed-lock.json');

function isInstalled(folder: string): boolean {
  try {
    return readFileSync(installedOf(folder)).equals(readFileSync(lockFileOf(folder)));
  } catch {
    return false;
  }
}

if (import.meta.main) for (const folder of process.argv.slice(2)) installPackages(folder);
