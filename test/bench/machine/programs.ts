import { installMissing, need, type Package, pathOf } from '../../support/install.ts';

/** What a run needs from the machine besides Node. */
export const BENCH_PACKAGES: readonly Package[] = [
  'redis-server',
  'wrk',
  'util-linux',
  'nginx',
  'libnginx-mod-http-lua',
  'lua-nginx-redis',
  'lua-nginx-string',
];

/**
 * Installs missing packages.
 * @param packages the packages that the run needs; by default, all of them
 * @throws if a package is missing, unless this is Debian and the user is root
 */
export function installPrograms(packages: readonly Package[] = BENCH_PACKAGES): void {
  installMissing(packages);
  for (const name of packages) need(name);
}

/** The path of a program. @throws if it is missing */
export function programPath(name: string): string {
  const path = pathOf(name);
  if (path === undefined) throw new Error(`${name} is not installed on this machine.`);
  return path;
}
