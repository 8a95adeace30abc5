import type { Page } from 'playwright-core';
import { expect, test } from 'vitest';
import { watchedPage } from '../support/browser.ts';
import { serveHttp } from '../support/http-server.ts';
import { startStack } from '../support/stack.ts';

/** A page from an origin other than the gateway's. */
async function elsewhere(): Promise<{ page: Page; origin: string }> {
  const origin = await serveHttp((_request, response) => {
    response.writeHead(200, { 'content-type': 'text/html' }).end('<!doctype html><title>Shop</title>');
  });
  const { page, excuse } = await watchedPage(origin);
  excuse(/./);
  await page.goto(origin);
  return { page, origin };
}

/** @returns what a script on the page can read, or the name of the error if the browser withholds the response */
const fetchIn = (page: Page, url: string, init: object = {}): Promise<unknown> =>
  page.evaluate(`
    fetch(${JSON.stringify(url)}, ${JSON.stringify(init)}).then(
      ({ status, headers }) => ({ status, headers: Object.fromEntries(headers) }),
      ({ name }) => name,
    )`);

const addRex = (key: string) => ({
  method: 'POST',
  headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', 'idempotency-key': 'rex' },
  body: '{"name":"Rex","categoryId":1}',
});

test('a page from an allowed origin can send requests and read its limits and refusals', async () => {
  const { page, origin } = await elsewhere();
  const stack = await startStack({ CORS_ORIGINS: origin });
  const key = await stack.issueKey({ minute: 2, day: 100 });
  const pets = `${stack.gateway}/v1/pets`;
  const headers = { authorization: `Bearer ${key}` };
  expect(await fetchIn(page, pets, addRex(key))).toMatchObject({
    status: 201,
    headers: { 'x-ratelimit-remaining': '1', 'x-ratelimit-limit': '2', ratelimit: expect.stringContaining('r=1') },
  });
  await fetchIn(page, pets, addRex(key));
  const listed = await fetchIn(page, `${pets}?limit=1`, { headers });
  expect(listed).toMatchObject({ status: 429, headers: { 'retry-after': expect.stringMatching(/^\d+$/) } });
  expect(await fetchIn(page, pets)).toMatchObject({ status: 401 });
  expect(await fetchIn(page, `${stack.gateway}/v1/limits`, { headers })).toMatchObject({ status: 200 });
});

test('a page from any other origin can read only the OpenAPI description', async () => {
  const { page } = await elsewhere();
  for (const environment of [{}, { CORS_ORIGINS: 'https://shop.example' }]) {
    const stack = await startStack(environment);
    const key = await stack.issueKey();
    expect(await fetchIn(page, `${stack.gateway}/v1/pets`)).toBe('TypeError');
    expect(await fetchIn(page, `${stack.gateway}/v1/pets`, addRex(key))).toBe('TypeError');
    expect(await fetchIn(page, `${stack.gateway}/v1/openapi.json`)).toMatchObject({ status: 200 });
    // The preflight was refused: no request was sent with the key.
    expect(stack.log.filter(({ keyId }) => keyId !== undefined)).toEqual([]);
  }
});
