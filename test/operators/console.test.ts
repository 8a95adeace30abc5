import { expect, test } from 'vitest';
import { post, send } from '../support/http.ts';
import { ADMIN_TOKEN, startStack } from '../support/stack.ts';

const stack = await startStack();
const { adminUrl } = stack;
const { port } = new URL(adminUrl);

/** The files that the page loads, and those that they load. */
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

test('the page and its files need no token and are isolated from other origins', async () => {
  expect(files.length).toBeGreaterThan(30);
  expect(files).toEqual(
    expect.arrayContaining(['preact', 'preact-hooks', 'htm', 'uplot'].map((name) => `/console/lib/${name}.js`)),
  );
  for (const path of files) {
    const { status, headers, text } = await send(adminUrl + path);
    expect([path, status, text.length > 0]).toEqual([path, 200, true]);
    expect(headers).toMatchObject({
      'content-type': expect.stringMatching(/^(text\/(html|css|javascript); charset=utf-8|image\/svg\+xml)$/),
      'x-content-type-options': 'nosniff',
      'x-frame-options': 'DENY',
      'referrer-policy': 'no-referrer',
      'cross-origin-resource-policy': 'same-origin',
      'cache-control': 'no-cache',
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

test('every console page is the same file, and no file imports what a browser cannot load', async () => {
  const { text } = await send(`${adminUrl}/`);
  for (const page of ['keys', 'key', 'plans', 'bans', 'activity', 'access', 'health'])
    expect((await send(`${adminUrl}/console/${page}?id=anything`)).text).toBe(text);
  for (const path of files) {
    const file = await send(adminUrl + path);
    expect([path, /\bimport\b[^;'"]*\bfrom\s*["'][^./]/.test(file.text), /^import type/m.test(file.text)]).toEqual([
      path,
      false,
      false,
    ]);
  }
});

test('they contain no data: they are always the same, for everyone', async () => {
  const other = await startStack({ ADMIN_TOKEN: 'another-token-of-the-tests' });
  await stack.issueKey({ name: 'a customer' });
  await stack.admin('PATCH', '/plans/free', { minute: 61_237 });
  for (const path of files) {
    const { text } = await send(adminUrl + path, { key: ADMIN_TOKEN });
    expect(text).toBe((await send(other.adminUrl + path)).text);
  }
});

test("everything but the console's files requires the token, including files beside them", async () => {
  for (const path of ['/plans', '/keys', '/bans', '/traffic', '/whoami', '/console', '/console/', '/index.html']) {
    expect([path, (await send(adminUrl + path)).status]).toEqual([path, 401]);
  }
  for (const path of ['/console/', '/console/../main.ts', '/console/%2e%2e/console.ts', '/console/index.html'])
    expect([path, (await send(adminUrl + path, { key: ADMIN_TOKEN })).status]).toEqual([path, 404]);
});

test("an unknown console page is 404 with the page's file, which says so", async () => {
  const { text } = await send(`${adminUrl}/`);
  for (const path of ['/console/x.js', '/console/foo', '/console/keys/4fXk20LmQa9z', '/console/app.ts/x']) {
    const answer = await send(adminUrl + path);
    expect([path, answer.status, answer.text]).toEqual([path, 404, text]);
    expect(answer.headers['content-type']).toBe('text/html; charset=utf-8');
  }
});

test('the console accepts only GET and HEAD and does not resend a cached file', async () => {
  for (const path of files) {
    const url = adminUrl + path;
    const { text, headers } = await send(url);
    const head = await send(url, { method: 'HEAD' });
    expect([head.status, head.text, head.headers['content-length']]).toEqual([
      200,
      '',
      String(Buffer.byteLength(text)),
    ]);
    expect((await post(url, {}, { key: ADMIN_TOKEN })).status).toBe(405);
    const etag = String(headers.etag);
    const again = await send(url, { headers: { 'if-none-match': etag } });
    expect([again.status, again.text, again.headers.etag]).toEqual([304, '', etag]);
    expect((await send(url, { headers: { 'if-none-match': '"other"' } })).status).toBe(200);
  }
});

test('a foreign host name that resolves to this machine does not get the page', async () => {
  for (const path of files) {
    const headers = { Host: `evil.example:${port}` };
    expect((await send(adminUrl + path, { headers })).status).toBe(403);
  }
});

test('a wrong token is ignored if none is needed and does not count as a guess', async () => {
  for (let sent = 0; sent < 12; sent++)
    expect((await send(`${adminUrl}/`, { key: 'wrong-token-of-the-tests', from: '127.0.0.5' })).status).toBe(200);
  expect((await send(`${adminUrl}/plans`, { key: ADMIN_TOKEN, from: '127.0.0.5' })).status).toBe(200);
});
