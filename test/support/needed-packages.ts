import { globSync } from 'node:fs';
import { EXAMPLES, installPackages, PEERS } from './node-packages.ts';
import { ROOT } from './root.ts';

/** Installs the packages of other people that the tests of this run use: of all tests, or of those that are named. */
export default function installNeeded(): void {
  const names = process.argv.slice(process.argv.indexOf('--config') + 2).filter((name) => !name.startsWith('-'));
  const isNeeded = (files: string) =>
    names.length === 0
      ? process.env.THOROUGH === '1'
      : globSync(files, { cwd: ROOT }).some((file) => names.some((name) => file.includes(name)));
  if (isNeeded(`${EXAMPLES}/*.thorough.test.ts`)) installPackages(EXAMPLES);
  if (isNeeded('test/bench/*.test.ts') || isNeeded(`${EXAMPLES}/tools.*`)) installPackages(PEERS);
}
