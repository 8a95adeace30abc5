import { execFileSync } from 'node:child_process';
import { accessSync, constants, globSync } from 'node:fs';
import { join } from 'node:path';

/**
 * Debian packages that the tests and benchmarks use, each with programs or files. If any of these exists, the package
 * is installed.
 */
const PACKAGES = {
  'redis-server': ['redis-server', 'valkey-server'],
  // Debian keeps a folder per version.
  postgresql: ['initdb', '/usr/lib/postgresql/*/bin/initdb'],
  // The headless shell comes first, because the pages of a browser window's own UI take more CPU time than the tested
  // ones.
  'chromium-headless-shell': ['chromium-headless-shell', 'chromium', 'chromium-browser', 'google-chrome'],
  haproxy: ['haproxy'],
  prometheus: ['promtool'],
  'prometheus-alertmanager': ['alertmanager', 'prometheus-alertmanager'],
  zsh: ['zsh'],
  wrk: ['wrk'],
  'util-linux': ['setpriv'],
  'linux-perf': ['perf'],
  nginx: ['nginx'],
  'libnginx-mod-http-lua': ['/usr/lib/nginx/modules/ngx_http_lua_module.so'],
  'lua-nginx-redis': ['/usr/share/lua/5.1/nginx/redis.lua'],
  'lua-nginx-string': ['/usr/share/lua/5.1/nginx/sha256.lua'],
  'docker.io': ['dockerd'],
  'docker-registry': ['docker-registry'],
  debootstrap: ['debootstrap'],
} as const;

export type Package = keyof typeof PACKAGES;

/** Debian installs programs for root in folders outside PATH. */
const FOLDERS = [...(process.env.PATH ?? '').split(':'), '/usr/local/sbin', '/usr/sbin', '/sbin'];

/** The path of a program, or undefined if this machine does not have it. */
export const pathOf = (name: string): string | undefined =>
  FOLDERS.map((folder) => join(folder, name)).find(isExecutable);

/**
 * The path of a file from a package, which is installed if it is missing.
 * @param instead what to do by hand if the package cannot be installed
 * @throws if it is missing and this is not Debian or not root
 */
export function need(name: Package, instead = `put ${PACKAGES[name][0]} on PATH`): string {
  const found = find(name);
  if (found !== undefined) return found;
  if (!canInstall()) throw new Error(`This needs ${name}: ${instead}.`);
  install([name]);
  const brought = find(name);
  if (brought === undefined) throw new Error(`The package ${name} does not contain ${PACKAGES[name][0]}.`);
  return brought;
}

/** Installs those of these packages that are missing, in one step. Does nothing where packages cannot be installed. */
export function installMissing(names: readonly Package[]): void {
  const missing = names.filter((name) => find(name) === undefined);
  if (missing.length > 0 && canInstall()) install(missing);
}

function find(name: Package): string | undefined {
  const paths = PACKAGES[name].flatMap((file) =>
    file.startsWith('/') ? globSync(file).sort().reverse() : pathOf(file),
  );
  return paths.find((path) => path !== undefined);
}

const canInstall = (): boolean => process.getuid?.() === 0 && pathOf('apt-get') !== undefined;

/** Installs packages as soon as no other installation runs. Prints a line, because this changes the machine. */
function install(names: readonly Package[]): void {
  process.stdout.write(`Installing ${names.join(', ')} from the Debian packages.\n`);
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive', RUNLEVEL: '1' };
  const run = (...args: string[]) =>
    execFileSync('apt-get', ['-qq', '-o', 'DPkg::Lock::Timeout=600', ...args], { env, stdio: 'ignore' });
  run('update');
  run('install', '-y', '--no-install-recommends', ...names);
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
