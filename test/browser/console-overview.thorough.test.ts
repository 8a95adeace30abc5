import type { Locator, Page } from 'playwright-core';
import { expect, test } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { shareSession } from '../support/browser.ts';
import { launchChromium } from '../support/chromium.ts';
import { cleanUp } from '../support/clean-up.ts';
import { isShown, openConsole, rowOf, visit } from '../support/console.ts';
import { send } from '../support/http.ts';
import { onRedis } from '../support/operators.ts';
import { connectionTo, ownRedis } from '../support/redis-database.ts';
import { startStack } from '../support/stack.ts';

const stack = await startStack();
await shareSession(stack.adminUrl);
const ask = (key: string) => send(`${stack.gateway}/v1/pets`, { key });

test('the overview shows the last hour after a reload, with its plan changes, and the values on hover', async () => {
  const key = await stack.issueKey({ name: 'acme', minute: 3, day: 100 });
  const banned = await stack.issueKey({ name: 'a banned one' });
  await stack.admin('PUT', `/keys/${idOf(banned)}/ban`, { seconds: 600, reason: 'for the chart' });
  for (let sent = 0; sent < 4; sent++) await ask(key);
  for (let sent = 0; sent < 2; sent++) await ask(banned);
  await stack.admin('PATCH', '/plans/free', { minute: 61, author: 'anna', reason: 'a mark' });
  const { page } = await openConsole(stack);
  for (const _ of ['as opened', 'reloaded']) {
    const tile = (name: string) => page.locator(`.tile:has(dt:text-is("${name}")) b`).innerText();
    await expect.poll(() => tile('Admitted')).toBe('3');
    expect(await tile('Refused')).toBe('1');
    expect(await tile('Refused by a ban')).toBe('2');
    await page.locator('.tile', { hasText: 'Refused by a ban' }).getByText('at most 1 key at once').waitFor();
    expect(await tile('Server errors')).toBe('0');
    expect(await tile('Response time')).toMatch(/^[\d.]+ (ms|s)$/);
    await page.getByText(/^p99 [\d.]+ m?s, at \d/).waitFor();
    await page.getByText('anna changed Free, requests per minute: 60 → 61').waitFor();
    await page.reload();
    await isShown(page);
  }
  const chart = page.locator('figure', { hasText: 'Requests per minute as a table' });
  const { width = 0 } = (await chart.locator('.u-over').boundingBox()) ?? {};
  const pointedAt = async (x: number) => {
    await chart.locator('.u-over').hover({ position: { x, y: 50 } });
    return await chart.locator('.legend').innerText();
  };
  await expect.poll(() => pointedAt(10)).toContain('Admitted –');
  // The requests were made in this minute or in the one before.
  await expect
    .poll(async () => (await pointedAt(width - 3)) + (await pointedAt(width - 20)))
    .toMatch(/Admitted 3\b[\s\S]*of 1 banned key/);
});

test('in forced colours, charts, meters and the state keep their colours, and the current choices are outlined', async () => {
  const key = await stack.issueKey({ name: 'in colours' });
  await ask(key);
  const { page } = await openConsole(stack, `/console/key?id=${idOf(key)}`, { forcedColors: 'active' });
  const styles = (property: string, places: readonly string[]) =>
    page.evaluate(`${JSON.stringify(places)}.map((place) => {
      const [element, part] = place.split('::');
      return getComputedStyle(document.querySelector(element), part).${property};
    })`);
  expect(
    await styles('backgroundColor', ['.meter', '.meter::before', '.key-of::before', '.state strong::before']),
  ).toEqual(['rgb(225, 229, 234)', 'rgb(109, 120, 232)', 'rgb(109, 120, 232)', 'rgb(15, 112, 69)']);
  expect(await styles('outlineStyle', ['[aria-pressed="true"]', 'nav [aria-current]'])).toEqual(['solid', 'solid']);
  // The bar of the one admitted request.
  await expect
    .poll(() =>
      page.evaluate(`{
        const drawn = document.querySelector('.plot canvas');
        const { data } = drawn.getContext('2d').getImageData(0, 0, drawn.width, drawn.height);
        data.some((red, at) => at % 4 === 0 && red === 109 && data[at + 1] === 120 && data[at + 2] === 232);
      }`),
    )
    .toBe(true);
});

test('the overview lists the busiest keys and those near their day limit, with links to their pages', async () => {
  const loud = await stack.issueKey({ name: 'loudest of all', minute: 50, day: 100 });
  const near = await stack.issueKey({ name: 'nearly out', day: 5 });
  for (let sent = 0; sent < 20; sent++) await ask(loud);
  for (let sent = 0; sent < 4; sent++) await ask(near);
  const { page } = await openConsole(stack);
  const first = page.getByRole('table', { name: 'Busiest keys' }).locator('tbody tr').first();
  await expect.poll(() => first.innerText()).toMatch(/loudest of all[\s\S]*20/);
  await rowOf(page, 'Near their day limit', 'nearly out').getByText('4 / 5').waitFor();
  expect(await rowOf(page, 'Near their day limit', 'loudest of all').count()).toBe(0);
  await first.getByRole('link').click();
  await page.getByRole('heading', { name: 'loudest of all' }).waitFor();
  expect(new URL(page.url()).searchParams.get('id')).toBe(idOf(loud));
});

test('lists in another order than newest first cover all keys, also if one call does not check all of them', async () => {
  const server = await ownRedis();
  const redis = connectionTo(server.url);
  const many = await startStack(onRedis(server.url));
  const old = await many.issueKey({ name: 'zoe', day: 5 });
  // The list of keys also has ids without a key. They lie between the old key and the new one.
  const place = (at: number) => Date.now() / 1_000 + at;
  const ids = Array.from({ length: 5_200 }, (_, at) => [place(10 + at), `0${String(at).padStart(11, 'x')}`]);
  await redis.zadd('gateway:keys', ...ids.flat());
  const young = await many.issueKey({ name: 'adam', day: 5 });
  await redis.zadd('gateway:keys', place(6_000), idOf(young));
  const asOften = async (key: string, times: number) => {
    for (let sent = 0; sent < times; sent++) await send(`${many.gateway}/v1/pets`, { key });
  };
  await asOften(old, 5);
  await asOften(young, 4);
  const { page } = await openConsole(many);
  const names = async (table: string) =>
    (await page.getByRole('table', { name: table }).locator('tbody .name').allInnerTexts()).join();
  await expect.poll(() => names('Busiest keys')).toBe('zoe,adam');
  await expect.poll(() => names('Near their day limit')).toBe('zoe,adam');
  for (const [query, order] of [
    ['sort=used', 'zoe,adam'],
    ['sort=name', 'adam,zoe'],
    ['sort=used&near=100', 'zoe'],
  ] as const) {
    await visit(page, `/console/keys?${query}`);
    await expect.poll(() => names('Keys')).toBe(order);
    await page.getByText('5,202 keys in all.', { exact: true }).waitFor();
    expect(await page.getByRole('button', { name: 'Older' }).count()).toBe(0);
  }
});

test('every page can be opened by its URL, and Back leads to the previous page', async () => {
  const key = await stack.issueKey({ name: 'reloaded' });
  const { page, excuse } = await openConsole(stack);
  excuse(/404/);
  const pages = [
    ['/', 'Overview'],
    ['/console/keys?name=reloaded', 'Keys'],
    [`/console/key?id=${idOf(key)}`, 'reloaded'],
    ['/console/requests?status=4xx', 'Requests'],
    ['/console/plans', 'Plans'],
    ['/console/bans', 'Bans'],
    ['/console/activity', 'Audit log'],
    ['/console/access', 'Access'],
    ['/console/health', 'Health'],
  ] as const;
  for (const [path, title] of pages) {
    await visit(page, path);
    await page.getByRole('heading', { level: 1, name: title }).waitFor();
  }
  await page.getByRole('link', { name: 'Plans' }).click();
  await page.getByRole('heading', { level: 1, name: 'Plans' }).waitFor();
  expect(new URL(page.url()).pathname).toBe('/console/plans');
  // A screen reader continues on the new page.
  expect(await page.evaluate('document.activeElement.id')).toBe('main');
  await page.goBack();
  await page.getByRole('heading', { level: 1, name: 'Health' }).waitFor();
  await visit(page, '/console/key?id=000000000000');
  await page.getByText('There is no such key').waitFor();
  await visit(page, '/console/keys/000000000000');
  await page.getByRole('heading', { level: 1, name: 'There is no such page' }).waitFor();
});

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

async function openCharts(path: string, options: Parameters<typeof openConsole>[2] = {}, of = stack) {
  const watched = await openConsole(of, path, { timezoneId: 'Etc/UTC', ...options });
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
    const young = await startStack();
    await send(`${young.gateway}/v1/pets`, { key: await young.issueKey() });
    const { page } = await openCharts('/', { viewport: { width, height: 800 } }, young);
    for (const title of ['Requests per minute', 'Response time', 'Server errors per minute']) {
      await expect.poll(async () => (await painted(page, title, CLOCK)).length).toBeGreaterThanOrEqual(3);
      const times = await painted(page, title, CLOCK);
      expect(new Set(times).size).toBe(times.length);
    }
    await expect.poll(() => pixelsOf(page, 'Response time', P50)).toBeGreaterThan(15);
  },
);

test('the overview covers an hour or 15 minutes', async () => {
  const { page } = await openCharts('/', {}, await startStack());
  const range = page.getByRole('group', { name: 'Time range' });
  await range.getByRole('button', { name: '1 hour', pressed: true }).waitFor();
  await expect.poll(async () => apart(await painted(page, 'Requests per minute', CLOCK))).toBeGreaterThanOrEqual(5);
  await range.getByRole('button', { name: '15 minutes' }).click();
  await range.getByRole('button', { name: '15 minutes', pressed: true }).waitFor();
  await expect.poll(async () => apart(await painted(page, 'Requests per minute', CLOCK))).toBeLessThan(5);
  await page.getByText('The last 15 minutes of this gateway').waitFor();
  // The table has no rows for the time before the gateway started.
  expect(await rows(page, 'Requests per minute')).toBeLessThan(10);
});

test("a key's charts cover an hour or 15 minutes, and 35 or 7 days, up to the current minute and day", async () => {
  const once = await stack.issueKey({ name: 'once' });
  await ask(once);
  const { page } = await openCharts(`/console/key?id=${idOf(once)}`);
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
});

test('a browser without a time zone shows times in UTC, and says so', async () => {
  const lost = launchChromium({ TZ: 'Nonsense' });
  cleanUp(async () => (await lost).close());
  const id = idOf(await stack.issueKey());
  const { page } = await openConsole(stack, `/console/key?id=${id}`, {}, lost);
  await page.getByText('This browser reports no time zone. Times are in UTC.').waitFor();
  const created = page.locator('dt', { hasText: 'Issued' }).locator('+ dd time');
  const at = (await created.getAttribute('datetime')) ?? '';
  expect(await created.innerText()).toContain(at.slice(11, 16));
});
