import { expect, test, vi } from 'vitest';
import { openBrowser, watchedPage } from '../support/browser.ts';
import { send } from '../support/http.ts';
import { startStack } from '../support/stack.ts';

vi.setConfig({ testTimeout: 60_000 });

const browser = await openBrowser();

test('a reload of the page asks for one file, and many reloads leave it a page', async () => {
  const stack = await startStack();
  const { page, faults } = await watchedPage(browser, stack.gateway);
  await page.goto(`${stack.gateway}/docs`);
  await page.locator('.opblock').first().waitFor();
  const asked = () => stack.log.filter(({ msg }) => msg === 'request').length;
  await expect.poll(asked).toBe(8);
  for (let reload = 1; reload <= 20; reload++) {
    await page.reload();
    await page.locator('.opblock').first().waitFor();
    await expect.poll(asked).toBe(8 + reload);
  }
  expect(faults).toEqual([]);
});

test('who is refused is told by a page when to come back', async () => {
  const stack = await startStack();
  for (let status = 200; status === 200; ) ({ status } = await send(`${stack.gateway}/docs/swagger-ui-bundle.js`));
  const { page } = await watchedPage(browser, stack.gateway);
  await expect
    .poll(async () => {
      await send(`${stack.gateway}/docs/swagger-ui-bundle.js`);
      return (await page.goto(`${stack.gateway}/docs/`))?.status();
    })
    .toBe(429);
  expect(await page.locator('h1').innerText()).toBe('Too many requests');
  expect(await page.locator('main').innerText()).toContain('Come back in a second');
});
