import { execFileSync } from 'node:child_process';
import { cpSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ROOT, startProcess } from './support/process.ts';
import { temporaryFolder } from './support/stack.ts';

/** `npm ci` brings what runs, and what only tests and benches use is installed by them. */

/** They are run, not imported. */
const PROGRAMS = ['@biomejs/biome', 'typescript'];
const MOST_PACKAGES = 250;
const MOST_MEGABYTES = 250;
/** They run on the Node that the project brings, whatever Node npm runs on. */
const NEWER_NODE = new Set(['animal-store-gateway', ...packagesOf('.').filter((name) => name !== '')]);

interface Lock {
  readonly packages: Readonly<Record<string, { readonly dev?: boolean }>>;
}

function packagesOf(folder: string): string[] {
  const { packages } = JSON.parse(readFileSync(join(ROOT, folder, 'package-lock.json'), 'utf8')) as Lock;
  return Object.keys(packages).map((path) => path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length));
}

function bytesIn(path: string): number {
  const files = readdirSync(path, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  return files.reduce((sum, file) => sum + statSync(join(file.parentPath, file.name)).size, 0);
}

test('npm ci brings at most 250 packages and 250 MB, and warns of none but what runs', async () => {
  expect(packagesOf('.').length).toBeLessThanOrEqual(MOST_PACKAGES);
  const folder = await temporaryFolder();
  for (const file of ['package.json', 'package-lock.json']) cpSync(join(ROOT, file), join(folder, file));
  const { code, out, err } = await startProcess('npm', ['ci', '--prefer-offline'], {}, { cwd: folder }).ended;
  expect([code, err.includes('ERR')]).toEqual([0, false]);
  expect(bytesIn(join(folder, 'node_modules')) / 1_000_000).toBeLessThanOrEqual(MOST_MEGABYTES);
  const warned = [...`${out}${err}`.matchAll(/package: '(.+)@[^@]+'/g)].map(([, name]) => name as string);
  expect(warned.filter((name) => !NEWER_NODE.has(name))).toEqual([]);
  const installed = join(folder, 'node_modules/.bin/node');
  expect(execFileSync(installed, ['--version'], { encoding: 'utf8' })).toMatch(/^v26\./);
});

test('each package of a folder is used there', () => {
  for (const folder of ['.', 'test', 'test/examples', 'test/bench/peers']) {
    const { dependencies = {} } = JSON.parse(readFileSync(join(ROOT, folder, 'package.json'), 'utf8')) as {
      dependencies?: Record<string, string>;
    };
    const users = readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
      .filter((file) => !/(^|\/)(node_modules|\.git)\//.test(file) && /\.(ts|js|json|html)$/.test(file))
      .filter((file) => !/package(-lock)?\.json$/.test(file))
      .map((file) => readFileSync(join(ROOT, folder, file), 'utf8'))
      .join('\n');
    const unused = Object.keys(dependencies).filter(
      (name) =>
        !name.startsWith('@types/') &&
        !PROGRAMS.includes(name) &&
        !users.includes(name.replace('@redocly/cli', 'redocly')),
    );
    expect([folder, unused]).toEqual([folder, []]);
  }
});
