import { randomUUID } from 'node:crypto';
import type { Page } from 'playwright-core';
import { expect, test, vi } from 'vitest';
import { expectGrounds, expectReadable } from '../support/accessibility.ts';
import { activityOf } from '../support/activity.ts';
import { idOf } from '../support/api-key.ts';
import { shareSession } from '../support/browser.ts';
import {
  confirm,
  isShown,
  logIn,
  openConsole,
  openRow,
  question,
  reviewPlan,
  rowOf,
  visit,
  visitConsole,
} from '../support/console.ts';
import { send } from '../support/http.ts';
import { ADMIN_TOKEN, startStack } from '../support/stack.ts';

const stack = await startStack();
await shareSession(stack.adminUrl);
const HOSTILE = '<img src=x onerror="hacked=1">';

/** Every place where a page can leave data, apart from the tab's own session. */
const leftBehind = (page: Page): Promise<string> =>
  page.evaluate('JSON.stringify([localStorage, document.cookie, location.href, document.documentElement.outerHTML])');

test('the token is kept only in the browser tab, and logging out removes it and all data', async () => {
  await stack.issueKey({ name: 'a customer' });
  const { page } = await visitConsole(stack, '/console/keys');
  await page.getByLabel('Your name').fill('anna');
  await logIn(page);
  await isShown(page);
  expect(await leftBehind(page)).not.toContain(ADMIN_TOKEN);
  expect(await page.evaluate('Object.entries(sessionStorage).sort()')).toEqual([
    ['admin-token', ADMIN_TOKEN],
    ['author', 'anna'],
  ]);
  await page.reload();
  await isShown(page);
  await page.getByRole('button', { name: 'Issue a key' }).click();
  await page.getByRole('dialog').waitFor();
  // A dialog covers the button. The keyboard cannot reach it either.
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByText('You are logged out.').waitFor();
  expect(await page.evaluate('sessionStorage.length')).toBe(0);
  expect(await page.locator('body').innerText()).not.toContain('a customer');
  expect(await page.locator('dialog, .console').count()).toBe(0);
  await page.reload();
  await page.getByRole('button', { name: 'Log in' }).waitFor();
});

test('an operator who gave no name at login is asked for it by the first change', async () => {
  const key = idOf(await stack.issueKey({ name: 'a customer' }));
  const { page } = await visitConsole(stack, `/console/key?id=${key}`);
  await logIn(page);
  await isShown(page);
  await page.getByRole('button', { name: 'Disable' }).click();
  await question(page).getByRole('button', { name: 'Disable' }).click();
  await question(page).getByText('Your name is required.').waitFor();
  await question(page).getByLabel('Who are you?').fill('anna');
  await question(page).getByRole('button', { name: 'Disable' }).click();
  await page.getByRole('button', { name: 'Enable' }).click();
  expect(await question(page).getByLabel('Who are you?').count()).toBe(0);
  await question(page).getByRole('button', { name: 'Enable' }).click();
  await page.getByRole('button', { name: 'Disable' }).waitFor();
  const [enabled, disabled] = await activityOf(stack, `?target=${key}&limit=2`);
  expect([enabled?.actor, disabled?.actor]).toEqual(['anna', 'anna']);
});

test('no form cuts what was typed: too long a text is refused by name, and a number is read as a whole', async () => {
  const key = await stack.issueKey({ name: 'whole' });
  const { page, excuse } = await visitConsole(stack, `/console/key?id=${idOf(key)}`);
  excuse(/400/);
  await page.getByLabel('Your name').fill('a'.repeat(101));
  await logIn(page);
  await page.getByText('Your name must have at most 100 characters.').waitFor();
  await page.getByLabel('Your name').fill('anna');
  await logIn(page);
  await isShown(page);
  const edit = () => page.locator('.page-head').getByRole('button', { name: 'Edit' }).click();
  const save = () => question(page).getByRole('button', { name: 'Save' }).click();
  const paste = async (label: string, text: string) => {
    await question(page).getByLabel(label).focus();
    await page.keyboard.press('Control+A');
    // Unlike `fill`, this respects maxlength, as pasting does.
    await page.keyboard.insertText(text);
  };
  const saved = async () => (await stack.admin('GET', `/keys/${idOf(key)}`)).json;
  await edit();
  await paste('Name', 'n'.repeat(101));
  await paste('Why?', 'w'.repeat(501));
  await paste('Own limit per minute', `${' '.repeat(9)}120`);
  await paste('Own limit per day', '12345678901');
  await save();
  await question(page).getByText('Name must have at most 100 characters.').waitFor();
  await question(page).getByText('Why? must have at most 500 characters.').waitFor();
  await paste('Name', 'n'.repeat(100));
  await paste('Why?', 'w'.repeat(500));
  await save();
  await question(page).getByText('Own limit per day must be a whole number from 1 to 1000000000.').waitFor();
  expect(await saved()).toMatchObject({ name: 'whole' });
  for (const bad of ['1,00', '1.000', '1 000', ',100', '1,000,']) {
    await paste('Own limit per day', bad);
    await save();
    await question(page).getByText('Own limit per day must be a whole number').waitFor();
  }
  await paste('Own limit per day', '1,234,567');
  await confirm(page, 'Save');
  expect(await saved()).toMatchObject({ name: 'n'.repeat(100), minute: 120, day: 1_234_567 });
  await visit(page, '/console/plans');
  await reviewPlan(page, 'Pro', { 'Requests per minute': ' 1,000 ' });
  await question(page).getByText('Requests per minute: 300 → 1,000').waitFor();
});

test('a reload asks first while a dialog holds something that was typed', async () => {
  const { page } = await openConsole(stack, `/console/key?id=${idOf(await stack.issueKey())}`);
  const expectReload = async (isAsked: boolean) => {
    let asked = false;
    page.once('dialog', (leaving) => {
      asked = true;
      void leaving.dismiss();
    });
    const loaded = isAsked ? undefined : page.waitForEvent('load');
    await page.evaluate('setTimeout(() => location.reload())');
    if (isAsked) return await expect.poll(() => asked).toBe(true);
    await loaded;
    page.removeAllListeners('dialog');
    expect(asked).toBe(false);
    await isShown(page);
  };
  const open = (name: string) => page.getByRole('button', { name, exact: true }).click();
  for (const [button, label] of [
    ['Edit', 'Own limit per day'],
    ['Ban', 'Why?'],
    ['Add a secret', 'Name'],
  ] as const) {
    await open(button);
    // The browser asks only after something was pressed on the page.
    await question(page).getByLabel(label).click();
    await expectReload(false);
    await open(button);
    await question(page).getByLabel(label).fill('5');
    await expectReload(true);
    await confirm(page, 'Cancel');
  }
  await open('Ban');
  await question(page).getByLabel('Unit').selectOption('days');
  await expectReload(true);
  await confirm(page, 'Cancel');
  await open('Add a secret');
  await question(page).getByLabel('Writing').uncheck();
  await expectReload(true);
  await visit(page, '/console/plans');
  await reviewPlan(page, 'Pro', { 'Requests per minute': '301' });
  await question(page).getByText('300 → 301').waitFor();
  await expectReload(true);
});

test('the dialogs of bans, rotations and secrets say what is true, and quote the names of secrets', async () => {
  const key = await stack.issueKey({ name: 'only0' });
  const { page, excuse } = await openConsole(stack, `/console/key?id=${idOf(key)}`, {
    timezoneId: 'America/Los_Angeles',
  });
  excuse(/400/);
  const open = (name: string) => page.getByRole('button', { name, exact: true }).click();
  const isSaid = (text: string) => question(page).getByText(text, { exact: true }).waitFor();
  await open('Revoke first');
  await isSaid('Revoke the secret “first”?');
  await isSaid('This is the only working secret of only0. Add another one first, or revoke the key.');
  await confirm(page, 'Cancel');
  await open('Change first');
  await isSaid('Change the secret “first”');
  await confirm(page, 'Cancel');
  await open('Edit');
  await question(page).getByLabel('Expires').fill('9999-12-31T23:59');
  await question(page).getByRole('button', { name: 'Save' }).click();
  await isSaid('Expires must be between 1970 and 2255.');
  await confirm(page, 'Cancel');
  await open('Ban');
  await question(page).getByLabel('For').fill('367');
  await question(page).getByLabel('Unit').selectOption('days');
  await question(page).getByRole('button', { name: 'Ban' }).click();
  await isSaid('For must be a whole number from 1, and at most 366 days.');
  await confirm(page, 'Cancel');
  await open('Rotate');
  await question(page).getByLabel('Grace period').fill('91 days');
  await question(page).getByRole('button', { name: 'Rotate' }).click();
  await isSaid('Grace period must be a whole number from 0, and at most 90 days.');
  await confirm(page, 'Cancel');
  await stack.admin('POST', `/keys/${idOf(key)}/secrets`, { name: 'second' });
  await rowOf(page, 'Secrets', 'second').waitFor();
  await open('Revoke first');
  await isSaid('Requests with this secret will be refused. The other secrets of only0 keep working.');
  await confirm(page, 'Revoke secret');
  await page.getByText('The secret “first” has been revoked.').waitFor();
});

test('the login page explains a wrong token, and the wait after ten wrong ones', async () => {
  const other = await startStack();
  const { page, excuse } = await visitConsole(other);
  excuse(/status of (401|429)/);
  await logIn(page, 'wrong-token-of-the-tests');
  await page.getByText('This gateway does not accept this token.').waitFor();
  expect(await page.evaluate('sessionStorage.length')).toBe(0);
  await logIn(page, 'no header – carries this');
  await page.getByText('This gateway does not accept this token.').waitFor();
  const guesses = Array.from({ length: 9 }, () => send(`${other.adminUrl}/plans`, { key: randomUUID() }));
  expect((await Promise.all(guesses)).map(({ status }) => status)).toEqual(Array(9).fill(401));
  await logIn(page);
  await page.getByText(/^Too many wrong tokens from this address\. Wait [1-6] s before the next attempt\.$/).waitFor();
  await vi.waitFor(async () => {
    const answered = page.waitForResponse('**/plans');
    await logIn(page);
    expect((await answered).status()).toBe(200);
  }, 30_000);
  await isShown(page);
});

test('text entered by people is shown as text and never executed', async () => {
  const key = await stack.issueKey({ name: HOSTILE });
  await stack.admin('PATCH', '/plans/pro', { minute: 301, author: HOSTILE, reason: `${HOSTILE} again` });
  await stack.admin('PUT', `/keys/${idOf(key)}/ban`, { seconds: 600, reason: HOSTILE });
  const { page, excuse } = await openConsole(stack);
  excuse(/404/);
  for (const [path, table] of [
    ['/console/keys', 'Keys'],
    ['/console/plans', 'Changes'],
    ['/console/bans', 'Bans'],
  ] as const) {
    await visit(page, path);
    expect(await rowOf(page, table, HOSTILE).innerText()).toContain(HOSTILE);
  }
  await rowOf(page, 'Bans', HOSTILE).getByRole('button').click();
  await question(page).getByText(`Lift the ban on ${HOSTILE}?`).waitFor();
  await confirm(page, 'Lift ban');
  await page.getByText(`The ban on ${HOSTILE} has been lifted.`).waitFor();
  await visit(page, `/console/key?id=${idOf(key)}`);
  await page.getByRole('button', { name: 'Revoke', exact: true }).click();
  await question(page).getByText(`Revoke ${HOSTILE}?`).waitFor();
  await confirm(page, 'Cancel');
  await visit(page, `/console/keys?find=${encodeURIComponent(HOSTILE)}`);
  await visit(page, `/console/key?id=${encodeURIComponent(HOSTILE)}`);
  await page.getByText(HOSTILE).waitFor();
  expect(await page.locator('img').count()).toBe(0);
  expect(await page.evaluate('typeof hacked')).toBe('undefined');
});

test('the browser blocks inline scripts, text used as HTML, and requests to other hosts', async () => {
  const { page, faults } = await openConsole(stack);
  const attempts = [
    'document.body.innerHTML = "<b>x</b>"',
    'document.body.setAttribute("onclick", "hacked = 1"), document.body.click()',
    'document.body.setAttribute("style", "color: red"), document.body.style.color',
    'fetch("http://127.0.0.1:1/").then(() => "went out")',
    'Object.assign(document.body.appendChild(document.createElement("script")), { textContent: "hacked = 1" }).outerHTML',
  ];
  for (const attempt of attempts) await page.evaluate(attempt).catch(() => {});
  expect(await page.evaluate('typeof hacked')).toBe('undefined');
  expect(await page.locator('main h2').count()).toBeGreaterThan(0);
  await vi.waitFor(() => expect(faults.length).toBeGreaterThanOrEqual(attempts.length));
  const isBlocked = (fault: string) => /Content Security Policy|TrustedHTML|TrustedScript/.test(fault);
  expect(faults.splice(0).filter((fault) => !isBlocked(fault))).toEqual([]);
});

const long = await stack.issueKey({ name: 'x'.repeat(100), minute: 2, day: 2 });
for (let sent = 0; sent < 3; sent++) await send(`${stack.gateway}/v1/pets`, { key: long });
await stack.admin('PUT', `/keys/${idOf(long)}/ban`, { seconds: 600, reason: 'y'.repeat(100) });
await stack.admin('PATCH', '/plans/pro', { day: 10_002, author: 'z'.repeat(100), reason: 'why' });

test('every page is readable in each theme, every field has a label, and nothing is cut off', async () => {
  const { page } = await openConsole(stack);
  expect(await expectReadable(page)).toBeGreaterThan(150);
  const [keys, ofKey] = ['keys', `key?id=${idOf(long)}`];
  for (const path of [keys, ofKey, 'requests', 'bans', 'usage', 'activity', 'access', 'health', 'plans']) {
    await visit(page, `/console/${path}`);
    await expectReadable(page);
  }
});

test('expanded rows, filtered lists and forms are readable in each theme, and nothing is cut off', async () => {
  const { page } = await openConsole(stack, `/console/requests?keyId=${idOf(long)}`);
  await openRow(page, 'Requests', 'Refused');
  await expectReadable(page);
  await visit(page, `/console/activity?target=${idOf(long)}&action=ban.set`);
  await expectReadable(page);
  await visit(page, '/console/plans');
  await page.getByRole('button', { name: 'Change Pro' }).click();
  await question(page).getByLabel('Requests per day').fill('none');
  await question(page).getByRole('button', { name: 'Review' }).click();
  await question(page).getByText('A whole number').waitFor();
  await expectReadable(page);
  await confirm(page, 'Cancel');
  await reviewPlan(page, 'Pro', { 'Requests per day': '123456' });
  await question(page).getByText('In the last hour').waitFor();
  await question(page).getByRole('button', { name: 'Apply' }).click();
  await question(page).getByText('A reason is required.').waitFor();
  await expectReadable(page);
  await expectGrounds(page, 'body', { dark: 'rgb(15, 18, 23)', light: 'rgb(246, 247, 249)' });
});

test('no element moves while the page updates', async () => {
  const key = await stack.issueKey({ name: 'steady', minute: 10_000, day: 10_000 });
  await send(`${stack.gateway}/v1/pets`, { key });
  // Content outside the viewport does not count as moved.
  const { page } = await openConsole(stack, `/console/key?id=${idOf(key)}`, {
    viewport: { width: 1_200, height: 4_000 },
  });
  await page.locator('canvas').nth(1).waitFor();
  await page.evaluate(`{
    globalThis.moved = [];
    const note = ({ node, previousRect, currentRect }) => moved.push([node?.parentElement?.outerHTML, previousRect, currentRect]);
    new PerformanceObserver((list) => list.getEntries().forEach(({ sources }) => sources.forEach(note))).observe({ type: 'layout-shift' });
  }`);
  for (let sent = 0; sent < 5; sent++) await send(`${stack.gateway}/v1/pets`, { key });
  await page.getByText('6 / 10,000').first().waitFor();
  // Ensures that the last state has been painted.
  await page.evaluate('new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve, 100)))');
  const places = (await page.evaluate('moved')) as unknown[];
  // New decisions appear at the top of their table; nothing else may move.
  expect(
    places.filter(
      (place) => !JSON.stringify(place).includes('requestId') && !/<tr|<tbody/.test(String((place as string[])[0])),
    ),
  ).toEqual([]);
});
