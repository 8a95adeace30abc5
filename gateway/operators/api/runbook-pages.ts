import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ServiceRoute } from '../../../shared/http/service.ts';
import { safetyHeaders } from '../../static-file.ts';
import { DOCUMENT_NAMES, PAGES, renderPage } from '../runbook/pages.ts';
import { textRoute } from './text-route.ts';

const STYLE = join(import.meta.dirname, '../runbook/runbook.css');

/** The runbook needs no script. */
const SAFETY = safetyHeaders("img-src 'self'", "require-trusted-types-for 'script'", "trusted-types 'none'");

/**
 * Serves the runbook and the documents to which it links. They are open, because a browser that follows an alert's link
 * has no token to send, and because they contain only what the repository contains.
 */
export const runbookRoutes = (): ServiceRoute<unknown, unknown>[] => [
  ...DOCUMENT_NAMES.map((document) =>
    pageRoute(PAGES[document].path, 'text/html; charset=utf-8', () => renderPage(document)),
  ),
  pageRoute('/runbook/runbook.css', 'text/css; charset=utf-8', () => readFileSync(STYLE, 'utf8')),
];

const pageRoute = (path: string, type: string, read: () => string): ServiceRoute<unknown, unknown> =>
  textRoute('runbook', path, { type, headers: SAFETY, read });
