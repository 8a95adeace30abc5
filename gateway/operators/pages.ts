import { execFile } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, extname, join } from 'node:path';
import { promisify } from 'node:util';
import type { Tokens } from 'marked';
import type { ServiceRoute } from '../../shared/http/service.ts';
import { etagOf, isCurrent, safetyHeaders } from '../static-file.ts';
import { addressOf, type PageName, TITLES } from './console/page-names.ts';

/**
 * Serves what browsers open on the operators' listener: the console with its files and libraries, and the operators'
 * documents as HTML.
 */

const FOLDER = join(import.meta.dirname, 'console');
const PAGE = 'index.html';

/** The addresses of the console's pages. They all serve the same file, whose script shows the page. */
const PAGES = (Object.keys(TITLES) as PageName[]).filter((page) => page !== 'nowhere').map((page) => addressOf(page));

/** All other addresses, for which the script shows “No such page”. */
const NO_PAGES = ['/console/{page}', '/console/{page}/{more}'];

/** The path of a file, relative to the file to which the package or path `of` resolves. */
const beside = (of: string, file: string): string => join(dirname(createRequire(import.meta.url).resolve(of)), file);

/** Files of packages. A module that imports `specifier` gets the file. */
const LIBRARIES: readonly { readonly name: string; readonly specifier?: string; readonly from: string }[] = [
  { name: 'preact.js', specifier: 'preact', from: beside('preact/package.json', 'dist/preact.mjs') },
  { name: 'preact-hooks.js', specifier: 'preact/hooks', from: beside('preact/package.json', 'hooks/dist/hooks.mjs') },
  { name: 'htm.js', specifier: 'htm', from: beside('htm', 'htm.mjs') },
  { name: 'uplot.js', specifier: 'uplot', from: beside('uplot/package.json', 'dist/uPlot.esm.js') },
  { name: 'uplot.css', from: beside('uplot/package.json', 'dist/uPlot.min.css') },
  ...['../../limiter/plans.ts', '../../limiter/tags.ts', '../../stores/words.ts', '../clients.ts'].map((specifier) => ({
    name: basename(specifier),
    specifier,
    from: join(FOLDER, specifier),
  })),
];

const HTML = 'text/html; charset=utf-8';
const CSS = 'text/css; charset=utf-8';
const TYPES: Readonly<Record<string, string>> = {
  '.html': HTML,
  '.css': CSS,
  '.js': 'text/javascript; charset=utf-8',
  '.ts': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/**
 * The pages and their files, the runbook and the documents to which it links. They contain no data, so the listener
 * serves them without a token: a page requests its data with the token that the operator types in, and a browser that
 * follows an alert's link has no token to send.
 * @throws the system's error when the folder cannot be read
 */
export function pageRoutes(): ServiceRoute<unknown, unknown>[] {
  const names = readdirSync(FOLDER, { recursive: true, encoding: 'utf8' });
  const files = names.filter((name) => extname(name) in TYPES && name !== PAGE);
  return [
    ...PAGES.map((path) => routeOf(path, join(FOLDER, PAGE))),
    ...NO_PAGES.map((path) => routeOf(path, join(FOLDER, PAGE), 404)),
    ...files.map((name) => routeOf(`/console/${name}`, join(FOLDER, name))),
    ...LIBRARIES.map(({ name, from }) => routeOf(`/console/lib/${name}`, from)),
    ...DOCUMENT_NAMES.map((name) => textRoute('runbook', DOCUMENTS[name].path, HTML, () => renderDocument(name))),
    textRoute('runbook', '/runbook/runbook.css', CSS, () => readFileSync(STYLE, 'utf8')),
  ];
}

const routeOf = (path: string, file: string, status = 200): ServiceRoute<unknown, unknown> =>
  textRoute('console', path, TYPES[extname(file)] ?? (TYPES['.js'] as string), () => forBrowser(file), status);

/** Returns a source without types. Imports of libraries become paths, because browsers cannot resolve package names. */
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
 * The types are stripped in a separate process: Node loads its TypeScript compiler for that, which would take up 25 MB
 * of this process permanently.
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

const DOCUMENTS_FOLDER = join(import.meta.dirname, '../../deploy');
const STYLE = join(import.meta.dirname, 'runbook.css');

/** The address of each document, and its name in the navigation. */
const DOCUMENTS = {
  'RUNBOOK.md': { path: '/runbook', name: 'Runbook' },
  'METRICS.md': { path: '/runbook/metrics', name: 'Metrics' },
  'README.md': { path: '/runbook/operating', name: 'Operating' },
  'SETTINGS.md': { path: '/runbook/settings', name: 'Settings' },
  'SCALING.md': { path: '/runbook/scaling', name: 'Scaling' },
  'SECURITY.md': { path: '/runbook/security', name: 'Security' },
} as const;

type DocumentName = keyof typeof DOCUMENTS;
const DOCUMENT_NAMES = Object.keys(DOCUMENTS) as DocumentName[];

/**
 * Renders a document with the same anchors as in a repository's web view.
 * @throws the system's error when it cannot be read
 */
async function renderDocument(document: DocumentName): Promise<string> {
  // The renderer is loaded only when a document is opened.
  const { Marked } = await import('marked');
  const { getHeadingList, gfmHeadingId } = await import('marked-gfm-heading-id');
  const marked = new Marked(gfmHeadingId(), { async: false, renderer: { link } });
  const body = marked.parse(readFileSync(join(DOCUMENTS_FOLDER, document), 'utf8')) as string;
  const sections = getHeadingList().filter(({ level }) => level === 2);
  const entries = sections.map(({ id, text }) => `<li><a href="#${id}">${text}</a></li>`).join('\n');
  const links = DOCUMENT_NAMES.map((one) => {
    const { path, name } = DOCUMENTS[one];
    return `\n<a href="${path}"${one === document ? ' aria-current="page"' : ''}>${name}</a>`;
  });
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${DOCUMENTS[document].name} · Animal store gateway</title>
<link rel="icon" href="/console/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/runbook/runbook.css">
</head>
<body>
<header><nav aria-label="Documents"><a href="/">Console</a>${links.join('')}</nav></header>
<nav class="contents" aria-label="On this page"><ul>
${entries}
</ul></nav>
<main>
${body}</main>
</body>
</html>
`;
}

/** Makes a link to another document lead to its page. Links to files that are not served here are shown as text. */
function link(
  this: { parser: { parseInline(tokens: Tokens.Generic[]): string } },
  { href, tokens }: Tokens.Link,
): string {
  const text = this.parser.parseInline(tokens);
  const [file = '', ...anchor] = href.split('#');
  if (file === '' || /^https?:/.test(href)) return `<a href="${href}">${text}</a>`;
  if (!(file in DOCUMENTS)) return text;
  return `<a href="${[DOCUMENTS[file as DocumentName].path, ...anchor].join('#')}">${text}</a>`;
}

/** With trusted types and no allowed policy, the browser itself refuses to use any text as HTML or script. */
const SAFETY = safetyHeaders("img-src 'self'", "require-trusted-types-for 'script'", "trusted-types 'none'");

/** Serves a file for browsers without a token. It is read at the first request and kept in memory. */
function textRoute(
  name: string,
  path: string,
  type: string,
  read: () => string | Promise<string>,
  status = 200,
): ServiceRoute<unknown, unknown> {
  let file: { readonly etag: string; readonly text: string } | undefined;
  return {
    name,
    method: 'GET',
    path,
    isOpen: true,
    async operation({ request }) {
      if (file === undefined) {
        const text = await read();
        file = { text, etag: etagOf(text) };
      }
      const headers = ['ETag', file.etag, 'Cache-Control', 'no-cache', ...SAFETY];
      if (status === 200 && isCurrent(request.headers['if-none-match'], file.etag)) return { status: 304, headers };
      return { status, json: file.text, headers: ['Content-Type', type, ...headers] };
    },
  };
}
