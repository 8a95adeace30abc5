import { execFileSync, spawnSync } from 'node:child_process';

/** Whether a program can be run by this name. */
export const isOnPath = (name: string): boolean => spawnSync(name, ['--version']).status === 0;

/** Where a program is; undefined where it is not on PATH. */
export function pathOf(name: string): string | undefined {
  const { status, stdout } = spawnSync('sh', ['-c', 'command -v "$0"', name], { encoding: 'utf8' });
  return status === 0 ? stdout.trim() : undefined;
}

/** Installs a Debian package where that is possible; says so, since it changes the machine. */
export function installPackage(name: string, instead: string): void {
  if (process.getuid?.() !== 0 || !isOnPath('apt-get')) throw new Error(`The tests need ${name}: ${instead}.`);
  process.stdout.write(`Installing ${name} from the Debian packages.\n`);
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive', RUNLEVEL: '1' };
  execFileSync('apt-get', ['update', '-qq'], { env, stdio: 'ignore' });
  execFileSync('apt-get', ['install', '-y', '-qq', '--no-install-recommends', name], { env, stdio: 'ignore' });
}
