import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import type { Readable } from 'node:stream';
import { expect, test } from 'vitest';
import { ROOT, startProcess } from './support/process.ts';
import { temporaryFolder } from './support/stack.ts';

/** `npm ci` installs what the product needs. Tests and benchmarks install their own packages. */

/** Programs that are run rather than imported. */
const PROGRAMS = ['@biomejs/biome', '@redocly/cli', 'typescript'];
const MOST_PACKAGES = 250;
const MOST_MEGABYTES = 250;
/** Packages that require this project's Node. On an older Node, npm warns about them. */
const NEWER_NODE = ['animal-store-gateway', '@prometheus-io/client', 'commander', 'http-proxy-3', 'undici'];
/** The PATH of an ordinary shell. `npm test` puts this project's Node first. */
const PERSONS_PATH = (process.env.PATH ?? '')
  .split(':')
  .filter((folder) => !folder.endsWith('/node_modules/.bin'))
  .join(':');
const FOLDERS = ['.', 'test', 'test/examples', 'test/bench/peers'];

function readJson<Content>(...path: readonly string[]): Content {
  return JSON.parse(readFileSync(join(ROOT, ...path), 'utf8')) as Content;
}

function bytesIn(path: string): number {
  const files = readdirSync(path, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  return files.reduce((sum, file) => sum + statSync(join(file.parentPath, file.name)).size, 0);
}

test('npm ci installs few packages without needless warnings, and the benchmark then runs', async () => {
  const { packages } = readJson<{ packages: object }>('package-lock.json');
  expect(Object.keys(packages).length).toBeLessThanOrEqual(MOST_PACKAGES);
  const folder = await temporaryFolder();
  const isSource = (path: string) => !/\/(node_modules|\.git|\.data)$/.test(path);
  cpSync(ROOT, folder, { recursive: true, filter: isSource, verbatimSymlinks: true });
  const env = { PATH: PERSONS_PATH };
  const npm = (...args: string[]) => startProcess('npm', args, env, { cwd: folder }).ended;
  const { code, out, err } = await npm('ci', '--prefer-offline');
  expect([code, err.includes('ERR')]).toEqual([0, false]);
  expect(bytesIn(join(folder, 'node_modules')) / 1_000_000).toBeLessThanOrEqual(MOST_MEGABYTES);
  const warned = [...`${out}${err}`.matchAll(/package: '(.+)@[^@]+'/g)].map(([, name]) => name as string);
  const personsNode = execFileSync('node', ['--version'], { env, encoding: 'utf8' });
  expect(warned.filter((name) => !NEWER_NODE.includes(name))).toEqual([]);
  // On an old Node, this warning must appear, which shows that npm prints warnings in the expected form.
  if (/^v(?:1\d|2[0-3])\./.test(personsNode)) expect(warned).toContain('animal-store-gateway');
  const installed = join(folder, 'node_modules/.bin/node');
  expect(execFileSync(installed, ['--version'], { encoding: 'utf8' })).toMatch(/^v26\./);

  const round = ['--scenario', 'list-32', '--only', 'gateway', '--rounds', '1', '--seconds', '1'];
  const bench = await npm('run', '-s', 'bench', '--', ...round);
  expect(bench).toMatchObject({ code: 0, out: expect.stringMatching(/^gateway +[\d,]+ /m) });
}, 300_000);

test('of several concurrent installations, only one does the work, and a killed one does not block others', async () => {
  const folder = await temporaryFolder();
  // One small package is enough.
  const { packages } = readJson<{ packages: Record<string, { version: string }> }>('package-lock.json');
  const denque = packages['node_modules/denque'];
  const own = { dependencies: { denque: denque?.version } };
  const lock = { lockfileVersion: 3, packages: { '': own, 'node_modules/denque': denque } };
  writeFileSync(join(folder, 'package.json'), JSON.stringify(own));
  writeFileSync(join(folder, 'package-lock.json'), JSON.stringify(lock));
  const install = () => {
    const args = [join(ROOT, 'test/support/node-packages.ts'), relative(ROOT, folder)];
    return startProcess(process.execPath, args, process.env, { detached: true });
  };
  const { child, ended } = install();
  await once(child.stderr as Readable, 'data');
  // Kills the whole process group, as Ctrl-C would, but without a chance to clean up.
  process.kill(-(child.pid as number), 'SIGKILL');
  await ended;
  const both = await Promise.all([install().ended, install().ended]);
  expect(both.map(({ code }) => code)).toEqual([0, 0]);
  expect(both.map(({ err }) => err).filter((err) => err.includes('Installing'))).toHaveLength(1);
  expect(readdirSync(join(folder, 'node_modules'))).toContain('denque');
});

test.for(FOLDERS)('every package in the package.json of %s is imported there', (folder) => {
  const { dependencies, devDependencies } = readJson<Record<string, object>>(folder, 'package.json');
  const text = textIn(folder);
  const isUsed = (name: string) => new RegExp(`['"\`/]${name}['"\`/]`).test(text);
  const names = Object.keys({ ...dependencies, ...devDependencies });
  const unused = names.filter((name) => !name.startsWith('@types/') && !PROGRAMS.includes(name) && !isUsed(name));
  expect(unused).toEqual([]);
});

/** The text of all files that may use a folder's packages. Tests have packages of their own. */
function textIn(folder: string): string {
  const isElsewhere = folder === '.' ? /^test\/|(^|\/)(node_modules|\.git)\// : /(^|\/)node_modules\//;
  return readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((file) => !isElsewhere.test(file) && /\.(ts|js|json|html)$/.test(file))
    .filter((file) => !/package(-lock)?\.json$/.test(file))
    .map((file) => readFileSync(join(ROOT, folder, file), 'utf8'))
    .join('\n');
}
