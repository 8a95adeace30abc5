import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Marked, type Tokens } from 'marked';
import { getHeadingList, gfmHeadingId } from 'marked-gfm-heading-id';

/** Renders the operators' documents as HTML, with the same anchors as in a repository's web view. */

const DOCUMENTS = join(import.meta.dirname, '../../../deploy');

/** The address of each document, and its name in the navigation. */
export const PAGES = {
  'RUNBOOK.md': { path: '/runbook', name: 'Runbook' },
  'METRICS.md': { path: '/runbook/metrics', name: 'Metrics' },
  'README.md': { path: '/runbook/operating', name: 'Operating' },
  'SETTINGS.md': { path: '/runbook/settings', name: 'Settings' },
  'SCALING.md': { path: '/runbook/scaling', name: 'Scaling' },
  'SECURITY.md': { path: '/runbook/security', name: 'Security' },
} as const;

export type DocumentName = keyof typeof PAGES;
export const DOCUMENT_NAMES = Object.keys(PAGES) as DocumentName[];

/** @throws the system's error when the document cannot be read */
export function renderPage(document: DocumentName): string {
  const marked = new Marked(gfmHeadingId(), { async: false, renderer: { link } });
  const body = marked.parse(readFileSync(join(DOCUMENTS, document), 'utf8')) as string;
  const sections = getHeadingList().filter(({ level }) => level === 2);
  const entries = sections.map(({ id, text }) => `<li><a href="#${id}">${text}</a></li>`).join('\n');
  const { name } = PAGES[document];
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${name} · Animal store gateway</title>
<link rel="icon" href="/console/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/runbook/runbook.css">
</head>
<body>
<header><nav aria-label="Documents">${navigation(document)}</nav></header>
<nav class="contents" aria-label="On this page"><ul>
${entries}
</ul></nav>
<main>
${body}</main>
</body>
</html>
`;
}

function navigation(current: DocumentName): string {
  const links = DOCUMENT_NAMES.map((document) => {
    const { path, name } = PAGES[document];
    return `<a href="${path}"${document === current ? ' aria-current="page"' : ''}>${name}</a>`;
  });
  return ['<a href="/">Console</a>', ...links].join('\n');
}

/** Makes a link to another document lead to its page. Links to files that are not served here are shown as text. */
function link(
  this: { parser: { parseInline(tokens: Tokens.Generic[]): string } },
  { href, tokens }: Tokens.Link,
): string {
  const text = this.parser.parseInline(tokens);
  const target = addressOf(href);
  return target === undefined ? text : `<a href="${target}">${text}</a>`;
}

function addressOf(href: string): string | undefined {
  if (href.startsWith('#') || /^https?:/.test(href)) return href;
  const [file = '', anchor] = href.split('#');
  if (!(file in PAGES)) return undefined;
  const { path } = PAGES[file as DocumentName];
  return anchor === undefined ? path : `${path}#${anchor}`;
}
