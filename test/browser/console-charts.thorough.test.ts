import type { Locator, Page } from 'playwright-core';
import { expect, test, vi } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { openBrowser } from '../support/browser.ts';
import { launchChromium } from '../support/chromium.ts';
import { cleanUp } from '../support/clean-up.ts';
import { isShown, openConsole } from '../support/console.ts';
import { send } from '../support/http.ts';
import { startStack } from '../support/stack.ts';

// A browser is slow while other tests run.
vi.setConfig({ testTimeout: 120_000 });

const browser = await openBrowser();
const stack = await startStack();
const key = await stack.issueKey({ name: 'once' });
await send(`${stack.gateway}/v1/pets`, { key });

/** Makes each canvas record the strings that were last painted on it. */
const KEEP_TEXTS = `
  const { clearRect, fillText } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.clearRect = function (...area) {
    this.canvas.texts = [];
    return clearRect.apply(this, area);
  };
  CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
    this.canvas.texts?.push(text);
    return fillText.call(this, text, ...place);
  };
`;

async function openCharts(path: string, options: Parameters<typeof openConsole>[3] = {}) {
  const watched = await openConsole(browser, stack, path, { timezoneId: 'Etc/UTC', ...options });
  await watched.page.addInitScript(KEEP_TEXTS);
  await watched.page.reload();
  await isShown(watched.page);
  return watched;
}

const chart = (page: Page, title: string): Locator => page.locator('figure', { hasText: `${title} as a table` });
const rows = (page: Page, title: string) => chart(page, title).locator('tbody tr').count();

const canvasOf = (title: string) =>
  `[...document.querySelectorAll('figure')].find((one) => one.textContent.includes('${title} as a table')).querySelector('canvas')`;

/** The painted times, from left to right. */
async function painted(page: Page, title: string, pattern: RegExp): Promise<string[]> {
  const texts = (await page.evaluate(`${canvasOf(title)}?.texts ?? []`)) as string[];
  return texts.filter((text) => pattern.test(text));
}

/** The number of pixels of a chart that have this colour. */
const pixelsOf = (page: Page, title: string, colour: readonly number[]): Promise<number> =>
  page.evaluate(`(() => {
    const canvas = ${canvasOf(title)};
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    let count = 0;
    for (let at = 0; at < data.length; at += 4)
      if (${JSON.stringify(colour)}.every((value, part) => data[at + part] === value)) count++;
    return count;
  })()`);

const CLOCK = /^\d\d:\d\d$/;
const DATE = /^\d{1,2} [A-Z][a-z]{2}$/;
const P50 = [67, 56, 202];

/** The minutes between the first two times. */
function apart([first = '', second = '']: readonly string[]): number {
  const minutes = (time: string) => Number(time.slice(0, 2)) * 60 + Number(time.slice(3));
  return (minutes(second) - minutes(first) + 1_440) % 1_440;
}

test.for([1_280, 375])(
  'charts of a gateway that is one minute old have times on the axis, and a single sample is a dot: %d px',
  async (width) => {
    const { page, faults } = await openCharts('/', { viewport: { width, height: 800 } });
    for (const title of ['Requests per minute', 'Response time', 'Server errors per minute']) {
      await expect.poll(async () => (await painted(page, title, CLOCK)).length).toBeGreaterThanOrEqual(3);
      const times = await painted(page, title, CLOCK);
      expect(new Set(times).size).toBe(times.length);
    }
    await expect.poll(() => pixelsOf(page, 'Response time', P50)).toBeGreaterThan(15);
    expect(faults).toEqual([]);
  },
);

test('the overview covers an hour or 15 minutes', async () => {
  const { page, faults } = await openCharts('/');
  const range = page.getByRole('group', { name: 'Time range' });
  await range.getByRole('button', { name: '1 hour', pressed: true }).waitFor();
  await expect.poll(async () => apart(await painted(page, 'Requests per minute', CLOCK))).toBeGreaterThanOrEqual(5);
  await range.getByRole('button', { name: '15 minutes' }).click();
  await range.getByRole('button', { name: '15 minutes', pressed: true }).waitFor();
  await expect.poll(async () => apart(await painted(page, 'Requests per minute', CLOCK))).toBeLessThan(5);
  await page.getByText('The last 15 minutes of this gateway').waitFor();
  // The table has no rows for the time before the gateway started.
  expect(await rows(page, 'Requests per minute')).toBeLessThan(10);
  expect(faults).toEqual([]);
});

test("a key's charts cover an hour or 15 minutes, and 35 or 7 days, up to the current minute and day", async () => {
  const { page, faults } = await openCharts(`/console/key?id=${idOf(key)}`);
  const ranges = page.getByRole('group', { name: 'Time range' });
  await expect.poll(() => rows(page, 'Requests per minute')).toBe(61);
  expect(await rows(page, 'Requests per day (UTC)')).toBe(36);
  await ranges.getByRole('button', { name: '15 minutes' }).click();
  await expect.poll(() => rows(page, 'Requests per minute')).toBe(16);
  await ranges.getByRole('button', { name: '7 days' }).click();
  await expect.poll(() => rows(page, 'Requests per day (UTC)')).toBe(8);
  const days = await painted(page, 'Requests per day (UTC)', DATE);
  expect(days.length).toBeGreaterThanOrEqual(3);
  expect(new Set(days).size).toBe(days.length);
  const today = chart(page, 'Requests per day (UTC)').locator('tbody tr').first();
  expect(await today.locator('td').allTextContents()).toEqual(['1', '0']);
  expect(faults).toEqual([]);
});

test('a browser without a time zone shows times in UTC, and says so', async () => {
  const lost = await launchChromium({ TZ: 'Nonsense' });
  cleanUp(() => lost.close());
  const { page, faults } = await openConsole(lost, stack, `/console/key?id=${idOf(key)}`);
  await page.getByText('This browser reports no time zone. Times are in UTC.').waitFor();
  const created = page.locator('dt', { hasText: 'Issued' }).locator('+ dd time');
  const at = (await created.getAttribute('datetime')) ?? '';
  expect(await created.innerText()).toContain(at.slice(11, 16));
  expect(faults).toEqual([]);
});
