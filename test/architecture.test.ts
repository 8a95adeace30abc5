import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { expect, test } from 'vitest';
import { BREAKS } from './breaks/table.ts';
import { ROOT } from './support/process.ts';

/** Layout rules: which folders may import what. */

interface Source {
  readonly path: string;
  readonly text: string;
  /** The project's files by their path from the root, and packages by name. */
  readonly imports: readonly string[];
  /** Imports of values, not only of types. */
  readonly values: readonly string[];
}

const sources = ['shared', 'gateway', 'core', 'deploy', 'test'].flatMap((folder) =>
  readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((file) => !file.includes('node_modules/'))
    .filter((file) => /\.(ts|lua|js|css|html)$/.test(file) && !file.endsWith('.generated.d.ts'))
    .map((file) => read(join(folder, file))),
);
const inFolder = (folder: string) => sources.filter(({ path }) => path.startsWith(`${folder}/`));
const product = sources.filter(({ path }) => !path.startsWith('test/'));

function read(path: string): Source {
  const text = readFileSync(join(ROOT, path), 'utf8');
  const found = [...text.matchAll(/^(?:import|export) (type )?[^;]*?from '([^']+)';$/gms)].map(
    ([, type, name = '']) => ({
      type,
      name: name.startsWith('.') ? relative(ROOT, join(ROOT, dirname(path), name)) : name,
    }),
  );
  const values = found.filter(({ type }) => type === undefined);
  return { path, text, imports: found.map(({ name }) => name), values: values.map(({ name }) => name) };
}

/** The imports by files in `folder` that `forbidden` matches, as 'importer -> imported'. */
function importsOf(folder: string, forbidden: RegExp): string[] {
  return inFolder(folder).flatMap(({ path, imports }) =>
    imports.filter((name) => forbidden.test(name)).map((name) => `${path} -> ${name}`),
  );
}

test.for([
  ['shared', /^(gateway|core|deploy|test)\//, 'imports no other folder'],
  ['core', /^(gateway|deploy|test)\//, 'does not import the gateway'],
  ['gateway', /^(core|deploy|test)\//, 'does not import the core'],
  ['core/store', /^node:https?$|^shared\/http/, 'imports no HTTP'],
  [
    'gateway/limiter',
    /^node:(?!crypto|zlib)|^shared\/http|^ioredis$|^gateway\/(?!limiter|check-result)/,
    'imports no HTTP, files or stores',
  ],
  ['gateway/stores', /^node:https?$|^shared\/http|^gateway\/(?!limiter|stores|check-result)/, 'imports no HTTP'],
  [
    'gateway/upstream',
    /^ioredis$|^gateway\/(?!upstream|check-result)/,
    'imports no Redis and no other step of a request',
  ],
  ['gateway/pipeline', /^ioredis$|^gateway\/(stores\/(redis|sqlite)|operators|primary|start)/, 'imports no database'],
  ['gateway/reference', /^gateway\/(pipeline|upstream|stores|operators|start)/, 'imports no step of a request'],
  ['gateway/telemetry', /^gateway\/(pipeline|operators|start)/, 'imports no step of a request'],
  [
    'gateway/webhooks',
    /^ioredis$|^gateway\/(?!webhooks|telemetry\/key-watch|limiter|stores\/keys)/,
    'imports no step of a request and no database',
  ],
  ['gateway/operators', /^gateway\/(pipeline|upstream|start)/, 'imports no step of a request'],
] as const)('%s %3$s', ([folder, forbidden]) => {
  expect(importsOf(folder, forbidden)).toEqual([]);
});

test('benchmarks and the soak test import no test packages, because npm ci does not install those', () => {
  const { dependencies } = JSON.parse(readFileSync(join(ROOT, 'test/package.json'), 'utf8'));
  const ofTests = new RegExp(`^(${Object.keys(dependencies).join('|')})(/|$)`);
  const byPath = new Map(sources.map((source) => [source.path, source]));
  const started = sources.filter(({ path }) => /^test\/(bench|soak)\/.*(?<!\.test)\.ts$/.test(path));
  const reached = new Set(started.map(({ path }) => path));
  for (const path of reached) for (const name of byPath.get(path)?.values ?? []) reached.add(name);
  expect([...reached].filter((name) => ofTests.test(name))).toEqual([]);
});

test.for([
  ['ioredis', ['gateway/stores/redis/connection.ts', 'gateway/stores/redis/calls.ts']],
  ['http-proxy-3', ['gateway/upstream/tunnel.ts']],
  ['undici', ['gateway/operators/cli/admin-client.ts', 'shared/client/transport.ts']],
  ['pg', ['core/store/postgres']],
  ['@prometheus-io/client', ['shared/process/metrics.ts']],
  ['pino', ['shared/process/logger.ts']],
  ['commander', ['gateway/operators/cli/']],
  ['marked', ['gateway/operators/pages.ts']],
  ['preact', ['gateway/operators/console/']],
  ['htm', ['gateway/operators/console/parts.ts']],
  ['uplot', ['gateway/operators/console/chart.ts']],
  ['node:sqlite', ['core/store/sqlite.ts', 'gateway/stores/sqlite/']],
] as const)('%s is imported only where it belongs', ([name, places]) => {
  const users = product.filter(({ imports }) => imports.includes(name)).map(({ path }) => path);
  expect(users.filter((user) => !places.some((place) => user.startsWith(place)))).toEqual([]);
  expect(places.filter((place) => !users.some((user) => user.startsWith(place)))).toEqual([]);
});

test('only programs, the command line and npm start read the environment', () => {
  const readers = product.filter(({ text }) => text.includes('process.env')).map(({ path }) => path);
  expect(readers.sort()).toEqual([
    'core/program.ts',
    'deploy/local.ts',
    'gateway/operators/cli/program.ts',
    'gateway/program.ts',
    // These files contain `process.env` only in code samples.
    'gateway/reference/openapi.ts',
    'gateway/reference/page/page.js',
  ]);
});

test('no file except decide.lua has more than 400 lines', () => {
  const long = sources.filter(({ text }) => text.split('\n').length > 401).map(({ path }) => path);
  expect(long).toEqual(['gateway/limiter/decide.lua']);
});

test("no service imports node:http, which would load Node's HTTP client into each process", () => {
  expect(product.filter(({ values }) => values.includes('node:http')).map(({ path }) => path)).toEqual([]);
});

test('the root has only its five folders, its four files and dot-files', () => {
  const ignored = /^(\.|node_modules$|isolate-)/;
  const names = readdirSync(ROOT).filter((name) => !ignored.test(name));
  const files = ['README.md', 'package-lock.json', 'package.json', 'tsconfig.json'];
  expect(names.sort()).toEqual([...files, 'core', 'deploy', 'gateway', 'shared', 'test'].sort());
});

test('no imports are circular', () => {
  const importsIn = new Map(product.map(({ path, imports }) => [path, imports]));
  const seen = new Set<string>();
  function circleFrom(path: string, trail: readonly string[]): string | undefined {
    if (trail.includes(path)) return [...trail.slice(trail.indexOf(path)), path].join(' -> ');
    if (seen.has(path)) return undefined;
    const circles = (importsIn.get(path) ?? []).map((name) => circleFrom(name, [...trail, path]));
    seen.add(path);
    return circles.find((circle) => circle !== undefined);
  }
  expect(product.map(({ path }) => circleFrom(path, [])).filter((circle) => circle !== undefined)).toEqual([]);
});

test('the layout rules are checked against real imports', () => {
  expect(sources.length).toBeGreaterThan(80);
  expect(sources.find(({ path }) => path === 'core/core.ts')?.imports).toContain('core/store/sqlite.ts');
});

test('each deliberate break still matches the code once, and names an existing test', () => {
  const tests = sources.map(({ path }) => path).filter((path) => path.endsWith('.test.ts'));
  const textOf = (file: string) => readFileSync(join(ROOT, file), 'utf8');
  const outdated = BREAKS.filter(
    ({ file, code, test: named }) =>
      textOf(file).split(code).length !== 2 || !tests.some((path) => path.startsWith(`test/${named}`)),
  );
  expect(outdated).toEqual([]);
});
