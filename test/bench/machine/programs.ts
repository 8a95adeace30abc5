import { accessSync, constants, existsSync } from 'node:fs';
import { join } from 'node:path';
import { installPackage } from '../../support/install.ts';

/** What a run needs from the machine besides Node, each with the Debian package that brings it. */
const NEEDED = [
  { package: 'redis-server', file: 'redis-server' },
  { package: 'wrk', file: 'wrk' },
  { package: 'util-linux', file: 'setpriv' },
  { package: 'nginx', file: 'nginx' },
  { package: 'libnginx-mod-http-lua', file: '/usr/lib/nginx/modules/ngx_http_lua_module.so' },
  { package: 'lua-nginx-redis', file: '/usr/share/lua/5.1/nginx/redis.lua' },
  { package: 'lua-nginx-string', file: '/usr/share/lua/5.1/nginx/sha256.lua' },
] as const;

/** Where Debian keeps what only root usually runs. */
const FOLDERS = [...(process.env.PATH ?? '').split(':'), '/usr/local/sbin', '/usr/sbin', '/sbin'];

/**
 * Installs what is missing where the system is Debian's and we are root, saying so; says what is missing elsewhere.
 * @param packages all of them, unless a run needs fewer
 */
export function installPrograms(packages: readonly string[] = NEEDED.map((needed) => needed.package)): void {
  for (const { package: name, file } of NEEDED) {
    if (!packages.includes(name) || isThere(file)) continue;
    installPackage(name, `the benchmark needs ${file}, which it found nowhere`);
    if (!isThere(file)) throw new Error(`The package ${name} did not bring ${file}.`);
  }
}

/** The path of a program. @throws when it is not there */
export function programPath(name: string): string {
  const path = FOLDERS.map((folder) => join(folder, name)).find(isExecutable);
  if (path === undefined) throw new Error(`There is no ${name} on this machine.`);
  return path;
}

function isThere(file: string): boolean {
  if (file.startsWith('/')) return existsSync(file);
  return FOLDERS.some((folder) => isExecutable(join(folder, file)));
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
