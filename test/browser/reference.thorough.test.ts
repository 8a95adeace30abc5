import type { Locator, Page } from 'playwright-core';
import { expect, test, vi } from 'vitest';
import { shortcomings } from '../support/accessibility.ts';
import { openBrowser, type WatchedPage, watchedPage } from '../support/browser.ts';
import { startStack } from '../support/stack.ts';

// A browser is slow while other tests run.
vi.setConfig({ testTimeout: 120_000 });

const browser = await openBrowser();
const stack = await startStack();

async function openReference(options: Parameters<typeof browser.newPage>[0] = {}): Promise<WatchedPage> {
  const watched = await watchedPage(browser, stack.gateway, options);
  await watched.page.goto(`${stack.gateway}/docs`);
  await watched.page.locator('.opblock').first().waitFor();
  return watched;
}

async function pasteKey(page: Page, key: string): Promise<void> {
  await page.locator('.btn.authorize').click();
  await page.locator('.auth-container input').fill(key);
  await page.locator('.auth-btn-wrapper .authorize').click();
  await page.locator('.auth-btn-wrapper .btn-done').click();
}

async function openPanel(page: Page, operation: string): Promise<Locator> {
  const panel = page.locator(`.opblock[id$="-${operation}"]`);
  await panel.locator('.opblock-summary-control').click();
  await panel.locator('.try-out__btn').click();
  return panel;
}

interface Shown {
  readonly status: string;
  readonly body: string;
  readonly headers: string;
}

/** Presses the button and reads what the panel shows. */
async function execute(panel: Locator): Promise<Shown> {
  const answered = panel.page().waitForResponse((response) => response.url().includes('/v1/'));
  await panel.locator('.execute').click();
  const { 'x-request-id': id = '' } = (await answered).headers();
  const answer = panel.locator('.live-responses-table .response').first();
  await answer.locator('.headerline', { hasText: id }).waitFor();
  return {
    status: await answer.locator('.response-col_status').innerText(),
    body: await answer.locator('.response-col_description pre').first().innerText(),
    headers: (await answer.locator('.headerline').allInnerTexts()).map((line) => line.trim()).join('\n'),
  };
}

test('with a pasted key, the panels add an animal, list it and get it, and show the limits', async () => {
  const key = await stack.issueKey();
  const { page, faults } = await openReference();
  const list = await openPanel(page, 'listPets');
  const stranger = await execute(list);
  expect(stranger.status).toMatch(/^401/);
  expect(stranger.headers).toContain('www-authenticate: Bearer');
  // The browser itself logs a 401, whatever the page does with it.
  expect(faults.splice(0)).toEqual([expect.stringContaining('401')]);
  await pasteKey(page, key);

  const add = await openPanel(page, 'createPet');
  await add.locator('textarea').fill('{"name":"Rex","categoryId":3}');
  const added = await execute(add);
  expect(added.status).toMatch(/^201/);
  const { id } = JSON.parse(added.body) as { id: number };

  const listed = await execute(list);
  expect(listed.status).toMatch(/^200/);
  expect(JSON.parse(listed.body)).toEqual([{ id, name: 'Rex', categoryId: 3, status: 'available' }]);
  expect(listed.headers).toMatch(/^x-ratelimit-limit: 60$/m);
  expect(listed.headers).toMatch(/^x-ratelimit-remaining: 5[89]$/m);
  expect(listed.headers).toMatch(/^x-ratelimit-reset: \d+$/m);
  expect(listed.headers).toMatch(/^ratelimit-policy: "minute";q=60;w=60/m);

  const get = await openPanel(page, 'getPet');
  await get.locator('tr[data-param-name="petId"] input').fill(String(id));
  const got = await execute(get);
  expect(JSON.parse(got.body)).toMatchObject({ id, name: 'Rex' });
  expect(got.headers).toMatch(/^sunset: Thu, ?05 Dec 2030/m);

  expect(
    await page.evaluate('JSON.stringify([localStorage, sessionStorage, document.cookie, location.href])'),
  ).not.toContain(key);
  expect(faults).toEqual([]);
});

test('a refusal is shown with its Retry-After', async () => {
  const key = await stack.issueKey({ minute: 1, day: 100 });
  const { page } = await openReference();
  await pasteKey(page, key);
  const list = await openPanel(page, 'listPets');
  expect((await execute(list)).status).toMatch(/^200/);
  const refused = await execute(list);
  expect(refused.status).toMatch(/^429/);
  expect(JSON.parse(refused.body)).toMatchObject({ code: 'rate_limit_exceeded', status: 429 });
  expect(refused.headers).toMatch(/^retry-after: \d+$/m);
  expect(refused.headers).toContain('x-ratelimit-remaining: 0');
});

test('every operation can be tried except store orders, whose panel is disabled', async () => {
  const { page } = await openReference();
  const buttons: Record<string, number> = {};
  for (const operation of ['listPets', 'createPet', 'getPet', 'listOrders']) {
    const panel = page.locator(`.opblock[id$="-${operation}"]`);
    await panel.locator('.opblock-summary-control').click();
    await panel.locator('.responses-table').waitFor();
    buttons[operation] = await panel.locator('.try-out__btn, .execute').count();
  }
  expect(buttons).toEqual({ listPets: 1, createPet: 1, getPet: 1, listOrders: 0 });
  expect(await page.locator('.opblock-deprecated').count()).toBe(1);
  expect(await page.locator('.opblock-deprecated').innerText()).toContain('/pets/{petId}');
});

test('it fits a phone, and is readable in light and in dark colours', async () => {
  const { page, faults } = await openReference({ viewport: { width: 375, height: 800 } });
  await pasteKey(page, await stack.issueKey());
  await execute(await openPanel(page, 'listPets'));
  expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(375);
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme });
    const dark = colorScheme === 'dark';
    await expect.poll(() => colours(page)).toEqual({ textIsLight: dark, groundIsDark: dark });
  }
  expect(faults).toEqual([]);
});

/** The colours of a path in the list of operations, and of the page behind it. */
async function colours(page: Page): Promise<{ textIsLight: boolean; groundIsDark: boolean }> {
  const [text, ground] = (await page.evaluate(`[
    getComputedStyle(document.querySelector('.opblock-summary-path')).color,
    getComputedStyle(document.documentElement).backgroundColor,
  ]`)) as [string, string];
  // Unpainted areas show the light scheme's white.
  return {
    textIsLight: brightness(text) > 128,
    groundIsDark: ground !== 'rgba(0, 0, 0, 0)' && brightness(ground) < 128,
  };
}

/** The brightness of 'rgb(r, g, b)', from 0 to 255. */
function brightness(colour: string): number {
  const [red = 0, green = 0, blue = 0] = (colour.match(/[\d.]+/g) ?? []).map(Number);
  return (red + green + blue) / 3;
}

test.for([
  ['light', 1_280],
  ['dark', 1_280],
  ['light', 375],
  ['dark', 375],
] as const)('axe-core finds nothing with operations open: %s colours, %d px', async ([colorScheme, width]) => {
  const { page, faults } = await openReference({ colorScheme, viewport: { width, height: 800 } });
  for (const operation of ['listPets', 'createPet', 'getPet']) {
    const panel = page.locator(`.opblock[id$="-${operation}"]`);
    await panel.locator('.opblock-summary-control').click();
    await panel.locator('.responses-table').waitFor();
  }
  const { passed, found } = await shortcomings(page);
  expect(found).toEqual([]);
  expect(passed).toBeGreaterThan(100);
  expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(width);
  expect(faults).toEqual([]);
});

test('an opened operation is shorter than two screens, shows samples, and names only errors of its own', async () => {
  const { page } = await openReference({ viewport: { width: 1_280, height: 800 } });
  for (const operation of ['listPets', 'createPet', 'getPet', 'listOrders', 'getLimits']) {
    const panel = page.locator(`.opblock[id$="-${operation}"]`);
    await panel.locator('.opblock-summary-control').click();
    await panel.locator('.samples pre').first().waitFor();
    const { height = Number.NaN } = (await panel.boundingBox()) ?? {};
    expect([operation, height < 1_600]).toEqual([operation, true]);
    expect(await panel.locator('.samples pre').first().innerText()).toContain(`curl -i '${stack.gateway}/v1/`);
  }
  const statuses = await page
    .locator('.opblock[id$="-createPet"] .responses-table .response-col_status')
    .allInnerTexts();
  expect(statuses.filter((text) => /^\d/.test(text))).toEqual(['201', '409', '413', '415']);
});

test('the command of what was sent does not show the key', async () => {
  const key = await stack.issueKey();
  const { page } = await openReference();
  await pasteKey(page, key);
  const list = await openPanel(page, 'listPets');
  expect((await execute(list)).status).toMatch(/^200/);
  expect(await list.locator('.curl').innerText()).toContain('Bearer $KEY');
  expect(await page.locator('body').innerText()).not.toContain(key);
});
