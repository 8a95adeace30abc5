import { globSync } from 'node:fs';
import { BENCH_PACKAGES } from '../bench/machine/programs.ts';
import { installMissing } from './install.ts';
import { EXAMPLES, installPackages, PEERS } from './node-packages.ts';
import { ROOT } from './root.ts';

const DEBIAN_PACKAGES = [
  ...BENCH_PACKAGES,
  ...(['postgresql', 'chromium', 'haproxy', 'prometheus', 'prometheus-alertmanager', 'zsh'] as const),
];

/**
 * Installs the third-party packages that the tests of this run use: all tests, or the named ones. Debian's packages are
 * installed before the first test, because an installation slows down every test that runs at the same time. A test
 * that is run by name installs its own packages. If that is not possible, each test reports what it lacks.
 */
export default function installNeeded(): void {
  const names = process.argv.slice(process.argv.indexOf('--config') + 2).filter((name) => !name.startsWith('-'));
  const isNeeded = (files: string) =>
    names.length === 0
      ? process.env.THOROUGH === '1'
      : globSync(files, { cwd: ROOT }).some((file) => names.some((name) => file.includes(name)));
  if (isNeeded(`${EXAMPLES}/*.thorough.test.ts`)) installPackages(EXAMPLES);
  if (isNeeded('test/bench/*.test.ts') || isNeeded(`${EXAMPLES}/tools.*`)) installPackages(PEERS);
  if (names.length === 0) installMissing(DEBIAN_PACKAGES);
}
