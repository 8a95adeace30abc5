import { execFile } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, extname, join } from 'node:path';
import { promisify } from 'node:util';
import type { ServiceRoute } from '../../../shared/http/service.ts';
import { safetyHeaders } from '../../static-file.ts';
import { addressOf, type PageName, TITLES } from '../console/page-names.ts';
import { textRoute } from './text-route.ts';

/** Serves the operators' console as routes of their listener: its pages, the files in console/, and its libraries. */

const FOLDER = join(import.meta.dirname, '../console');
const PAGE = 'index.html';

/** The addresses of pages. They all serve the same file, whose script shows the page. */
const PAGES = (Object.keys(TITLES) as PageName[]).filter((page) => page !== 'nowhere').map((page) => addressOf(page));

/** For other addresses below, the script shows that there is no such page. */
const NO_PAGES = ['/console/{page}', '/console/{page}/{more}'];

/** @param of the package, or one of its files */
const beside = (of: string, file: string): string => join(dirname(createRequire(import.meta.url).resolve(of)), file);

/** Files of packages. A module that imports `specifier` gets the file. */
const LIBRARIES: readonly { readonly name: string; readonly specifier?: string; readonly from: string }[] = [
  { name: 'preact.js', specifier: 'preact', from: beside('preact/package.json', 'dist/preact.mjs') },
  { name: 'preact-hooks.js', specifier: 'preact/hooks', from: beside('preact/package.json', 'hooks/dist/hooks.mjs') },
  { name: 'htm.js', specifier: 'htm', from: beside('htm', 'htm.mjs') },
  { name: 'uplot.js', specifier: 'uplot', from: beside('uplot/package.json', 'dist/uPlot.esm.js') },
  { name: 'uplot.css', from: beside('uplot/package.json', 'dist/uPlot.min.css') },
  ...[
    '../../limiter/plans.ts',
    '../../limiter/tags.ts',
    '../../stores/words.ts',
    '../common-words.ts',
    '../search-text.ts',
    '../whole-answers.ts',
  ].map((specifier) => ({
    ...{ name: basename(specifier), specifier },
    from: join(FOLDER, specifier),
  })),
];

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.ts': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/** Trusted types without any allowed policy make the browser itself refuse to use any text as HTML or script. */
const SAFETY = safetyHeaders("img-src 'self'", "require-trusted-types-for 'script'", "trusted-types 'none'");

/**
 * The pages and their files. They contain no data, so the listener serves them without a token. The page requests its
 * data with the token that the operator types in.
 * @throws the system's error when the folder cannot be read
 */
export function consoleRoutes(): ServiceRoute<unknown, unknown>[] {
  const names = readdirSync(FOLDER, { recursive: true, encoding: 'utf8' });
  const files = names.filter((name) => extname(name) in TYPES && name !== PAGE);
  return [
    ...PAGES.map((path) => routeOf(path, join(FOLDER, PAGE))),
    ...NO_PAGES.map((path) => routeOf(path, join(FOLDER, PAGE), 404)),
    ...files.map((name) => routeOf(`/console/${name}`, join(FOLDER, name))),
    ...LIBRARIES.map(({ name, from }) => routeOf(`/console/lib/${name}`, from)),
  ];
}

const routeOf = (path: string, file: string, status = 200): ServiceRoute<unknown, unknown> =>
  textRoute('console', path, {
    status,
    type: TYPES[extname(file)] ?? (TYPES['.js'] as string),
    headers: SAFETY,
    read: () => forBrowser(file),
  });

/** Returns a source without types, in which libraries are imported by path, because browsers know no package names. */
async function forBrowser(path: string): Promise<string> {
  const script = extname(path) === '.ts' ? await withoutTypes(path) : readFileSync(path, 'utf8');
  if (['.html', '.css', '.svg'].includes(extname(path))) return script;
  return LIBRARIES.reduce(
    (made, { name, specifier }) =>
      specifier === undefined ? made : made.replaceAll(importOf(specifier), `$1"/console/lib/${name}"`),
    script.replace(/^\/\/# sourceMappingURL=.*$/m, ''),
  );
}

const importOf = (specifier: string): RegExp =>
  new RegExp(`\\b(from\\s*)["']${specifier.replaceAll('.', '\\.')}["']`, 'g');

/** All scripts without their types, by path. */
let stripped: Promise<Readonly<Record<string, string>>> | undefined;

async function withoutTypes(path: string): Promise<string> {
  stripped ??= stripTypes().catch((fault) => {
    stripped = undefined;
    throw fault;
  });
  return (await stripped)[path] as string;
}

/**
 * The types are stripped in a separate process: Node loads its TypeScript compiler for that, which would hold 25 MB of
 * this process for good.
 */
async function stripTypes(): Promise<Record<string, string>> {
  const own = readdirSync(FOLDER, { recursive: true, encoding: 'utf8' }).map((name) => join(FOLDER, name));
  const paths = [...own, ...LIBRARIES.map(({ from }) => from)].filter((path) => extname(path) === '.ts');
  const options = { env: {}, maxBuffer: Number.POSITIVE_INFINITY };
  const { stdout } = await promisify(execFile)(process.execPath, ['--no-warnings', '-e', STRIP, ...paths], options);
  return JSON.parse(stdout);
}

const STRIP = `
  const { stripTypeScriptTypes } = require('node:module');
  const strip = (path) => [path, stripTypeScriptTypes(fs.readFileSync(path, 'utf8'))];
  console.log(JSON.stringify(Object.fromEntries(process.argv.slice(1).map(strip))));
`;
