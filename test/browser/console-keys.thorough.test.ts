import type { Page } from 'playwright-core';
import { expect, test, vi } from 'vitest';
import { expectReadable, shortcomings } from '../support/accessibility.ts';
import { idOf } from '../support/api-key.ts';
import { shareSession } from '../support/browser.ts';
import { confirm, isShown, openConsole, openRow, question, rowOf, takeKey, visit } from '../support/console.ts';
import { type Answer, send } from '../support/http.ts';
import { onRedis } from '../support/operators.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { startStack } from '../support/stack.ts';

const { url: REDIS_URL, redis } = await emptyDatabase();
const stack = await startStack(onRedis(REDIS_URL));
await shareSession(stack.adminUrl);

const ask = (key: string, requestId = 'of-no-interest'): Promise<Answer> =>
  send(`${stack.gateway}/v1/pets`, { key, headers: { 'X-Request-Id': requestId } });
const pageOf = (key: string): string => `/console/key?id=${idOf(key)}`;
const press = (page: Page, name: string) =>
  page.locator('.page-head').getByRole('button', { name, exact: true }).click();
const badge = (page: Page, state: string) => page.locator('.under-title .badge', { hasText: state }).waitFor();

test('an issued key is shown in full and can be copied; if it is not, the dialog asks once before it closes', async () => {
  const { page } = await openConsole(stack, '/console/keys', {
    permissions: ['clipboard-read', 'clipboard-write'],
  });
  const issue = async () => {
    await page.getByRole('button', { name: 'Issue a key' }).click();
    await question(page).getByLabel('Name').fill('acme');
    await question(page).getByLabel('Plan').selectOption('pro');
    await question(page).getByRole('button', { name: 'Issue' }).click();
    return await question(page).getByLabel('API key').inputValue();
  };
  const notCopied = question(page).getByText('It has not been copied, and will not be shown again.');
  const key = await issue();
  await visibleWhole(page);
  await expectReadable(page);
  await question(page).getByRole('button', { name: 'Done' }).click();
  await notCopied.waitFor();
  await visibleWhole(page);
  await question(page).getByRole('button', { name: 'Copy' }).click();
  await question(page).getByRole('button', { name: 'Copied' }).waitFor();
  expect(await page.evaluate('navigator.clipboard.readText()')).toBe(key);
  expect(await notCopied.count()).toBe(0);
  await confirm(page, 'Done');
  await isMainFocused(page);
  expect(await page.evaluate('document.documentElement.outerHTML')).not.toContain(key.slice(16));
  await page.getByRole('heading', { name: 'acme' }).waitFor();
  expect(new URL(page.url()).search).toBe(`?id=${idOf(key)}`);
  expect((await ask(key)).headers['x-ratelimit-limit']).toBe('300');
  // The key is copied by hand.
  await visit(page, '/console/keys');
  await issue();
  const shown = question(page).getByLabel('API key');
  for (const keys of ['Control+Home', 'Shift+ArrowRight', 'Shift+ArrowRight', 'Control+C']) await shown.press(keys);
  expect(await question(page).getByRole('button', { name: 'Copied' }).count()).toBe(0);
  await shown.selectText();
  await page.keyboard.press('Control+C');
  await question(page).getByRole('button', { name: 'Copied' }).waitFor();
  await page.keyboard.press('Escape');
  await question(page).waitFor({ state: 'detached' });
  // The key is not copied.
  await visit(page, '/console/keys');
  await issue();
  const asked = page.waitForEvent('dialog');
  await page.evaluate('void setTimeout(() => location.reload())');
  const leaving = await asked;
  expect(leaving.type()).toBe('beforeunload');
  await leaving.dismiss();
  // Escape must not close the dialog, because the key is shown nowhere else. It is pressed several times, because a
  // script cannot prevent every close in Chromium.
  for (let pressed = 0; pressed < 6; pressed++) {
    await page.keyboard.press('Escape');
    await question(page).getByLabel('API key').waitFor();
    await notCopied.waitFor();
  }
  await confirm(page, 'Done');
});

/** Waits until the keyboard continues at the content of the page, because the button that opened the dialog is gone. */
const isMainFocused = (page: Page) => expect.poll(() => page.evaluate('document.activeElement.id')).toBe('main');

/** Checks that the whole key is visible without scrolling, on a wide screen and on a phone. */
async function visibleWhole(page: Page): Promise<void> {
  for (const width of [1_280, 375]) {
    await page.setViewportSize({ width, height: 800 });
    const hidden = await question(page)
      .getByLabel('API key')
      .evaluate((field) => [field.scrollWidth - field.clientWidth, field.scrollHeight - field.clientHeight]);
    expect([width, hidden]).toEqual([width, [0, 0]]);
  }
}

test("a key's page changes its name, plan, limits and expiry, and sends nothing else", async () => {
  const key = await stack.issueKey({ name: 'before', plan: 'free' });
  const { page, faults } = await openConsole(stack, pageOf(key));
  await press(page, 'Edit');
  await question(page).getByLabel('Name').fill('after');
  await question(page).getByLabel('Plan').selectOption('business');
  await question(page).getByLabel('Own limit per minute').fill('7');
  const sent = page.waitForRequest((request) => request.method() === 'PATCH');
  await confirm(page, 'Save');
  expect((await sent).postDataJSON()).toEqual({ name: 'after', plan: 'business', minute: 7 });
  await page.getByRole('heading', { name: 'after' }).waitFor();
  await page.getByText('0 / 7').waitFor();

  await press(page, 'Edit');
  await question(page).getByLabel('Own limit per minute').fill('');
  await question(page).getByLabel('Expires').fill('2199-01-01T00:00');
  await confirm(page, 'Save');
  await page.getByText('0 / 1,000').waitFor();
  await page.getByText('1 Jan, ').waitFor();
  await press(page, 'Edit');
  await question(page).getByLabel('Own limit per minute').fill('many');
  await question(page).getByRole('button', { name: 'Save' }).click();
  await question(page).getByText('Own limit per minute must be a whole number').waitFor();
  expect(await question(page).getByLabel('Own limit per minute').getAttribute('aria-invalid')).toBe('true');
  expect(faults.splice(0)).toEqual([expect.stringContaining('400')]);
});

test.for([
  ['Issue a key', 'Issue'],
  ['Edit', 'Save'],
  ['Add a secret', 'Add'],
  ['Change reports', 'Save'],
] as const)('in the form %s, an expiry with only a part of a time is a fault at its field', async ([name, action]) => {
  const key = await stack.issueKey({ name: 'ends', expiresAt: '2199-01-01T00:00:00Z' });
  await stack.admin('POST', `/keys/${idOf(key)}/secrets`, { name: 'reports', expiresAt: '2199-01-01T00:00:00Z' });
  const { page } = await openConsole(stack, name === 'Issue a key' ? '/console/keys' : pageOf(key));
  await page.getByRole('button', { name }).click();
  await question(page).getByLabel('Name').fill('of the form');
  const field = question(page).getByLabel('Expires');
  // The first part is a new one if the field is empty, and is otherwise cleared.
  await field.focus();
  await page.keyboard.press((await field.inputValue()) === '' ? '1' : 'Backspace');
  await question(page).getByRole('button', { name: action }).click();
  await question(page).getByText('Enter both the date and the time, or clear the field.').waitFor();
  expect(await field.getAttribute('aria-invalid')).toBe('true');
  expect((await stack.admin('GET', `/keys/${idOf(key)}`)).json).toMatchObject({
    expiresAt: '2199-01-01T00:00:00.000Z',
    secrets: [{}, { expiresAt: '2199-01-01T00:00:00.000Z' }],
  });
  await field.fill('2199-02-02T00:00');
  await question(page).getByRole('button', { name: action }).click();
  // A failure shows what the dialog says.
  if (action === 'Save') return await expect.poll(() => question(page).allInnerTexts()).toEqual([]);
  await takeKey(page);
});

test('a key is disabled, enabled, rotated, banned, unbanned and, after confirmation, revoked', async () => {
  const old = await stack.issueKey({ name: 'zoo', plan: 'pro' });
  const { page, excuse } = await openConsole(stack, pageOf(old));
  excuse(/404/);
  await press(page, 'Disable');
  await confirm(page, 'Disable');
  await badge(page, 'Disabled');
  expect((await ask(old)).status).toBe(401);
  await press(page, 'Enable');
  await confirm(page, 'Enable');
  await badge(page, 'Active');

  await press(page, 'Rotate');
  await question(page).getByRole('button', { name: 'Rotate' }).click();
  const key = await takeKey(page);
  expect([(await ask(old)).status, (await ask(key)).status]).toEqual([200, 200]);

  await press(page, 'Ban');
  await question(page).getByLabel('For').fill('2');
  await question(page).getByLabel('Unit').selectOption('hours');
  await question(page).getByLabel('Why?').fill('scrapes everything');
  await confirm(page, 'Ban');
  await badge(page, 'Banned');
  await page.getByText('Reason: scrapes everything').waitFor();
  const wait = Number((await ask(key)).headers['retry-after']);
  expect([wait > 7_000, wait <= 7_200]).toEqual([true, true]);
  await press(page, 'Lift ban');
  await question(page).getByText('Used requests are not restored').waitFor();
  await confirm(page, 'Lift ban');
  await badge(page, 'Active');
  await vi.waitFor(async () => expect((await ask(key)).status).toBe(200), 10_000);

  await press(page, 'Revoke');
  await question(page).waitFor();
  // Pressing Enter once too often must not revoke the key.
  await page.keyboard.press('Enter');
  await question(page).waitFor({ state: 'detached' });
  expect((await ask(key)).status).toBe(200);
  await press(page, 'Revoke');
  await confirm(page, 'Revoke permanently');
  await isMainFocused(page);
  await page.getByRole('heading', { name: 'Keys', exact: true }).waitFor();
  expect((await ask(key)).status).toBe(401);
  await visit(page, pageOf(key));
  await page.getByText('There is no such key').waitFor();
});

test('adding, changing or revoking a secret of a key has no effect on its other secrets', async () => {
  const first = await stack.issueKey({ name: 'many secrets' });
  const { page } = await openConsole(stack, pageOf(first));
  await page.getByRole('button', { name: 'Add a secret' }).click();
  await question(page).getByLabel('Name').fill('reports');
  await question(page).getByLabel('Writing').uncheck();
  await question(page).getByRole('button', { name: 'Add' }).click();
  const second = await takeKey(page);
  const row = rowOf(page, 'Secrets', 'reports');
  await row.getByText('Reading', { exact: true }).waitFor();
  expect((await ask(second)).status).toBe(200);

  await row.getByRole('button', { name: 'Change reports' }).click();
  await question(page).getByLabel('Only from these networks').fill('10.0.0.0/8, 2001:db8::/32');
  await confirm(page, 'Save');
  await row.getByText('10.0.0.0/8, 2001:db8::/32').waitFor();
  expect((await ask(second)).status).toBe(401);

  await row.getByRole('button', { name: 'Revoke reports' }).click();
  await confirm(page, 'Revoke secret');
  await row.waitFor({ state: 'detached' });
  await isMainFocused(page);
  expect((await ask(first)).status).toBe(200);
});

test("a key's page lists its last requests with their reasons", async () => {
  const key = await stack.issueKey({ name: 'charted', minute: 2, day: 100 });
  for (const id of ['one', 'two', 'three']) await ask(key, id);
  await ask(await stack.issueKey(), 'of-another');
  const { page } = await openConsole(stack, pageOf(key));
  expect(await page.locator('tr.opens').count()).toBe(3);
  await openRow(page, 'Last requests', 'three');
  await openRow(page, 'Last requests', 'one');
  const [refused = '', admitted = ''] = await page.locator('.request').allInnerTexts();
  expect(refused).toContain('The key had used up its limit of 2 requests per minute.');
  expect(refused.replaceAll(/\s+/g, ' ')).toContain('Plan Free');
  expect(refused).toContain('0 of 2 requests left');
  expect(refused).toContain('98 of 100 requests left');
  expect(admitted).toContain('2 → 1 of 2 requests left');
  expect(admitted).toContain('100 → 99 of 100 requests left');
  expect(admitted).toContain('the limits shared by all gateways');
  expect(await page.locator('.request').getByRole('link', { name: 'Key charted' }).count()).toBe(0);
});

test('a key is found by its name, a part of it, its id and the whole key, and a request by its id', async () => {
  const key = await stack.issueKey({ name: 'Findable & Sons' });
  await stack.issueKey({ name: 'findings inc' });
  await ask(key, 'request-of-a-log-line');
  const { page } = await openConsole(stack);
  const sent: string[] = [];
  page.on('request', (request) => sent.push(request.url() + (request.postData() ?? '')));
  const find = async (text: string) => {
    await page.locator('#find').fill(text);
    await page.locator('#find').press('Enter');
  };
  for (const text of ['findable', idOf(key), key, `Authorization: Bearer ${key}`]) {
    await visit(page, '/');
    await find(text);
    await page.getByRole('heading', { name: 'Findable & Sons' }).waitFor();
  }
  // A key that is still being typed does not count as a key.
  await page.locator('#find').fill('');
  await page.locator('#find').pressSequentially(key);
  expect(await page.locator('#find').inputValue()).toBe(key);
  await page.locator('#find').press('Enter');
  await page.getByRole('heading', { name: 'Findable & Sons' }).waitFor();
  expect(await page.locator('#find').inputValue()).toBe(idOf(key));
  await find('request-of-a-log-line');
  await page.getByRole('heading', { name: 'Requests', exact: true }).waitFor();
  expect(new URL(page.url()).search).toBe('?q=request-of-a-log-line');
  await page.locator('.request', { hasText: 'was answered with 200' }).waitFor();
  await send(`${stack.gateway}/v1/pets`, { headers: { 'X-Request-Id': 'of-a-stranger' } });
  await find('of-a-stranger');
  await page.locator('.request', { hasText: 'The request had no API key' }).waitFor();
  await find('find');
  await page.getByRole('heading', { name: 'Keys', exact: true }).waitFor();
  await expect.poll(() => page.locator('tbody tr').count()).toBe(2);
  await find('nobody-has-this');
  await page.getByText('No key, name or recent request matches “nobody-has-this”').waitFor();
  expect(sent.join()).toContain(idOf(key));
  expect(sent.join()).not.toContain(key.slice(16));
});

test('the URL contains the filters and the page of the key list, and an empty list says so', async () => {
  for (let at = 0; at < 27; at++) await stack.issueKey({ name: `herd ${at}`, plan: 'business' });
  const { page } = await openConsole(stack, '/console/keys');
  const names = page.locator('tbody .name');
  await page.getByLabel('Name contains').fill('HERD');
  await page.getByRole('button', { name: 'Filter' }).click();
  await page.getByLabel('Plan').selectOption('business');
  await expect.poll(() => names.count()).toBe(25);
  await page.getByRole('button', { name: 'Older' }).click();
  await expect.poll(() => names.allInnerTexts()).toEqual(['herd 1', 'herd 0']);
  await page.reload();
  await isShown(page);
  await expect.poll(() => names.allInnerTexts()).toEqual(['herd 1', 'herd 0']);
  await page.goBack();
  await expect.poll(() => names.count()).toBe(25);
  await page.getByLabel('State').selectOption('banned');
  await page.getByText('No key matches these filters.').waitFor();
  await page.getByRole('link', { name: 'Clear' }).click();
  await expect.poll(() => names.count()).toBe(25);
});

test('the limits of a key are reset with a reason', async () => {
  const key = await stack.issueKey({ name: 'stuck', minute: 3, day: 50 });
  for (let sent = 0; sent < 5; sent++) await ask(key);
  await stack.admin('PUT', `/keys/${idOf(key)}/ban`, { seconds: 600, reason: 'by mistake' });
  const { page } = await openConsole(stack, pageOf(key));
  await badge(page, 'Banned');
  await press(page, 'Reset limits');
  await question(page).getByText('its requests per minute and per day are all available again').waitFor();
  await question(page).getByText('Lifting a ban alone does not restore used requests.').waitFor();
  expect((await shortcomings(page)).found).toEqual([]);
  await question(page).getByLabel('Why?').fill('their loop is fixed');
  await confirm(page, 'Reset limits');
  await page.getByText('The limits of stuck have been reset.').waitFor();
  await badge(page, 'Active');
  await page.getByText('0 / 50').waitFor();
  expect(await ask(key)).toMatchObject({ status: 200, headers: { 'x-ratelimit-remaining': '2' } });
  await visit(page, '/console/activity');
  expect(await rowOf(page, 'Audit log', idOf(key)).first().innerText()).toMatch(/Limits reset.*their loop is fixed/s);
});

test('every page shows the end of a ban, its place in the series and the number of refused requests', async () => {
  await stack.admin('PATCH', '/plans/free', { ban_after: 2, ban_grace_seconds: 0, ban_seconds: 300 });
  const key = await stack.issueKey({ name: 'loud', minute: 1 });
  for (let sent = 0; sent < 9; sent++) await ask(key);
  const { page } = await openConsole(stack);
  const line = /until (\d+ \w+, )?\d\d:\d\d \(in [45] min\), first ban, refused 6 since/;
  for (const [path, place] of [
    ['/console/keys?state=banned', rowOf(page, 'Keys', 'loud')],
    [pageOf(key), page.locator('.notice')],
    ['/console/bans', rowOf(page, 'Bans', 'loud')],
    ['/console/requests', rowOf(page, 'Requests', 'loud').first()],
    ['/console/usage', rowOf(page, 'Usage', 'loud')],
    ['/', rowOf(page, 'Busiest keys', 'loud')],
  ] as const) {
    await visit(page, path);
    for (const width of [375, 1_280]) {
      await page.setViewportSize({ width, height: 800 });
      await place.getByText(line).waitFor();
    }
  }
});

test('a page beyond the end of a list says so instead of showing an empty list', async () => {
  const { page } = await openConsole(stack, '/console/keys?offset=500');
  await page.getByText('The list ends before this page.').waitFor();
  await visit(page, '/console/bans?offset=500');
  await page.getByText('The list ends before this page.').waitFor();
});

test('the minutes of a key show how many requests its bans refused, even after they are lifted', async () => {
  await stack.admin('PATCH', '/plans/free', { ban_after: 2, ban_grace_seconds: 0, ban_seconds: 300 });
  const key = await stack.issueKey({ name: 'lifted', minute: 1 });
  for (let sent = 0; sent < 9; sent++) await ask(key);
  await stack.admin('DELETE', `/keys/${idOf(key)}/ban`);
  const { page } = await openConsole(stack, pageOf(key));
  const minutes = page.locator('figure', { hasText: 'Requests per minute as a table' });
  await minutes.locator('summary').click();
  const [head] = await minutes.locator('thead tr').allInnerTexts();
  expect(head?.split(/\s*\t\s*/)).toEqual(['Time', 'Admitted', 'Refused', 'Refused by a ban']);
  const rows = (await minutes.locator('tbody tr').allInnerTexts()).map((row) =>
    row
      .split('\t')
      .slice(1)
      .map((text) => text.trim()),
  );
  const sumOf = (column: number) => rows.reduce((sum, row) => sum + (Number(row[column]) || 0), 0);
  expect([0, 1, 2].map(sumOf)).toEqual([1, 2, 6]);
  // Nothing is known of the minutes before the gateway started.
  expect(rows.at(-1)).toEqual(['0', '0', '–']);
});

test('a key whose limit is too low for its clients is marked in the list and on its page', async () => {
  const key = await stack.issueKey({ name: 'small' });
  const [now, minute] = [Date.now() / 1_000, Math.floor(Date.now() / 60_000)];
  const marks = Array.from({ length: 15 }, (_, at) => `${minute - 15 + at}:0:${at === 0 ? 0 : 240 + 60 * at}`);
  await redis.hset(`gateway:key:{${idOf(key)}}`, {
    left: `${now} 0/60 900/1000`,
    refusals: `${now + 241} ${now + 5} 0`,
    refused: 1_140,
  });
  await redis.hset(`gateway:marks:{${idOf(key)}}`, { usage_minutes: marks.join(' ') });
  const { page } = await openConsole(stack, '/console/keys');
  const line = /limit too low for its clients: a refused request waits 4 min/i;
  await rowOf(page, 'Keys', 'small').getByText(line).waitFor();
  await visit(page, pageOf(key));
  await page.locator('.notice').getByText(line).waitFor();
  expect((await shortcomings(page)).found).toEqual([]);
});
