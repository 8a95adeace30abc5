import { expect, test } from 'vitest';
import { post, send } from '../support/http.ts';
import { startStack } from '../support/stack.ts';

const SHOP = 'https://shop.example';
const OTHER = 'https://other.example';

const preflight = (url: string, origin: string, method = 'POST') =>
  send(url, { method: 'OPTIONS', headers: { origin, 'access-control-request-method': method } });

const EXPOSED =
  /X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, RateLimit-Policy, RateLimit, Retry-After, Link/;

test('by default no response has CORS headers, and a preflight is an ordinary request', async () => {
  const stack = await startStack();
  const key = await stack.issueKey();
  const pets = `${stack.gateway}/v1/pets`;
  const answers = [
    await send(pets, { key, headers: { origin: SHOP } }),
    await send(pets, { headers: { origin: SHOP } }),
    await preflight(pets, SHOP),
  ];
  for (const { headers } of answers) {
    expect(Object.keys(headers).filter((name) => name.startsWith('access-control-'))).toEqual([]);
    expect(headers.vary).toBeUndefined();
  }
});

const shop = await startStack({ CORS_ORIGINS: `${SHOP}, http://localhost:3000` });
const pets = `${shop.gateway}/v1/pets`;

test('a preflight is answered without a key and is not charged to the address', async () => {
  for (let asked = 0; asked < 70; asked++) {
    for (const path of ['/v1/pets', '/v1/pets/1', '/v1/limits']) {
      const { status, headers, text } = await preflight(shop.gateway + path, SHOP);
      expect([status, text]).toEqual([204, '']);
      expect(headers).toMatchObject({
        'access-control-allow-origin': SHOP,
        'access-control-allow-methods': 'GET, HEAD, POST',
        'access-control-allow-headers': expect.stringMatching(/^Authorization, Content-Type, Idempotency-Key/),
        'access-control-max-age': '7200',
        vary: 'Origin',
        'x-ratelimit-remaining': '60',
        'x-request-id': expect.any(String),
      });
    }
  }
  const local = await preflight(pets, 'http://localhost:3000');
  expect(local.headers['access-control-allow-origin']).toBe('http://localhost:3000');
});

test('every response, including refusals, is readable only from an allowed origin', async () => {
  const key = await shop.issueKey({ minute: 1_000, day: 3 });
  const from = (origin: string) => ({ key, headers: { origin } });
  const allowed = [
    await post(pets, { name: 'Rex', categoryId: 1 }, from(SHOP)),
    await send(pets, from(SHOP)),
    await send(`${pets}/99`, from(SHOP)),
    await send(pets, from(SHOP)),
    await send(`${shop.gateway}/v1/limits`, from(SHOP)),
    await send(pets, { headers: { origin: SHOP } }),
    await send(`${shop.gateway}//`, from(SHOP)),
  ];
  expect(allowed.map(({ status }) => status)).toEqual([201, 200, 404, 429, 200, 401, 400]);
  for (const { headers } of allowed) {
    expect(headers['access-control-allow-origin']).toBe(SHOP);
    expect(headers['access-control-expose-headers']).toMatch(EXPOSED);
    expect(headers.vary).toBe('Origin');
  }
  for (const given of [{ key }, from(OTHER), from('null'), from(`${SHOP}.evil.example`)]) {
    const { headers } = await send(pets, given);
    expect([headers['access-control-allow-origin'], headers.vary]).toEqual([undefined, 'Origin']);
  }
  const { headers } = await preflight(pets, OTHER);
  expect(headers['access-control-allow-methods']).toBeUndefined();
});

test('CORS_ORIGINS=* allows any origin', async () => {
  const stack = await startStack({ CORS_ORIGINS: '*' });
  const { headers } = await send(`${stack.gateway}/v1/pets`, { headers: { origin: OTHER } });
  expect([headers['access-control-allow-origin'], headers.vary]).toEqual(['*', undefined]);
  expect((await preflight(`${stack.gateway}/v1/pets`, OTHER)).status).toBe(204);
});

test('the OpenAPI description is readable from any origin, even if CORS is off', async () => {
  for (const { gateway } of [await startStack(), shop])
    for (const origin of [SHOP, OTHER]) {
      const { status, headers } = await send(`${gateway}/v1/openapi.json`, { headers: { origin } });
      expect([status, headers['access-control-allow-origin']]).toEqual([200, '*']);
    }
});

test.for(
  'shop.example https://shop.example/ https://shop.example/cart ftp://shop.example HTTPS://Shop.example'.split(' '),
)('CORS_ORIGINS=%s is refused on startup', async (origin) => {
  await expect(startStack({ CORS_ORIGINS: origin })).rejects.toThrow(
    /CORS_ORIGINS.*must be \* or origins like https:\/\/shop\.example, without a path/s,
  );
});
