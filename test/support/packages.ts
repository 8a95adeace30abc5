import { BENCH_PACKAGES } from '../bench/machine/programs.ts';
import { installMissing } from './install.ts';

/**
 * Installs what the tests use before the first of them, because an installation takes processors and disk from whatever
 * runs beside it. Where it is not possible, each test that misses something says what.
 */
export default function installPackages(): void {
  installMissing([
    ...BENCH_PACKAGES,
    'postgresql',
    'chromium',
    'haproxy',
    'prometheus',
    'prometheus-alertmanager',
    'zsh',
  ]);
}
