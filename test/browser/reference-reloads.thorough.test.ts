import { expect, test } from 'vitest';
import { openBrowser, watchedPage } from '../support/browser.ts';
import { send } from '../support/http.ts';
import { startStack } from '../support/stack.ts';

const browser = await openBrowser();

test('a reload of the API reference requests one file', async () => {
  const stack = await startStack();
  const { page, faults } = await watchedPage(browser, stack.gateway);
  await page.goto(`${stack.gateway}/docs`);
  await page.locator('.operation').first().waitFor();
  const asked = () => stack.log.filter(({ msg }) => msg === 'request').length;
  const paths = () => stack.log.filter(({ msg }) => msg === 'request').map(({ path, status }) => `${status} ${path}`);
  await expect.poll(paths).toHaveLength(6);
  for (let reload = 1; reload <= 4; reload++) {
    await page.reload();
    await page.locator('.operation').first().waitFor();
    await expect.poll(asked).toBe(6 + reload);
  }
  expect(faults).toEqual([]);
});

test('a reader over the limit gets a page that says when to retry', async () => {
  const stack = await startStack();
  const { page } = await watchedPage(browser, stack.gateway);
  const statusOf = async () => (await send(`${stack.gateway}/v1/openapi.json`, { method: 'HEAD' })).status;
  await expect
    .poll(
      async () => {
        await Promise.all(Array.from({ length: 400 }, statusOf));
        return (await page.goto(`${stack.gateway}/docs/`))?.status();
      },
      { timeout: 30_000 },
    )
    .toBe(429);
  expect(await page.locator('h1').innerText()).toBe('Too many requests');
  expect(await page.locator('main').innerText()).toMatch(/Try again in (a second|\d+ seconds)\./);
});
