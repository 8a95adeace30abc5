import { execFile } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { basename, dirname, extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { Tokens } from 'marked';
import type { ServiceRoute } from '../../shared/http/service.ts';
import { etagOf, isCurrent, safetyHeaders } from '../static-file.ts';
import { addressOf, type PageName, TITLES } from './console/page-names.ts';

/**
 * Serves the pages of the admin listener: the console with its files and libraries, and the operators' documents as
 * HTML.
 */

const FOLDER = join(import.meta.dirname, 'console');

const installed = (specifier: string): string => fileURLToPath(import.meta.resolve(specifier));

/** The product's files outside the console's folder that browsers load too. */
const SHARED = [
  '../../limiter/plans.ts',
  '../../limiter/tags.ts',
  '../../stores/words.ts',
  '../clients.ts',
  '../api/key-order.ts',
];

/** Files outside the console's folder. In browsers, an import of `specifier` or of the file's path loads the file. */
const LIBRARIES: readonly { readonly name: string; readonly specifier?: string; readonly from: string }[] = [
  { name: 'preact.js', specifier: 'preact', from: installed('preact') },
  { name: 'preact-hooks.js', specifier: 'preact/hooks', from: installed('preact/hooks') },
  { name: 'htm.js', specifier: 'htm', from: installed('htm') },
  { name: 'uplot.js', specifier: 'uplot', from: installed('uplot/dist/uPlot.esm.js') },
  { name: 'uplot.css', from: installed('uplot/dist/uPlot.min.css') },
  ...SHARED.map((path) => ({ name: basename(path), from: join(FOLDER, path) })),
];

const HTML = 'text/html; charset=utf-8';
const SCRIPT = 'text/javascript; charset=utf-8';
const TYPES: Readonly<Record<string, string>> = {
  '.html': HTML,
  '.css': 'text/css; charset=utf-8',
  '.js': SCRIPT,
  '.mjs': SCRIPT,
  '.ts': SCRIPT,
  '.svg': 'image/svg+xml',
};

/**
 * The routes of the console, the runbook and the documents that the runbook links to. They contain no data, so they
 * need no token: a page fetches its data with the token that the operator enters, and a browser that follows a link in
 * an alert has none to send.
 * @throws the system's error if the folder cannot be read
 */
export function pageRoutes(): ServiceRoute<unknown, unknown>[] {
  const page = join(FOLDER, 'index.html');
  // All pages are the same file. Its script shows the page for the URL, or “No such page”.
  const pages = (Object.keys(TITLES) as PageName[]).filter((name) => name !== 'nowhere');
  const files = readdirSync(FOLDER).filter((name) => extname(name) in TYPES && name !== 'index.html');
  return [
    ...pages.map((name) => routeOf(addressOf(name), page)),
    ...['/console/{page}', '/console/{page}/{more}'].map((path) => routeOf(path, page, 404)),
    ...files.map((name) => routeOf(`/console/${name}`, join(FOLDER, name))),
    ...LIBRARIES.map(({ name, from }) => routeOf(`/console/lib/${name}`, from)),
    ...DOCUMENTS.map((document) => textRoute('runbook', document.path, HTML, () => renderDocument(document))),
  ];
}

const routeOf = (path: string, file: string, status = 200): ServiceRoute<unknown, unknown> =>
  textRoute('console', path, TYPES[extname(file)] as string, () => forBrowser(file), status);

/** Returns a file without types. Imports become paths, because browsers cannot resolve package names. */
async function forBrowser(path: string): Promise<string> {
  const source = extname(path) === '.ts' ? await withoutTypes(path) : readFileSync(path, 'utf8');
  return source
    .replace(/^\/\/# sourceMappingURL=.*$/m, '')
    .replaceAll(/\b(from\s*)["']([^"']+)["']/g, (whole, from, specifier) => {
      const file = join(dirname(path), specifier);
      const library = LIBRARIES.find((one) => one.specifier === specifier || one.from === file);
      return library === undefined ? whole : `${from}"/console/lib/${library.name}"`;
    });
}

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
 * Strips types in a separate process, because Node's TypeScript compiler would take up 25 MB of this process
 * permanently.
 */
async function stripTypes(): Promise<Record<string, string>> {
  const own = readdirSync(FOLDER).map((name) => join(FOLDER, name));
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

/** The documents, with their paths and their names in the navigation. */
const DOCUMENTS = [
  { file: 'RUNBOOK.md', path: '/runbook', name: 'Runbook' },
  { file: 'METRICS.md', path: '/runbook/metrics', name: 'Metrics' },
  { file: 'README.md', path: '/runbook/operating', name: 'Operating' },
  { file: 'SETTINGS.md', path: '/runbook/settings', name: 'Settings' },
  { file: 'SCALING.md', path: '/runbook/scaling', name: 'Scaling' },
  { file: 'SECURITY.md', path: '/runbook/security', name: 'Security' },
] as const;

type Document = (typeof DOCUMENTS)[number];

/**
 * Renders a document with the same anchors as on GitHub.
 * @throws the system's error when it cannot be read
 */
async function renderDocument({ file, name }: Document): Promise<string> {
  // The renderer is loaded only when a document is opened.
  const { Marked } = await import('marked');
  const { getHeadingList, gfmHeadingId } = await import('marked-gfm-heading-id');
  const marked = new Marked(gfmHeadingId(), { async: false, renderer: { link } });
  const body = marked.parse(readFileSync(join(DOCUMENTS_FOLDER, file), 'utf8')) as string;
  const sections = getHeadingList().filter(({ level }) => level === 2);
  const entries = sections.map(({ id, text }) => `<li><a href="#${id}">${text}</a></li>`).join('\n');
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${name} · Animal store gateway</title>
<link rel="icon" href="/console/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/console/base.css">
<link rel="stylesheet" href="/console/parts.css">
<link rel="stylesheet" href="/console/runbook.css">
</head>
<body>
<header><nav aria-label="Documents">${navigationFrom(file)}</nav></header>
<nav class="contents" aria-label="On this page"><ul class="plain">
${entries}
</ul></nav>
<main>
${body}</main>
</body>
</html>
`;
}

function navigationFrom(current: string): string {
  const links = DOCUMENTS.map(
    ({ file, path, name }) => `<a href="${path}"${file === current ? ' aria-current="page"' : ''}>${name}</a>`,
  );
  return ['<a href="/">Console</a>', ...links].join('\n');
}

/** Renders a link. Links to other documents lead to their pages; links to files that have no page become text. */
function link(
  this: { parser: { parseInline(tokens: Tokens.Generic[]): string } },
  { href, tokens }: Tokens.Link,
): string {
  const text = this.parser.parseInline(tokens);
  const target = targetOf(href);
  return target === undefined ? text : `<a href="${target}">${text}</a>`;
}

function targetOf(href: string): string | undefined {
  if (href.startsWith('#') || /^https?:/.test(href)) return href;
  const [file = '', anchor] = href.split('#');
  const path = DOCUMENTS.find((one) => one.file === file)?.path;
  return path === undefined || anchor === undefined ? path : `${path}#${anchor}`;
}

/** With trusted types and no allowed policy, the browser itself refuses to use any text as HTML or script. */
const SAFETY = safetyHeaders("img-src 'self'", "require-trusted-types-for 'script'", "trusted-types 'none'");

/** Serves text to browsers, without requiring a token. The text is read at the first request and kept in memory. */
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
