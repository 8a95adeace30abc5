import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { launchChromium } from '../support/chromium.ts';
import { ROOT } from '../support/process.ts';
import { DEMO_TOKEN, type Demo, startDemo } from './demo.ts';

/**
 * `node test/screenshots/main.ts [folder]` takes the screenshot for the README. With a folder, it takes those of every
 * page of the console and of the reference instead, in light and dark, for a wide screen and a phone.
 */

const WIDE = { width: 1_280, height: 800 };
const PHONE = { width: 375, height: 800 };

const [folder] = process.argv.slice(2);
const demo = await startDemo();
const browser = await launchChromium();
try {
  if (folder === undefined) await takeForReadme(browser, demo);
  else await takeAll(browser, demo, folder);
} finally {
  await browser.close();
  await demo.stop();
}

async function takeForReadme(browser: Browser, demo: Demo): Promise<void> {
  const page = await open(browser, demo, 'light', WIDE);
  await show(page, '/');
  await page.screenshot({ path: join(ROOT, 'gateway/operators/console/console.png') });
}

async function takeAll(browser: Browser, demo: Demo, folder: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  const [acme, wayne] = ['acme web shop', 'wayne analytics'].map((name) => demo.keys.get(name)?.id);
  const pages = {
    overview: '/',
    keys: '/console/keys',
    key: `/console/key?id=${acme}`,
    banned: `/console/key?id=${wayne}`,
    requests: '/console/requests',
    refused: `/console/requests?keyId=${wayne}&status=429`,
    plans: '/console/plans',
    bans: '/console/bans',
    usage: '/console/usage',
    activity: '/console/activity',
    access: '/console/access',
    health: '/console/health',
  };
  for (const [look, scheme, size] of [
    ['light', 'light', WIDE],
    ['dark', 'dark', WIDE],
    ['phone', 'light', PHONE],
    ['phone-dark', 'dark', PHONE],
  ] as const) {
    await takeReference(browser, demo, scheme, size, join(folder, `reference-${look}`));
    const page = await open(browser, demo, scheme, size);
    for (const [name, path] of Object.entries(pages)) {
      await show(page, path);
      await page.screenshot({ path: join(folder, `${name}-${look}.png`), fullPage: true });
    }
    await show(page, '/console/plans');
    await page.getByRole('button', { name: 'Change Pro' }).click();
    await page.getByLabel('Requests per minute').fill('15');
    await page.getByLabel('Who are you?').fill('anna');
    await page.getByRole('button', { name: 'Review' }).click();
    await page.getByText('would have refused').waitFor();
    await page.screenshot({ path: join(folder, `review-${look}.png`) });
    await page.close();
  }
}

/** The whole page of the API reference, with the limits of a key. */
async function takeReference(
  browser: Browser,
  demo: Demo,
  colorScheme: 'light' | 'dark',
  viewport: typeof WIDE,
  file: string,
): Promise<void> {
  const page = await browser.newPage({ colorScheme, viewport });
  await showReference(page, demo);
  await page.screenshot({ path: `${file}.png`, fullPage: true });
  await page.close();
}

/** The API reference with the limits of a key. */
async function showReference(page: Page, { gateway, keys }: Demo): Promise<void> {
  await page.goto(`${gateway}/docs/#your-key`);
  await page.getByLabel('API key').fill(keys.get('acme web shop')?.key ?? '');
  await page.getByRole('button', { name: 'Show limits' }).click();
  await page.getByText('acme web shop, plan Pro').waitFor();
}

/** Creates a page with the demo's clock and token. */
async function open(browser: Browser, demo: Demo, colorScheme: 'light' | 'dark', viewport: typeof WIDE): Promise<Page> {
  const page = await browser.newPage({ colorScheme, viewport, baseURL: demo.adminUrl, timezoneId: 'Etc/UTC' });
  await page.clock.setFixedTime(demo.now());
  await page.addInitScript(`sessionStorage.setItem('admin-token', '${DEMO_TOKEN}')`);
  return page;
}

/** Opens a page, and waits until all of its content has arrived. */
async function show(page: Page, path: string): Promise<void> {
  await page.goto(path);
  await page.getByRole('heading', { level: 1 }).waitFor({ timeout: 10_000 });
  while ((await page.getByText('Loading …').count()) > 0) await page.waitForTimeout(50);
  await page.waitForTimeout(500);
}
