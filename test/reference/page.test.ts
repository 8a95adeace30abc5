import { expect, test } from 'vitest';
import { post, send } from '../support/http.ts';
import { startStack } from '../support/stack.ts';

const FILES = ['', 'page.css', 'page.js', 'swagger-ui.css', 'swagger-ui-bundle.js', 'favicon-32x32.png'];

test('the page and its files are there for anyone, shut off from other origins, with the limits of the address', async () => {
  const { gateway } = await startStack();
  for (const name of FILES) {
    const { status, headers } = await send(`${gateway}/docs/${name}`, {
      headers: { authorization: 'Bearer nonsense' },
    });
    expect([name, status]).toEqual([name, 200]);
    expect(headers).toMatchObject({
      'content-type': expect.stringMatching(/^(text\/(html|css|javascript); charset=utf-8|image\/png)$/),
      'x-content-type-options': 'nosniff',
      'x-frame-options': 'DENY',
      'referrer-policy': 'no-referrer',
      'cross-origin-resource-policy': 'same-origin',
      'x-ratelimit-limit': '60',
    });
    expect(headers['content-security-policy']).toMatch(/^default-src 'none'; script-src 'self'; style-src 'self'; /);
    expect(headers['content-security-policy']).not.toMatch(/unsafe|\*|https?:/);
  }
});

test('/docs leads to /docs/, and whatever else is below it is unknown, as everywhere', async () => {
  const stack = await startStack();
  const key = await stack.issueKey();
  const moved = await send(`${stack.gateway}/docs`);
  expect([moved.status, moved.headers.location]).toEqual([308, '/docs/']);
  for (const path of [
    '/docs/x',
    '/docs/page.js/',
    '/docs/openapi.ts',
    '/Docs/',
    '/docs/swagger-ui.js',
    '/openapi.json',
  ]) {
    expect((await send(stack.gateway + path)).status).toBe(401);
    expect((await send(stack.gateway + path, { key })).status).toBe(404);
  }
  for (const path of ['/docs//', '/docs/../v1/pets', '/docs/%2e%2e/main.ts', '//docs', '/docs/..%2fconfig.ts']) {
    expect((await send(stack.gateway + path)).status).toBe(400);
  }
});

test('only GET and HEAD are taken, without a body', async () => {
  const { gateway } = await startStack();
  for (const path of ['/docs/', '/docs', '/v1/openapi.json']) {
    const url = gateway + path;
    const [got, head] = [await send(url), await send(url, { method: 'HEAD' })];
    expect([head.status, head.text]).toEqual([got.status, '']);
    expect(head.headers['content-length']).toBe(got.headers['content-length']);
    for (const method of ['PUT', 'DELETE', 'OPTIONS']) {
      const { status, headers } = await send(url, { method });
      expect([status, headers.allow]).toEqual([405, 'GET, HEAD']);
    }
    expect((await post(url, {})).status).toBe(405);
    expect((await post(url, {}, { method: 'GET' })).status).toBe(400);
  }
});

test('what a browser has is not sent again', async () => {
  const { gateway } = await startStack();
  for (const path of ['/docs/', '/docs/swagger-ui-bundle.js', '/v1/openapi.json']) {
    const { etag = '' } = (await send(gateway + path)).headers;
    for (const given of [etag, `"other", ${etag}`, etag.replace('W/', ''), '*']) {
      const again = await send(gateway + path, { headers: { 'if-none-match': given } });
      expect([given, again.status, again.text, again.headers.etag]).toEqual([given, 304, '', etag]);
      expect(again.headers['x-ratelimit-remaining']).toMatch(/^\d+$/);
    }
    expect((await send(gateway + path, { headers: { 'if-none-match': '"other"' } })).status).toBe(200);
  }
});

test('who takes gzip gets it', async () => {
  const { gateway } = await startStack();
  const url = `${gateway}/v1/openapi.json`;
  const plain = await send(url, { headers: { 'accept-encoding': 'br, gzip;q=0' } });
  expect(plain.headers['content-encoding']).toBeUndefined();
  const response = await fetch(url, { headers: { 'accept-encoding': 'gzip' } });
  expect(response.headers.get('content-encoding')).toBe('gzip');
  expect(await response.text()).toBe(plain.text);
  const { headers } = await send(url, { method: 'HEAD', headers: { 'accept-encoding': 'x, GZIP ;q=0.5' } });
  expect(Number(headers['content-length'])).toBeLessThan(plain.text.length / 5);
  expect(headers.vary).toBe('Accept-Encoding');
});

test('past the allowance of the address even the page is refused, and a key still works', async () => {
  const stack = await startStack();
  const key = await stack.issueKey();
  const statuses: number[] = [];
  for (let sent = 0; sent < 62; sent++) statuses.push((await send(`${stack.gateway}/docs/`, { key })).status);
  expect(statuses.slice(0, 60)).toEqual(Array(60).fill(200));
  expect(statuses).toContain(429);
  expect((await send(`${stack.gateway}/v1/pets`, { key })).headers['x-ratelimit-remaining']).toBe('59');
  expect(stack.log.find(({ path }) => path === '/docs/')).toMatchObject({
    operation: 'reference',
    outcome: 'reference',
  });
});
