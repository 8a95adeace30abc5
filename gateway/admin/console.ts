import { readdirSync, readFileSync } from 'node:fs';
import { extname, join } from 'node:path';
import type { ServiceRoute } from '../../shared/service.ts';
import { etagOf, isCurrent, safetyHeaders } from '../../shared/static-file.ts';

/** The operators' console, as routes of their listener: what lies in console/ and nothing else. */

const FOLDER = join(import.meta.dirname, 'console');

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/** Trusted types that nobody may make: the browser itself refuses to take any text for HTML or script. */
const SAFETY = safetyHeaders("img-src 'self'", "require-trusted-types-for 'script'", "trusted-types 'none'");

/**
 * The page, at `/`, and its files. They hold no data, so anyone whom the listener admits may have them without a token;
 * whatever the page shows it asks for with the token that is typed into it. Read once and kept in memory.
 * @throws the system's error when the folder cannot be read
 */
export const consoleRoutes = (): ServiceRoute<unknown>[] => readdirSync(FOLDER).map(fileRoute);

function fileRoute(name: string): ServiceRoute<unknown> {
  const text = readFileSync(join(FOLDER, name), 'utf8');
  const etag = etagOf(text);
  const headers = ['ETag', etag, 'Cache-Control', 'no-cache', ...SAFETY];
  const whole = { status: 200, json: text, headers: ['Content-Type', TYPES[extname(name)] ?? '', ...headers] };
  return {
    name: 'console',
    method: 'GET',
    path: name === 'index.html' ? '/' : `/console/${name}`,
    isOpen: true,
    async operation({ request }) {
      return isCurrent(request.headers['if-none-match'], etag) ? { status: 304, headers } : whole;
    },
  };
}
