import { globSync } from 'node:fs';
import { BENCH_PACKAGES } from '../bench/machine/programs.ts';
import { installMissing } from './install.ts';
import { EXAMPLES, installPackages, PEERS } from './node-packages.ts';
import { ROOT } from './root.ts';

const DEBIAN_PACKAGES = [
  ...BENCH_PACKAGES,
  ...(['postgresql', 'chromium-headless-shell', 'haproxy', 'prometheus', 'prometheus-alertmanager', 'zsh'] as const),
];

/**
 * Installs the third-party packages that this run needs: those of all tests, or of the tests named on the command line.
 * If all tests run, Debian's packages are installed first, because an installation slows down every test that runs at
 * the same time. A test that is run by name installs its own. If a package cannot be installed, its tests report that.
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
