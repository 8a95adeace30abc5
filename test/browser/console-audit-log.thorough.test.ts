import { readFile } from 'node:fs/promises';
import type { Page } from 'playwright-core';
import { expect, test } from 'vitest';
import { shortcomings } from '../support/accessibility.ts';
import { idOf } from '../support/api-key.ts';
import { shareSession } from '../support/browser.ts';
import { isShown, openConsole, openRow, rowOf, visit } from '../support/console.ts';
import { ctl } from '../support/ctl.ts';
import { send } from '../support/http.ts';
import { startStack } from '../support/stack.ts';

/** The audit log: who changed what, field by field. */

const stack = await startStack();
await shareSession(stack.adminUrl);

const LOG = '/console/activity';
const rows = (page: Page) => page.getByRole('table', { name: 'Audit log' }).locator('tbody tr');
const textsOf = async (page: Page) => (await rows(page).allInnerTexts()).map((text) => text.replaceAll(/\s+/g, ' '));
const searchOf = (page: Page) => new URL(page.url()).searchParams;

async function downloaded(page: Page): Promise<string> {
  const [file] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('button', { name: 'Download CSV' }).click(),
  ]);
  expect(file.suggestedFilename()).toBe('audit-log.csv');
  return await readFile(await file.path(), 'utf8');
}

/** A gateway whose audit log fills more than one page. */
const busy = await startStack();
for (let turn = 0; turn < 55; turn++)
  await busy.admin('PATCH', '/plans/free', { minute: 100 + turn, author: 'ada', reason: `no. ${turn}` });

test('an entry shows time, actor, target as a link, each changed field, reason and source', async () => {
  const key = await stack.issueKey({ name: 'acme', plan: 'free' });
  const expiresAt = '2090-01-02T03:04:05Z';
  const paid = { plan: 'pro', minute: 1_500, expiresAt, author: 'ada', reason: 'they have paid' };
  await stack.admin('PATCH', `/keys/${idOf(key)}`, paid);
  await ctl(stack, 'keys', 'disable', idOf(key), '--reason', 'asked for');
  await stack.admin('PATCH', '/plans/pro', { day: 12_345, author: 'eve', reason: 'launch' });
  const { page } = await openConsole(stack, '/', { timezoneId: 'Etc/UTC' });
  await page.getByRole('navigation').getByRole('link', { name: 'Audit log' }).click();
  await page.getByRole('heading', { level: 1, name: 'Audit log' }).waitFor();
  await expect.poll(() => page.title()).toMatch(/^Audit log/);
  await expect.poll(() => rows(page).count()).toBe(4);
  const id = idOf(key);
  const head = '\\d\\d:\\d\\d \\S+(?: \\S+ ago)?';
  expect(await textsOf(page)).toEqual([
    expect.stringMatching(`^${head} eve Plan changed Pro Pro, requests per day: 10,000 → 12,345 launch API$`),
    expect.stringMatching(`^${head} \\S+ Key changed acme ${id} Disabled: none → true asked for CLI$`),
    expect.stringMatching(
      `^${head} ada Key changed acme ${id} Plan: free → pro Requests per minute: none → 1,500 Expires: none → 2 Jan 2090, 03:04:05 they have paid API$`,
    ),
    expect.stringMatching(`^${head} \\S+ Key created acme ${id} Name: acme Plan: free – API$`),
  ]);
  const linkOf = (text: string, name: string) =>
    rowOf(page, 'Audit log', text).getByRole('link', { name }).getAttribute('href');
  expect(await linkOf('launch', 'Pro')).toBe('/console/plans');
  expect(await linkOf('they have paid', 'acme')).toBe(`/console/key?id=${id}`);
  expect((await shortcomings(page)).found).toEqual([]);
  // A change made in the console is recorded as such, and appears automatically.
  const second = await openConsole(stack, `/console/key?id=${id}`);
  await second.page.getByRole('button', { name: 'Enable' }).click();
  await second.page.getByRole('dialog').getByRole('button', { name: 'Enable' }).click();
  await expect
    .poll(async () => (await textsOf(page))[0], { timeout: 10_000 })
    .toMatch(/Disabled: true → none .*Console$/);
});

test('at 1280 px, a reason never wraps within a word of ordinary length', async () => {
  const key = await stack.issueKey({ name: 'international shipping', plan: 'free' });
  const reason = 'subscription upgraded';
  // Long values in one column make the others narrower.
  const tags = Object.fromEntries(['customer', 'env', 'team', 'region'].map((tag) => [tag, `${tag} of many words`]));
  const change = { plan: 'pro', minute: 1_500, tags, author: 'administrator', reason };
  await stack.admin('PATCH', `/keys/${idOf(key)}`, change);
  const { page } = await openConsole(stack, `${LOG}?target=${idOf(key)}`, {
    viewport: { width: 1280, height: 800 },
  });
  expect(await page.locator('.reason').first().innerText()).toBe(reason);
  // The cell is at least as wide as its longest word.
  const widths = await page.evaluate<[number, number]>(`(() => {
    const cell = document.querySelector('.reason');
    const { width } = cell.parentElement.getBoundingClientRect();
    cell.style.cssText = 'display: block; width: min-content; min-width: 0; overflow-wrap: normal';
    return [cell.getBoundingClientRect().width, width];
  })()`);
  expect(widths[0]).toBeGreaterThan(50);
  expect(widths[0]).toBeLessThanOrEqual(widths[1]);
  expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(1280);
});

test('a name that consists of digits is shown unchanged', async () => {
  const key = await stack.issueKey({ name: '1234567' });
  const { page } = await openConsole(stack, `${LOG}?target=${idOf(key)}`);
  expect((await textsOf(page))[0]).toContain('Name: 1234567 ');
});

test('filters are part of the URL and survive a reload and paging', async () => {
  const key = await busy.issueKey({ name: 'filtered' });
  await busy.admin('PATCH', `/keys/${idOf(key)}`, { minute: 9, author: 'ben', reason: 'why not' });
  const { page, excuse } = await openConsole(busy, LOG);
  const who = page.getByLabel('Who', { exact: true });
  const action = page.getByRole('combobox', { name: 'Action', exact: true });
  await who.fill('ada');
  await action.selectOption('Plan changed');
  await page.getByRole('button', { name: 'Filter' }).click();
  await expect.poll(async () => (await textsOf(page))[0]).toContain('no. 54');
  expect(await rows(page).count()).toBe(50);
  expect(new URL(page.url()).search).toBe('?actor=ada&action=plan.change');
  await page.getByRole('button', { name: 'Older' }).click();
  await expect.poll(() => rows(page).count()).toBe(5);
  expect(Object.fromEntries(searchOf(page))).toMatchObject({ actor: 'ada', action: 'plan.change' });
  await page.reload();
  await isShown(page);
  expect(await textsOf(page)).toEqual([4, 3, 2, 1, 0].map((at) => expect.stringContaining(`no. ${at} `)));
  expect(await who.inputValue()).toBe('ada');
  await expect.poll(() => action.inputValue()).toBe('plan.change');
  await page.getByRole('button', { name: 'Newest' }).click();
  await expect.poll(async () => (await textsOf(page))[0]).toContain('no. 54');
  expect(new URL(page.url()).search).toBe('?actor=ada&action=plan.change');

  await page.getByRole('link', { name: 'Clear' }).click();
  await expect.poll(async () => (await textsOf(page))[0]).toContain('why not');
  // Only the id of a pasted key is used.
  await page.getByLabel('Target').fill(key);
  await page.getByRole('button', { name: 'Filter' }).click();
  await expect.poll(() => rows(page).count()).toBe(2);
  expect(new URL(page.url()).search).toBe(`?target=${idOf(key)}`);
  await page.getByLabel('From', { exact: true }).fill('2199-01-01T00:00');
  await page.getByRole('button', { name: 'Filter' }).click();
  await page.getByText('No entry matches these filters.').waitFor();
  expect(searchOf(page).get('from')).toMatch(/^2(198-12-31|199-01-01)T\S+Z$/);
  await page.getByLabel('From', { exact: true }).fill('');
  await page.getByLabel('To', { exact: true }).fill('2199-01-01T00:00');
  await page.getByRole('button', { name: 'Filter' }).click();
  await expect.poll(() => rows(page).count()).toBe(2);
  excuse(/400/);
  await visit(page, `${LOG}?from=yesterday`);
  await page.getByText('from must be').waitFor();
});

test('the download contains every entry that the filters select, as ctl prints it, with formulas escaped', async () => {
  await busy.admin('PATCH', '/plans/pro', { minute: 7, author: 'ada', reason: '=1+1, "quoted"' });
  await busy.issueKey({ name: '@cmd' });
  const { page } = await openConsole(busy, `${LOG}?action=plan.change`);
  const csv = await downloaded(page);
  await page.getByText('The file has 56 entries.').waitFor();
  expect(csv).toBe((await ctl(busy, 'activity', '--action', 'plan.change', '--csv')).out);
  const [head, newest, ...others] = csv.trim().split('\r\n');
  expect(head).toBe('at,actor,action,target,via,changes,reason,requestId,token,id,targetName');
  expect(newest).toContain(`"'=1+1, ""quoted"""`);
  expect(others).toHaveLength(55);
  // It does not matter which page is shown.
  await page.getByRole('button', { name: 'Older' }).click();
  await expect.poll(() => rows(page).count()).toBe(6);
  expect(await downloaded(page)).toBe(csv);
  await visit(page, LOG);
  expect(await downloaded(page)).toBe((await ctl(busy, 'activity', '--csv')).out);
});

test('a download stops at 10,000 entries with a note, and a failed download shows the reason', async () => {
  const { page, excuse } = await openConsole(stack, LOG);
  excuse(/503/);
  const entry = { id: '1-1', at: '', actor: 'a', action: 'ban.lift', target: '0', reason: '', via: 'api', changes: [] };
  const ofDownload = ({ pathname, searchParams }: URL) =>
    pathname === '/activity' && searchParams.get('limit') !== '50';
  const asked: (string | null)[] = [];
  await page.route(ofDownload, async (route) => {
    const query = new URL(route.request().url()).searchParams;
    asked.push(query.get('after'));
    const activity = Array(Number(query.get('limit'))).fill(entry);
    await route.fulfill({ json: { activity, next: `${asked.length}-0` } });
  });
  expect((await downloaded(page)).trim().split('\r\n')).toHaveLength(1 + 10_000);
  expect(asked).toEqual([null, ...Array.from({ length: 9 }, (_, at) => `${at + 1}-0`)]);
  await page.getByText('The file has the newest 10,000 entries.').waitFor();
  await page.route(ofDownload, (route) => route.fulfill({ status: 503, json: { message: 'The log is unavailable.' } }));
  await page.getByRole('button', { name: 'Download CSV' }).click();
  await page.getByText('The download failed. The log is unavailable.').waitFor();
});

test('if one call finds too few entries, further calls fill the page', async () => {
  const { page } = await openConsole(stack, '/console/health');
  await page.route(
    ({ pathname, searchParams }) => pathname === '/activity' && !searchParams.has('after'),
    (route) => route.fulfill({ json: { activity: [], next: '9999999999999-0' } }),
  );
  await visit(page, `${LOG}?action=plan.change`);
  await expect.poll(async () => (await textsOf(page)).length).toBeGreaterThan(0);
});

test('the pages for a key and for the plans show the last 5 entries about them and link to all entries', async () => {
  const key = await stack.issueKey({ name: 'carded' });
  const id = idOf(key);
  for (let minute = 1; minute <= 6; minute++)
    await stack.admin('PATCH', `/keys/${id}`, { minute, reason: `step ${minute}` });
  for (let minute = 301; minute <= 306; minute++)
    await stack.admin('PATCH', '/plans/pro', { minute, author: 'ada', reason: `plan ${minute}` });
  const { page } = await openConsole(stack, `/console/key?id=${id}`);
  await expect.poll(() => rows(page).count()).toBe(5);
  expect(await textsOf(page)).toEqual(
    [6, 5, 4, 3, 2].map((at) =>
      expect.stringMatching(new RegExp(`Requests per minute: ${at - 1} → ${at} step ${at} API$`)),
    ),
  );
  // The page of the key does not link to itself.
  expect(await rows(page).getByRole('link').count()).toBe(0);
  await page.getByRole('region', { name: 'Audit log' }).getByRole('link', { name: 'All entries' }).click();
  await expect.poll(() => rows(page).count()).toBe(7);
  expect(new URL(page.url()).search).toBe(`?target=${id}`);

  await visit(page, '/console/plans');
  await expect.poll(() => rows(page).count()).toBe(5);
  await expect
    .poll(async () => (await textsOf(page))[0])
    .toMatch(/ada Plan changed Pro Pro, requests per minute: 305 → 306 plan 306 API$/);
  await page.getByRole('link', { name: 'All entries' }).click();
  await expect.poll(() => searchOf(page).get('action')).toBe('plan.change');
  await expect.poll(() => page.getByRole('combobox', { name: 'Action', exact: true }).inputValue()).toBe('plan.change');
});

test('a link to a deleted key leads to the audit log of its id', async () => {
  const key = await stack.issueKey({ name: 'gone' });
  const id = idOf(key);
  await stack.admin('DELETE', `/keys/${id}?reason=leaked&author=ben`);
  await send(`${stack.gateway}/v1/pets`, { key, headers: { 'X-Request-Id': 'g-unknown' } });
  const { page, excuse } = await openConsole(stack, '/console/requests');
  excuse(/404/);
  await openRow(page, 'Requests', 'g-unknown');
  await page.locator('.request').getByRole('link', { name: 'Audit log of this key id' }).click();
  await expect
    .poll(async () => (await textsOf(page))[0])
    .toMatch(/ben Key revoked gone .*Name: gone → none.* leaked API$/);
  expect(new URL(page.url()).search).toBe(`?target=${id}`);
  await visit(page, `/console/key?id=${id}`);
  await page.getByRole('link', { name: 'its entries in the audit log' }).click();
  await expect.poll(() => rows(page).count()).toBe(2);
});
