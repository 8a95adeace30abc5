import { cpSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import type { Document } from '../../gateway/reference/openapi.ts';
import { ctlWith } from '../support/ctl.ts';
import { send, sendBytes } from '../support/http.ts';
import { serveHttp } from '../support/http-server.ts';
import { ROOT, startService } from '../support/process.ts';
import { runSample } from '../support/samples.ts';
import { ADMIN_TOKEN, temporaryFolder } from '../support/stack.ts';

/** Puts another service behind the gateway, as the README describes: replaces only the operations, in a copy. */

const ROUTES = `[
  { operation: 'getBook', scope: 'read', method: 'GET', path: '/v1/books/{bookId}', takesBody: false },
  { operation: 'listBooks', scope: 'read', method: 'GET', path: '/v1/books', takesBody: false },
  { operation: 'replaceBook', scope: 'write', method: 'PUT', path: '/v1/books/{bookId}', takesBody: true },
  { operation: 'removeBook', scope: 'write', method: 'DELETE', path: '/v1/books/{bookId}', takesBody: false },
  { operation: 'printBook', scope: 'write', method: 'POST', path: '/v1/books/{bookId}/copies', takesBody: false },
  LIMITS_ROUTE,
`;

const TITLE = "Schrödinger's \\ cat";
const API = `{
  title: 'Books & more',
  version: '2.0.0',
  summary: 'Lists books.',
  contact: { name: 'Books', url: 'https://books.example/' },
  license: { name: 'MIT', identifier: 'MIT' },
`;
const OPERATIONS = `{
  getBook: { tag: 'books', summary: 'Get a book', description: 'Returns a book.', parameters: [BOOK_ID], success: FOUND },
  listBooks: {
    tag: 'books', summary: 'List books', description: 'Returns books.', parameters: [GENRE],
    success: { status: 200, description: 'Books.', content: { 'application/json': { schema: { type: 'array', items: BOOK } } } },
  },
  replaceBook: {
    tag: 'books', summary: 'Replace a book', description: 'Replaces a book.', parameters: [BOOK_ID],
    body: { 'application/json': { schema: BOOK, example: { title: ${JSON.stringify(TITLE)} } } },
    success: FOUND,
  },
  removeBook: {
    tag: 'books', summary: 'Delete a book', description: 'Deletes a book.', parameters: [BOOK_ID],
    success: { status: 204, description: 'The book was deleted.' },
  },
  printBook: {
    tag: 'books', summary: 'Print a book', description: 'Prints a book.', parameters: [BOOK_ID],
    success: { status: 202, description: 'The book will be printed.' },
  },
`;
const SCHEMAS = `
const BOOK: Schema = { type: 'object', properties: { title: { type: 'string' } }, required: ['title'] };
const BOOK_ID: Parameter = {
  name: 'bookId', in: 'path', required: true, description: 'Its id.', schema: { type: 'string', examples: ["it's 7"] },
};
const GENRE: Parameter = {
  name: 'genre', in: 'query', required: true, description: 'Its genre.', schema: { type: 'string', examples: ['a&b'] },
};
const FOUND = { status: 200, description: 'The book.', content: { 'application/json': { schema: BOOK, example: { title: 'x' } } } };
`;

/** Replaces everything between a declaration and the text `end`. */
function replaced(text: string, declaration: RegExp, by: string, end: string): string {
  const [found = ''] = declaration.exec(text) ?? [];
  const [before = '', after = ''] = text.split(found, 2);
  if (found === '' || !after.includes(end)) throw new Error(`The file has no ${declaration} up to ${end}.`);
  return before + found + by + after.slice(after.indexOf(end));
}

/** A copy of the project with the operations of a service that lends books. */
async function ownProject(): Promise<string> {
  const folder = await temporaryFolder();
  for (const name of ['core', 'deploy', 'gateway', 'shared', 'package.json'])
    cpSync(join(ROOT, name), join(folder, name), { recursive: true, verbatimSymlinks: true });
  // The copy has its own compile cache.
  mkdirSync(join(folder, 'node_modules'));
  for (const name of readdirSync(join(ROOT, 'node_modules')).filter((name) => !name.startsWith('.')))
    symlinkSync(join(ROOT, 'node_modules', name), join(folder, 'node_modules', name));
  const edit = (file: string, change: (text: string) => string) => {
    const path = join(folder, 'gateway', file);
    writeFileSync(path, change(readFileSync(path, 'utf8')));
  };
  edit('routes.ts', (text) => replaced(text, /export const ROUTES: readonly GatewayRoute\[\] = /, ROUTES, '];'));
  edit('reference/operations.ts', (text) => {
    const named = replaced(text, /export const API = /, API, '};').replace('/** The API', `${SCHEMAS}$&`);
    const tagged = named.replace(/pets: 'Pets\.', store: '[^']+'/, "books: 'Books.'");
    return replaced(tagged, /export const OPERATIONS: [^=]+ = /, OPERATIONS, '  getLimits: {');
  });
  return folder;
}

const seen: { method: string | undefined; url: string; body: string }[] = [];

/** A service that serves only its own paths. */
const service = await serveHttp(async (request, response) => {
  const { method, url = '' } = request;
  const body = await text(request);
  if (!url.startsWith('/v1/books')) return void response.writeHead(404, { 'content-length': 0 }).end();
  seen.push({ method, url, body });
  if (method === 'DELETE') return void response.writeHead(204).end();
  response.writeHead(200, { 'content-type': 'application/json', 'content-length': 2 }).end('{}');
});

const { addresses } = await startService(join(await ownProject(), 'gateway/main.ts'), {
  PORT: '0',
  ADMIN_PORT: '0',
  ADMIN_TOKEN,
  CORE_URL: service,
  CORS_ORIGINS: 'https://books.example',
  DATA_DIR: await temporaryFolder(),
});
const { gateway = '', admin = '' } = addresses;
const ctl = (...words: string[]) => ctlWith({ ADMIN_PORT: new URL(admin).port, ADMIN_TOKEN }, ...words);
const { key } = JSON.parse((await ctl('--json', 'keys', 'create', '--plan', 'pro', '--name', 'own')).out);

const api = (await (await fetch(`${gateway}/v1/openapi.json`)).json()) as Document;

test('the reference has the name, tags and operations of the other service, even those without bodies', async () => {
  expect(api.info).toMatchObject({ title: 'Books & more', version: '2.0.0', summary: 'Lists books.' });
  expect(api.info.description).toMatch(/^Lists books\.\n\n\*\*Auth/);
  expect(api.tags.map(({ name }) => name)).toEqual(['books', 'limits']);
  expect(api.paths['/books/{bookId}']?.delete?.responses['204']).not.toHaveProperty('content');
  const page = await (await fetch(`${gateway}/docs/`)).text();
  expect(page).toContain('<h1>Books &amp; more API</h1>');
  expect(page).toContain('http://127.0.0.1:8080/v1/books</code>');
  const removal = /<section [^>]*id="removeBook"[\s\S]*?<\/section>/.exec(page)?.[0];
  expect(removal).toMatch(
    /<span class="status" role="status">204 · example<\/span>.*\n<pre tabindex="0"><code>No body</,
  );
  expect(removal).not.toContain('Fields of the response');
  expect(page).not.toMatch(/<!-- |undefined|NaN|\bpets?\b/i);
});

test('the samples of all methods send what they show', async () => {
  const id = "/v1/books/it's%207";
  const body = JSON.stringify({ title: TITLE });
  for (const [path, method, sent] of [
    ['/books/{bookId}', 'get', { method: 'GET', url: id, body: '' }],
    ['/books', 'get', { method: 'GET', url: '/v1/books?genre=a%26b', body: '' }],
    ['/books/{bookId}', 'put', { method: 'PUT', url: id, body }],
    ['/books/{bookId}', 'delete', { method: 'DELETE', url: id, body: '' }],
    ['/books/{bookId}/copies', 'post', { method: 'POST', url: `${id}/copies`, body: '' }],
  ] as const) {
    seen.length = 0;
    const samples = api.paths[path]?.[method]?.['x-codeSamples'] ?? [];
    for (const sample of samples) expect(await runSample(sample, gateway, key)).toMatch(/\b20[04]\b/);
    expect([path, method, seen]).toEqual([path, method, [sent, sent, sent]]);
  }
});

test('the doctor finds no fault in a service without /readyz, and tests a path of that service', async () => {
  seen.length = 0;
  const { code, out } = await ctl('doctor');
  expect([code, seen]).toEqual([0, [{ method: 'GET', url: '/v1/books', body: '' }]]);
  expect(out).toMatch(new RegExp(`core ${service} +has no /readyz`));
});

test('a preflight and OPTIONS * list the methods of the other service', async () => {
  const headers = { origin: 'https://books.example', 'access-control-request-method': 'DELETE' };
  const preflight = await send(`${gateway}/v1/books/7`, { method: 'OPTIONS', headers });
  expect([preflight.status, preflight.headers['access-control-allow-methods']]).toEqual([
    204,
    'GET, HEAD, PUT, DELETE, POST',
  ]);
  const star = await sendBytes(gateway, 'OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n');
  expect(star).toMatch(/\r\nAllow: GET, HEAD, PUT, DELETE, POST, OPTIONS\r\n/);
});
