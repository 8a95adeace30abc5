import { expect, test } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { openBrowser } from '../support/browser.ts';
import { isShown, openConsole, rowOf, visit } from '../support/console.ts';
import { send } from '../support/http.ts';
import { startStack } from '../support/stack.ts';

const browser = await openBrowser();
const stack = await startStack();
const ask = (key: string) => send(`${stack.gateway}/v1/pets`, { key });

test('the overview shows the last hour after a reload, with its plan changes, and the values on hover', async () => {
  const key = await stack.issueKey({ name: 'acme', minute: 3, day: 100 });
  const banned = await stack.issueKey({ name: 'a banned one' });
  await stack.admin('PUT', `/keys/${idOf(banned)}/ban`, { seconds: 600, reason: 'for the chart' });
  for (let sent = 0; sent < 4; sent++) await ask(key);
  for (let sent = 0; sent < 2; sent++) await ask(banned);
  await stack.admin('PATCH', '/plans/free', { minute: 61, author: 'anna', reason: 'a mark' });
  const { page, faults } = await openConsole(browser, stack);
  for (const _ of ['as opened', 'reloaded']) {
    const tile = (name: string) => page.locator(`.tile:has(dt:text-is("${name}")) b`).innerText();
    await expect.poll(() => tile('Admitted')).toBe('3');
    expect(await tile('Refused')).toBe('1');
    expect(await tile('Refused by a ban')).toBe('2');
    await page.locator('.tile', { hasText: 'Refused by a ban' }).getByText('at most 1 key at once').waitFor();
    expect(await tile('Server errors')).toBe('0');
    expect(await tile('Response time')).toMatch(/^[\d.]+ (ms|s)$/);
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
  expect(faults).toEqual([]);
});

test('the overview lists the busiest keys and those near their day limit, with links to their pages', async () => {
  const loud = await stack.issueKey({ name: 'loudest of all', minute: 50, day: 100 });
  const near = await stack.issueKey({ name: 'nearly out', day: 5 });
  for (let sent = 0; sent < 20; sent++) await ask(loud);
  for (let sent = 0; sent < 4; sent++) await ask(near);
  const { page, faults } = await openConsole(browser, stack);
  const first = page.getByRole('table', { name: 'Busiest keys' }).locator('tbody tr').first();
  await expect.poll(() => first.innerText()).toMatch(/loudest of all[\s\S]*20/);
  await rowOf(page, 'Near their day limit', 'nearly out').getByText('4 / 5').waitFor();
  expect(await rowOf(page, 'Near their day limit', 'loudest of all').count()).toBe(0);
  await first.getByRole('link').click();
  await page.getByRole('heading', { name: 'loudest of all' }).waitFor();
  expect(new URL(page.url()).searchParams.get('id')).toBe(idOf(loud));
  expect(faults).toEqual([]);
});

test('every page survives a reload, and Back leads to the previous page', async () => {
  const key = await stack.issueKey({ name: 'reloaded' });
  const { page, faults } = await openConsole(browser, stack);
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
    await page.reload();
    await isShown(page);
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
  expect(faults.filter((fault) => !fault.includes('404'))).toEqual([]);
});

test("the Health page shows the core's state and the plan values that are not in force", async () => {
  const { page, faults } = await openConsole(browser, stack, '/console/health');
  await rowOf(page, 'Checks', 'core http').getByText('Good').first().waitFor();
  await rowOf(page, 'Checks', 'plan table').getByText('every value is in force').waitFor();
  await page.getByText('1 process running').waitFor();
  await stack.admin('PATCH', '/plans/pro', { mode: 'shadow' });
  await page.getByRole('button', { name: 'Check again' }).click();
  const row = rowOf(page, 'Checks', 'pro is in shadow mode');
  await row.getByText('Warning').waitFor();
  expect(await row.locator('time').count()).toBe(1);
  expect(faults).toEqual([]);
});
