import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, rmdirSync } from 'node:fs';
import { join, relative } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Packages that only tests and benches use, each kind in a folder with a lock file of its own. They are installed by
 * what uses them, so that `npm ci` brings only what runs: `node test/support/node-packages.ts <folder>`.
 */

const ROOT = join(import.meta.dirname, '../..');

/** Longer than any installation takes. */
const LOCK_MS = 300_000;

/** Generators, linters and clients of other people. */
export const EXAMPLES = 'test/examples';
/** Gateways of other people. */
export const PEERS = 'test/bench/peers';

/**
 * Installs what a folder's lock file says, unless it is there. Processes that need it at the same time wait for one.
 * @throws when npm fails
 */
export async function installPackages(folder: string): Promise<void> {
  if (isInstalled(folder)) return;
  const release = await lock(folder);
  try {
    if (isInstalled(folder)) return;
    process.stderr.write(`Installing the packages of ${relative(process.cwd(), join(ROOT, folder))}.\n`);
    execFileSync('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error'], {
      cwd: join(ROOT, folder),
      stdio: ['ignore', 'ignore', 'inherit'],
    });
    cpSync(lockFileOf(folder), installedOf(folder));
  } finally {
    release();
  }
}

const lockFileOf = (folder: string): string => join(ROOT, folder, 'package-lock.json');
/** A copy of the lock file that was installed last. */
const installedOf = (folder: string): string => join(ROOT, folder, 'node_modules/.installed-lock.json');

function isInstalled(folder: string): boolean {
  try {
    return readFileSync(installedOf(folder)).equals(readFileSync(lockFileOf(folder)));
  } catch {
    return false;
  }
}

/** A folder can be made only once. One that an ended process has left does not count for ever. */
async function lock(folder: string): Promise<() => void> {
  const path = join(ROOT, folder, '.installing');
  const deadline = performance.now() + LOCK_MS;
  while (performance.now() < deadline) {
    try {
      mkdirSync(path);
      break;
    } catch {
      await sleep(200);
    }
  }
  return () => rmdirSync(path);
}

if (import.meta.main) for (const folder of process.argv.slice(2)) await installPackages(folder);
