import { Agent } from 'node:http';
import { expect, test } from 'vitest';
import { ERRORS } from '../../shared/http/errors.ts';
import { post, send } from '../support/http.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { startStack } from '../support/stack.ts';

const FILES = ['', 'page.css', 'parts.css', 'page.js', 'icon.svg'];

const { gateway, issueKey } = await startStack();

test('the reference and its files are public, isolated from other origins, and limited by address', async () => {
  for (const name of FILES) {
    const { status, headers } = await send(`${gateway}/docs/${name}`, {
      headers: { authorization: 'Bearer nonsense' },
    });
    expect([name, status]).toEqual([name, 200]);
    expect(headers).toMatchObject({
      'content-type': expect.stringMatching(/^(text\/(html|css|javascript); charset=utf-8|image\/svg\+xml)$/),
      'x-content-type-options': 'nosniff',
      'x-frame-options': 'DENY',
      'referrer-policy': 'no-referrer',
      'cross-origin-resource-policy': 'same-origin',
      'x-ratelimit-limit': '4000',
    });
    expect(headers['content-security-policy']).toMatch(/^default-src 'none'; script-src 'self'; style-src 'self'; /);
    expect(headers['content-security-policy']).not.toMatch(/unsafe|\*|https?:/);
  }
});

test('an error links to its entry in the reference, which says what to do', async () => {
  const key = await issueKey({ plan: 'free', minute: 1 });
  const { text: page } = await send(`${gateway}/docs/`);
  const row = /<tr id="error-(\w+)"><td>(\d{3})<\/td><td><code>\1<\/code><\/td><td>[^<]+<br \/>.+?\.<\/td><\/tr>/g;
  const rows = [...page.matchAll(row)].map(([, code, status]) => [code, Number(status)]);
  expect(rows).toEqual(Object.entries(ERRORS).map(([code, { status }]) => [code, status]));
  expect(page).not.toMatch(/<!-- |undefined|NaN/);
  const free = await issueKey();
  for (const [ask, status, link] of [
    [() => send(`${gateway}/v1/pets`), 401, '</docs#error-unauthorized>; rel="help"'],
    [() => send(`${gateway}/v1/pets`, { key }), 200, undefined],
    [() => send(`${gateway}/v1/pets`, { key }), 429, '</docs#error-rate_limit_exceeded>; rel="help"'],
    [() => send(`${gateway}/v1/../pets`, { key }), 400, '</docs#error-invalid_request>; rel="help"'],
    // Core errors.
    [() => send(`${gateway}/v1/pets?limit=0`, { key: free }), 400, '</docs#error-invalid_parameter>; rel="help"'],
    [
      () => send(`${gateway}/v1/pets/999999`, { key: free }),
      404,
      '</v1/pets>; rel="successor-version", </docs#error-not_found>; rel="help"',
    ],
    [() => post(`${gateway}/v1/pets`, {}, { key: free }), 400, '</docs#error-invalid_request>; rel="help"'],
  ] as const) {
    const answer = await ask();
    expect([answer.status, answer.headers.link]).toEqual([status, link]);
  }
});

test('the types of fields are described in words', async () => {
  const { text } = await send(`${gateway}/docs/`);
  const limits = text.slice(text.indexOf('id="getLimits"'));
  const rows = limits.matchAll(/<code>([^<]+)<\/code><\/th><td>[^\n]*<span class="quiet">([^<]*)<\/span><\/td><\/tr>/g);
  expect(Object.fromEntries([...rows].map(([, name, type]) => [name, type]))).toMatchObject({
    'minute.limit': 'integer',
    ban: 'object or null',
    'ban.until': 'integer',
    bannedUntil: 'integer or null',
    expiresAt: 'time or null',
    'usage[].day': 'date',
    refusals: 'array or null, optional',
    'refusals[].limit': 'string or null, one of minute, day',
    'refusals[].retryAt': 'integer or null',
  });
});

test('/docs redirects to /docs/, and unknown paths below it get 404', async () => {
  const key = await issueKey();
  const moved = await send(`${gateway}/docs`);
  expect([moved.status, moved.headers.location]).toEqual([308, '/docs/']);
  for (const path of ['/docs/x', '/docs/page.js/', '/docs/openapi.ts', '/Docs/', '/docs/index.html', '/openapi.json']) {
    expect((await send(gateway + path)).status).toBe(401);
    expect((await send(gateway + path, { key })).status).toBe(404);
  }
  for (const path of ['/docs//', '/docs/../v1/pets', '/docs/%2e%2e/main.ts', '//docs', '/docs/..%2fconfig.ts']) {
    expect((await send(gateway + path)).status).toBe(400);
  }
});

test('the reference accepts only GET and HEAD without a body', async () => {
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

test('a cached file of the reference is not sent again', async () => {
  for (const path of ['/docs/', '/docs/page.js', '/v1/openapi.json']) {
    const { etag = '' } = (await send(gateway + path)).headers;
    for (const given of [etag, `"other", ${etag}`, etag.replace('W/', ''), '*']) {
      const again = await send(gateway + path, { headers: { 'if-none-match': given } });
      expect([given, again.status, again.text, again.headers.etag]).toEqual([given, 304, '', etag]);
      expect(again.headers['x-ratelimit-remaining']).toMatch(/^\d+$/);
    }
    expect((await send(gateway + path, { headers: { 'if-none-match': '"other"' } })).status).toBe(200);
  }
  for (const headers of [{ 'if-none-match': '*' }, { 'accept-encoding': 'gzip' }]) {
    const redirect = await send(`${gateway}/docs`, { headers });
    expect([redirect.status, redirect.text, redirect.headers['content-encoding']]).toEqual([308, '', undefined]);
  }
});

test('a client that accepts gzip gets the reference compressed', async () => {
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

const versionedIn = (page: string): string[] =>
  [...page.matchAll(/(?:href|src)="([^"]+\?v=[^"]+)"/g)].map(([, name = '']) => name);

test('a first visit to the reference needs few requests, and a reload needs one', async () => {
  const { text, headers } = await send(`${gateway}/docs/`);
  expect(headers['cache-control']).toBe('no-cache');
  const named = versionedIn(text);
  expect(named.map((name) => name.replace(/\?.*/, '')).sort()).toEqual([...FILES.slice(1), '/v1/openapi.json'].sort());
  for (const name of named) {
    const { href } = new URL(name, `${gateway}/docs/`);
    expect((await send(href)).headers['cache-control']).toBe('public, max-age=31536000, immutable');
    expect((await send(`${href}x`)).headers['cache-control']).not.toContain('immutable');
    expect((await send(href.replace(/\?.*/, ''))).headers['cache-control']).not.toContain('immutable');
  }
});

test('a hundred people behind one address can reload the reference and still send requests without a key', async () => {
  const { gateway } = await startStack();
  const { text, headers } = await send(`${gateway}/docs/`);
  const files = ['/docs', '/docs/', ...versionedIn(text)];
  const reload = { headers: { 'if-none-match': headers.etag ?? '' } };
  for (let person = 0; person < 100; person++) {
    const answers = [
      ...files.map((file) => send(new URL(file, `${gateway}/docs/`).href)),
      send(`${gateway}/docs/`, reload),
    ];
    const statuses = (await Promise.all(answers)).map(({ status }) => status);
    expect(statuses).toEqual([308, ...Array(files.length - 1).fill(200), 304]);
  }
  expect((await send(`${gateway}/v1/pets`)).headers['x-ratelimit-remaining']).toBe('59');
});

test('an address that keeps reading the reference is refused: browsers get a page, and programs get the Error format', async () => {
  const stack = await startStack();
  const key = await stack.issueKey();
  const large = `${stack.gateway}/v1/openapi.json`;
  const agent = new Agent({ keepAlive: true, maxSockets: 100 });
  const begun = performance.now();
  const reads = await Promise.all(Array.from({ length: 2_500 }, () => send(large, { method: 'HEAD', agent })));
  agent.destroy();
  const seconds = (performance.now() - begun) / 1_000;
  const bytes = reads.filter(({ status }) => status === 200).length * Number(reads[0]?.headers['content-length']);
  // The bound is a full allowance, plus the refill during these requests, plus one answer on credit.
  expect(bytes).toBeLessThan((4_000 / 60) * (60 + seconds) * 65_536 + 2_000_000);
  // The allowance refills between requests, so another large answer first uses it up.
  const refusalFor = async (accept: string, path = '/docs/') => {
    for (;;) {
      await send(large, { method: 'HEAD' });
      const answer = await send(stack.gateway + path, { headers: { accept } });
      if (answer.status !== 200) return answer;
    }
  };
  const browser = await refusalFor('text/html,application/xhtml+xml,*/*;q=0.8');
  const program = await refusalFor('application/json');
  const description = await refusalFor('text/html', '/v1/openapi.json');
  for (const { status, headers } of [browser, program, description]) {
    expect([status, headers['x-ratelimit-limit'], headers['x-ratelimit-remaining']]).toEqual([429, '4000', '0']);
    expect(Number(headers['retry-after'])).toBeGreaterThan(0);
  }
  for (const { json } of [program, description])
    expect(json).toEqual({ code: 'rate_limit_exceeded', message: expect.any(String), status: 429 });
  expect(browser.headers).toMatchObject({ 'content-type': 'text/html; charset=utf-8', 'x-frame-options': 'DENY' });
  expect(browser.text).toMatch(/<h1>Too many requests<\/h1>[\s\S]*Try again in (a second|\d+ seconds)\./);
  await new Promise((resolve) => setTimeout(resolve, 1_000 * Number(program.headers['retry-after'])));
  expect((await send(`${stack.gateway}/docs/`)).status).toBe(200);
  expect((await send(`${stack.gateway}/v1/pets`, { key })).status).toBe(200);
  expect(stack.log.find(({ path, status }) => path === '/docs/' && status !== 200)).toMatchObject({
    status: 429,
    code: 'rate_limit_exceeded',
    outcome: 'reference',
  });
});

test('the reference shows the plan limits in force and follows their changes', async () => {
  const { url: REDIS_URL } = await emptyDatabase();
  const stack = await startStack({ REDIS_URL, REDIS_TIMEOUT_MS: '5000' });
  const page = async () => (await send(`${stack.gateway}/docs/`)).text;
  const rowOf = (text: string, plan: string) => new RegExp(`<th scope="row">${plan}</th>(.*?)</tr>`).exec(text)?.[1];
  const first = await page();
  expect(rowOf(first, 'Free')).toBe('<td>60</td><td>1,000</td><td>300</td><td>5 minutes</td>');
  expect(rowOf(first, 'Business')).toContain('<td>1,000</td><td>100,000</td>');
  expect(rowOf(first, 'Enterprise')).toContain(
    '<td>by agreement</td><td>by agreement</td><td>five times the minute limit</td><td>5 minutes</td>',
  );
  expect(first).toContain('<code>Retry-After: 87</code>');
  const { etag = '' } = (await send(`${stack.gateway}/docs/`)).headers;
  await stack.admin('PATCH', '/plans/free', { minute: 30, day: 864 });
  await expect
    .poll(async () => rowOf(await page(), 'Free'))
    .toContain('<td>30</td><td>864</td><td>150</td><td>5 minutes</td>');
  const changed = await page();
  // One token takes 60 s / 30 or 86,400 s / 864 to refill.
  expect(changed).toContain('<code>Retry-After: 2</code>');
  expect(changed).toContain('<code>Retry-After: 100</code>');
  expect((await send(`${stack.gateway}/docs/`, { headers: { 'if-none-match': etag } })).status).toBe(200);
});

test('the text on the 80 % signal says which header shows the day limit when the minute limit has fewer requests left', async () => {
  const key = await issueKey({ minute: 4, day: 5 });
  for (let sent = 0; sent < 3; sent++) await send(`${gateway}/v1/pets`, { key });
  const { headers } = await send(`${gateway}/v1/pets`, { key });
  expect([headers['x-ratelimit-limit'], headers['x-ratelimit-remaining']]).toEqual(['4', '0']);
  expect(headers.ratelimit).toContain('"day";r=1;');
  expect((await send(`${gateway}/v1/limits`, { key })).json).toMatchObject({ day: { limit: 5, remaining: 1 } });
  const [, text = ''] = (await send(`${gateway}/docs/`)).text.split('<h3 id="signal">');
  const [said = ''] = text.replaceAll(/\s+/g, ' ').split('</p>');
  expect(said).toContain('<code>r</code> of <code>"day"</code> in the <code>RateLimit</code> header');
  expect(said).toContain('<code>GET /v1/limits</code>');
  expect(said).toContain('<code>X-RateLimit-Remaining</code> shows the minute limit while that has fewer');
});

test('the figures about the line, the ban and the 80 % signal have correct text alternatives', async () => {
  const { text } = await send(`${gateway}/docs/`);
  const alternatives = [...text.matchAll(/<svg [^>]*role="img" aria-labelledby="([^"]+)">\s*<desc id="\1">([^<]+)</g)];
  const [day = '', line = '', ban = ''] = alternatives.map(([, , alternative]) => alternative);
  expect(alternatives.map(([, id]) => id)).toEqual(['figure-day', 'figure-line', 'figure-ban']);
  // The gateway behaves as the figure shows.
  const key = await issueKey({ minute: 60, day: 1_000 });
  const answers = await Promise.all(Array.from({ length: 80 }, () => send(`${gateway}/v1/pets`, { key })));
  const waits = answers.filter(({ status }) => status === 429).map(({ headers }) => Number(headers['retry-after']));
  expect(waits.length).toBeGreaterThanOrEqual(18);
  expect(waits.length).toBeLessThanOrEqual(20);
  expect(line).toContain('60 of them take all the tokens, and 20 are refused');
  expect(line).toContain(`Retry-After of 1 to 20 seconds`);
  expect(Math.max(...waits)).toBeGreaterThanOrEqual(waits.length - 1);
  expect(Math.max(...waits)).toBeLessThanOrEqual(20);
  expect(ban).toContain('after 336 seconds in all, the key is banned for 300 seconds');
  // 1,000 tokens are used up at 100 - 1,000 / 24 an hour: 800 of them in 13.7 hours, all in 17.1.
  expect(day).toMatch(/After 14 hours 80 % are used.*After 17 hours none is left/);
});
