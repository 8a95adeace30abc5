import { expect, test } from 'vitest';
import { ALERT_NAMES } from '../support/alerts.ts';
import { send } from '../support/http.ts';
import { startStack } from '../support/stack.ts';

const PAGES = ['metrics', 'operating', 'settings', 'scaling', 'security'];
const PATHS = ['/runbook', ...PAGES.map((name) => `/runbook/${name}`)];

test('the runbook is served without a token, with an anchor for every alert and a policy without scripts', async () => {
  const { adminUrl } = await startStack();
  const { status, text, headers } = await send(`${adminUrl}/runbook`);
  expect(status).toBe(200);
  expect(headers).toMatchObject({
    'content-type': 'text/html; charset=utf-8',
    'x-content-type-options': 'nosniff',
    'x-frame-options': 'DENY',
    'cache-control': 'no-cache',
  });
  expect(headers['content-security-policy']).toMatch(/^default-src 'none'; script-src 'self'; style-src 'self'; /);
  expect(text).not.toMatch(/<script|\sstyle=|\son\w+=|undefined/);
  const anchors = [...text.matchAll(/<h2 id="([^"]+)"/g)].map(([, id]) => id);
  expect(anchors).toEqual(expect.arrayContaining(ALERT_NAMES.map((name) => name.toLowerCase())));
  const again = await send(`${adminUrl}/runbook`, { headers: { 'if-none-match': headers.etag ?? '' } });
  expect([again.status, again.text]).toEqual([304, '']);
});

test('every link on every runbook page leads to something that exists', async () => {
  const { adminUrl } = await startStack();
  const pages = await Promise.all(PATHS.map(async (path) => [path, (await send(adminUrl + path)).text] as const));
  const links = pages.flatMap(([path, text]) =>
    [...text.matchAll(/href="([^"]+)"/g)].map(([, href = '']) => [path, href]),
  );
  expect(links.length).toBeGreaterThan(100);
  const bad: string[] = [];
  for (const [path = '', href = ''] of links) {
    const { origin, pathname, hash } = new URL(href, adminUrl + path);
    // Addresses of an installation on one machine are shown as links.
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

test('only documents are served below /runbook, by GET and HEAD', async () => {
  const { adminUrl } = await startStack();
  for (const path of ['/runbook/', '/runbook/RUNBOOK.md', '/runbook/pages.ts', '/runbook/.env'])
    expect([path, (await send(adminUrl + path)).status]).toEqual([path, 401]);
  expect((await send(`${adminUrl}/runbook`, { method: 'POST' })).status).toBe(405);
});
