import { stringify } from 'csv-stringify/sync';
import { expect, test } from 'vitest';
import { asCsv } from '../../gateway/operators/console/csv.ts';
import { ALERT_NAMES } from '../support/alerts.ts';
import { send } from '../support/http.ts';
import { ADMIN_TOKEN, startStack } from '../support/stack.ts';

const stack = await startStack();
const { adminUrl } = stack;
const { port } = new URL(adminUrl);

/** The files that the page loads, directly or not. */
async function filesOfThePage(): Promise<string[]> {
  const paths = ['/'];
  for (const path of paths) {
    const { text, headers } = await send(adminUrl + path);
    const isPage = String(headers['content-type']).startsWith('text/html');
    const named = text.matchAll(isPage ? /(?:href|src)="([^"]+)"/g : /(?:\bfrom\s*|\bimport\()["']([./][^"']+)["']/g);
    for (const [, name = ''] of named) {
      const { pathname } = new URL(name, adminUrl + path);
      if (!paths.includes(pathname)) paths.push(pathname);
    }
  }
  return paths;
}

const files = await filesOfThePage();

const ISOLATED = { 'x-content-type-options': 'nosniff', 'x-frame-options': 'DENY', 'cache-control': 'no-cache' };

test('the console page and its files need no token and are isolated from other origins', async () => {
  expect(files.length).toBeGreaterThan(30);
  expect(files).toEqual(
    expect.arrayContaining(['preact', 'preact-hooks', 'htm', 'uplot'].map((name) => `/console/lib/${name}.js`)),
  );
  for (const path of files) {
    const { status, headers, text } = await send(adminUrl + path);
    expect([path, status, text.length > 0]).toEqual([path, 200, true]);
    expect(headers).toMatchObject({
      'content-type': expect.stringMatching(/^(text\/(html|css|javascript); charset=utf-8|image\/svg\+xml)$/),
      'referrer-policy': 'no-referrer',
      'cross-origin-resource-policy': 'same-origin',
      ...ISOLATED,
    });
    const policy = String(headers['content-security-policy']).split('; ');
    for (const directive of [
      "default-src 'none'",
      "script-src 'self'",
      "style-src 'self'",
      "connect-src 'self'",
      "base-uri 'none'",
      "form-action 'none'",
      "frame-ancestors 'none'",
      "require-trusted-types-for 'script'",
      "trusted-types 'none'",
    ])
      expect(policy).toContain(directive);
    expect(policy.join()).not.toMatch(/unsafe|\*|https?:|data:/);
  }
});

test('every console page is the same file, and no file imports anything that a browser cannot load', async () => {
  const { text } = await send(`${adminUrl}/`);
  for (const page of ['keys', 'key', 'plans', 'bans', 'activity', 'access', 'health'])
    expect((await send(`${adminUrl}/console/${page}?id=anything`)).text).toBe(text);
  for (const path of files) {
    const file = await send(adminUrl + path);
    expect(file.text, path).not.toMatch(/\bimport\b[^;'"]*\bfrom\s*["'][^./]|^import type/m);
  }
});

test('the console page and its files contain no data: everyone always gets the same bytes', async () => {
  const other = await startStack({ ADMIN_TOKEN: 'another-token-of-the-tests' });
  await stack.issueKey({ name: 'a customer' });
  await stack.admin('PATCH', '/plans/free', { minute: 61_237 });
  for (const path of files)
    expect((await stack.admin('GET', path)).text).toBe((await send(other.adminUrl + path)).text);
});

test("everything but the console's files requires the token, including files beside them", async () => {
  for (const path of ['/plans', '/keys', '/bans', '/traffic', '/whoami', '/console', '/console/', '/index.html']) {
    expect([path, (await send(adminUrl + path)).status]).toEqual([path, 401]);
  }
  for (const path of ['/console/', '/console/../main.ts', '/console/%2e%2e/console.ts', '/console/index.html'])
    expect([path, (await stack.admin('GET', path)).status]).toEqual([path, 404]);
});

test('an unknown console page gets 404 with the console, which reports that the page does not exist', async () => {
  const { text } = await send(`${adminUrl}/`);
  for (const path of ['/console/x.js', '/console/foo', '/console/keys/4fXk20LmQa9z', '/console/app.ts/x']) {
    const answer = await send(adminUrl + path);
    expect([path, answer.status, answer.text]).toEqual([path, 404, text]);
    expect(answer.headers['content-type']).toBe('text/html; charset=utf-8');
  }
});

test('the console accepts only GET and HEAD, only under a name of this machine, and sends 304 for a cached file', async () => {
  for (const path of files) {
    const url = adminUrl + path;
    const { text, headers } = await send(url);
    const length = { 'content-length': String(Buffer.byteLength(text)) };
    expect(await send(url, { method: 'HEAD' })).toMatchObject({ status: 200, text: '', headers: length });
    expect((await stack.admin('POST', path, {})).status).toBe(405);
    // A foreign name that resolves to this machine.
    expect((await send(url, { headers: { Host: `evil.example:${port}` } })).status).toBe(403);
    const { etag = '' } = headers;
    const again = await send(url, { headers: { 'if-none-match': etag } });
    expect(again).toMatchObject({ status: 304, text: '', headers: { etag } });
    expect((await send(url, { headers: { 'if-none-match': '"other"' } })).status).toBe(200);
  }
});

test('where no token is required, a wrong one is ignored and does not count as a guess', async () => {
  for (let sent = 0; sent < 12; sent++)
    expect((await send(`${adminUrl}/`, { key: 'wrong-token-of-the-tests', from: '127.0.0.5' })).status).toBe(200);
  expect((await send(`${adminUrl}/plans`, { key: ADMIN_TOKEN, from: '127.0.0.5' })).status).toBe(200);
});

/** The pages of the runbook, on the same listener. */

const PAGES = ['metrics', 'operating', 'settings', 'scaling', 'security'];
const PATHS = ['/runbook', ...PAGES.map((name) => `/runbook/${name}`)];

test('the runbook is served without a token, with an anchor for every alert and a policy without scripts', async () => {
  const { status, text, headers } = await send(`${adminUrl}/runbook`);
  expect([status, headers]).toMatchObject([200, { 'content-type': 'text/html; charset=utf-8', ...ISOLATED }]);
  expect(headers['content-security-policy']).toMatch(/^default-src 'none'; script-src 'self'; style-src 'self'; /);
  expect(text).not.toMatch(/<script|\sstyle=|\son\w+=|undefined/);
  const anchors = [...text.matchAll(/<h2 id="([^"]+)"/g)].map(([, id]) => id);
  expect(anchors).toEqual(expect.arrayContaining(ALERT_NAMES.map((name) => name.toLowerCase())));
  const again = await send(`${adminUrl}/runbook`, { headers: { 'if-none-match': headers.etag ?? '' } });
  expect([again.status, again.text]).toEqual([304, '']);
});

test('no runbook page has a dead link', async () => {
  const pages = await Promise.all(PATHS.map(async (path) => [path, (await send(adminUrl + path)).text] as const));
  const links = pages.flatMap(([path, text]) =>
    [...text.matchAll(/href="([^"]+)"/g)].map(([, href = '']) => [path, href]),
  );
  expect(links.length).toBeGreaterThan(100);
  const bad: string[] = [];
  for (const [path = '', href = ''] of links) {
    const { origin, pathname, hash } = new URL(href, adminUrl + path);
    // Links to other services assume that these run on this machine.
    if (origin !== adminUrl) {
      if (new URL(origin).hostname !== '127.0.0.1') bad.push(`${path}: ${href} leads elsewhere`);
      continue;
    }
    const target = pages.find(([one]) => one === pathname)?.[1] ?? (await send(adminUrl + pathname));
    const isThere =
      typeof target === 'string' ? hash === '' || target.includes(` id="${hash.slice(1)}"`) : target.status === 200;
    if (!isThere) bad.push(`${path}: ${href} leads nowhere`);
  }
  expect(bad).toEqual([]);
});

test('only documents are served below /runbook, and only for GET and HEAD', async () => {
  for (const path of ['/runbook/', '/runbook/RUNBOOK.md', '/runbook/pages.ts', '/runbook/.env'])
    expect([path, (await send(adminUrl + path)).status]).toEqual([path, 401]);
  expect((await send(`${adminUrl}/runbook`, { method: 'POST' })).status).toBe(405);
});

/** The console writes CSV itself; ctl uses a library. RFC 4180 requires quotes around a single CR or LF too. */

const PARTS = ['', ...'=+-@\t\r\n",\' a1＝＋－＠ß', '\r\n'];
const TEXTS = PARTS.flatMap((first) => PARTS.flatMap((second) => PARTS.map((third) => first + second + third)));

const HEAD = 'at,actor,action,target,via,changes,reason,requestId,token,id,targetName\r\n';
const ENTRY = { id: '1-0', at: '', action: 'key.change', target: '', targetName: undefined, via: 'api' } as const;

const own = (text: string): string =>
  asCsv([{ ...ENTRY, actor: text, reason: text, changes: [{ field: text, from: text, to: text }] }]);

const expected = (text: string): string =>
  HEAD +
  stringify([['', text, 'key.change', '', 'api', `${text} ${text} -> ${text}`, text, '', '', '1-0', '']], {
    escape_formulas: true,
    record_delimiter: 'windows',
    quote_record_delimiter: true,
  });

test('the console quotes CSV fields and escapes formulas as csv-stringify does', () => {
  const different = TEXTS.filter((text) => own(text) !== expected(text));
  expect(different.slice(0, 3).map((text) => [own(text), expected(text)])).toEqual([]);
});
