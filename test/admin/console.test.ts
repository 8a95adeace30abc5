import { expect, test } from 'vitest';
import { post, send } from '../support/http.ts';
import { ADMIN_TOKEN, startStack } from '../support/stack.ts';

const stack = await startStack();
const { adminUrl } = stack;
const { port } = new URL(adminUrl);

/** What the page loads, as it says itself, and what those files load. */
async function filesOfThePage(): Promise<string[]> {
  const paths = ['/'];
  for (const path of paths) {
    const { text } = await send(adminUrl + path);
    const named = [...text.matchAll(/(?:href|src)="(\/[^"]+)"/g), ...text.matchAll(/from '\.(\/[^']+)'/g)];
    for (const [, name = ''] of named) {
      const found = name.startsWith('/console/') ? name : `/console${name}`;
      if (!paths.includes(found)) paths.push(found);
    }
  }
  return paths;
}

const files = await filesOfThePage();

test('the page and its files are there without a token, shut off from other origins', async () => {
  expect(files.length).toBeGreaterThan(15);
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

test('they hold no data: they are the same whatever there is, and for whoever asks', async () => {
  const other = await startStack({ ADMIN_TOKEN: 'another-token-of-the-tests' });
  await stack.issueKey({ name: 'a customer' });
  await stack.admin('PATCH', '/plans/free', { minute: 61_237 });
  for (const path of files) {
    const { text } = await send(adminUrl + path, { key: ADMIN_TOKEN });
    expect(text).toBe((await send(other.adminUrl + path)).text);
  }
});

test('everything beside them asks for the token as before, and so do files that the page does not have', async () => {
  for (const path of [
    '/plans',
    '/keys',
    '/bans',
    '/traffic',
    '/console',
    '/console/',
    '/console/x.js',
    '/index.html',
  ]) {
    expect([path, (await send(adminUrl + path)).status]).toEqual([path, 401]);
  }
  for (const path of ['/console/', '/console/../main.ts', '/console/%2e%2e/console.ts', '/console/index.html'])
    expect([path, (await send(adminUrl + path, { key: ADMIN_TOKEN })).status]).toEqual([path, 404]);
});

test('only GET and HEAD are taken, and what a browser has is not sent again', async () => {
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

test('a name that was made to resolve to this machine does not get even the page', async () => {
  for (const path of files) {
    const headers = { Host: `evil.example:${port}` };
    expect((await send(adminUrl + path, { headers })).status).toBe(403);
  }
});

test('a wrong token is no matter where none is needed, and does not count as a guess', async () => {
  for (let sent = 0; sent < 12; sent++)
    expect((await send(`${adminUrl}/`, { key: 'wrong-token-of-the-tests', from: '127.0.0.5' })).status).toBe(200);
  expect((await send(`${adminUrl}/plans`, { key: ADMIN_TOKEN, from: '127.0.0.5' })).status).toBe(200);
});
