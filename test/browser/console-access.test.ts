import { randomUUID } from 'node:crypto';
import type { Page } from 'playwright-core';
import { expect, test, vi } from 'vitest';
import { shortcomings } from '../support/accessibility.ts';
import { idOf } from '../support/api-key.ts';
import { openBrowser } from '../support/browser.ts';
import { isShown, logIn, openConsole, question, reviewPlan, rowOf, visitConsole } from '../support/console.ts';
import { send } from '../support/http.ts';
import { ADMIN_TOKEN, startStack } from '../support/stack.ts';

// A browser beside other tests takes its time.
vi.setConfig({ testTimeout: 60_000 });

const browser = await openBrowser();
const stack = await startStack();
const HOSTILE = '<img src=x onerror="hacked=1">';

/** Everywhere that a page can leave something, apart from the tab's own session. */
const leftBehind = (page: Page): Promise<string> =>
  page.evaluate('JSON.stringify([localStorage, document.cookie, location.href, document.documentElement.outerHTML])');

test('the token is kept in the tab alone, and nothing is left of it or of any data after logging out', async () => {
  await stack.issueKey({ name: 'a customer' });
  const { page, faults } = await openConsole(browser, stack);
  expect(await leftBehind(page)).not.toContain(ADMIN_TOKEN);
  expect(await page.evaluate('Object.values(sessionStorage)')).toEqual([ADMIN_TOKEN]);
  expect(await page.getByLabel('Admin token').inputValue()).toBe('');
  await page.reload();
  await isShown(page);
  await page.getByRole('button', { name: 'Issue a key' }).click();
  // A dialog is over the button; the keyboard could not reach it either.
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: 'Log out' }).click();
  expect(await page.evaluate('sessionStorage.length')).toBe(0);
  expect(await page.locator('main').innerText()).not.toContain('a customer');
  expect(await page.locator('dialog, .console').count()).toBe(0);
  await page.reload();
  await page.getByRole('button', { name: 'Log in' }).waitFor();
  expect(faults).toEqual([]);
});

test('a wrong token is told in words, and so is the wait after ten of them', async () => {
  const other = await startStack();
  const { page, faults } = await visitConsole(browser, other);
  await logIn(page, 'wrong-token-of-the-tests');
  await page.getByText('This is not the token of this gateway.').waitFor();
  expect(await page.evaluate('sessionStorage.length')).toBe(0);
  await logIn(page, 'no header – carries this');
  await page.getByText('This is not the token of this gateway.').waitFor();
  const guesses = Array.from({ length: 9 }, () => send(`${other.adminUrl}/plans`, { key: randomUUID() }));
  expect((await Promise.all(guesses)).map(({ status }) => status)).toEqual(Array(9).fill(401));
  await logIn(page);
  await page.getByText(/^Too many wrong tokens from here\. Wait [1-6] s before the next\.$/).waitFor();
  await vi.waitFor(async () => {
    const answered = page.waitForResponse('**/plans');
    await logIn(page);
    expect((await answered).status()).toBe(200);
  }, 30_000);
  await isShown(page);
  // The browser itself notes them, as it does whatever a page makes of them.
  expect(faults.filter((fault) => !/status of (401|429)/.test(fault))).toEqual([]);
});

test('what people write is shown as text, and runs nowhere', async () => {
  const key = await stack.issueKey({ name: HOSTILE });
  await stack.admin('PATCH', '/plans/pro', { minute: 301, author: HOSTILE, reason: `${HOSTILE} again` });
  await stack.admin('PUT', `/keys/${idOf(key)}/ban`, { seconds: 600, reason: HOSTILE });
  const { page, faults } = await openConsole(browser, stack);
  for (const table of ['keys', 'bans', 'history'] as const)
    expect(await rowOf(page, table, HOSTILE).innerText()).toContain(HOSTILE);
  await page.getByRole('button', { name: `Revoke … ${HOSTILE}` }).click();
  await question(page).getByText(`Revoke ${HOSTILE}?`).waitFor();
  await page.keyboard.press('Escape');
  await rowOf(page, 'bans', HOSTILE).getByRole('button').click();
  await page.getByText(`The ban of ${HOSTILE} is lifted.`).waitFor();
  expect(await page.locator('img').count()).toBe(0);
  expect(await page.evaluate('typeof hacked')).toBe('undefined');
  expect(faults).toEqual([]);
});

test('the browser itself refuses script in the page, text that is made HTML, and requests elsewhere', async () => {
  const { page, faults } = await openConsole(browser, stack);
  const attempts = [
    'document.body.innerHTML = "<b>x</b>"',
    'document.body.setAttribute("onclick", "hacked = 1"), document.body.click()',
    'document.body.style.cssText, document.body.setAttribute("style", "color: red"), document.body.style.color',
    'fetch("http://127.0.0.1:1/").then(() => "went out")',
    'Object.assign(document.body.appendChild(document.createElement("script")), { textContent: "hacked = 1" }).outerHTML',
  ];
  for (const attempt of attempts) await page.evaluate(attempt).catch(() => {});
  expect(await page.evaluate('typeof hacked')).toBe('undefined');
  expect(await page.locator('main h2').count()).toBeGreaterThan(0);
  await vi.waitFor(() => expect(faults.length).toBeGreaterThanOrEqual(attempts.length));
  expect(faults.every((fault) => /Content Security Policy|TrustedHTML|TrustedScript/.test(fault))).toBe(true);
});

test('a plan is edited with the keyboard alone, which is seen wherever it is', async () => {
  const { page, faults } = await visitConsole(browser, stack);
  await page.getByLabel('Admin token').waitFor();
  await page.keyboard.type(ADMIN_TOKEN);
  await page.keyboard.press('Enter');
  await isShown(page);

  const place = async () => {
    const [id, outline] = (await page.evaluate(
      '[document.activeElement.id, getComputedStyle(document.activeElement).outlineStyle]',
    )) as [string, string];
    if (id !== '') expect([id, outline]).toEqual([id, 'solid']);
    return id;
  };
  for (let pressed = 0; (await place()) !== 'plan-free-day' && pressed < 20; pressed++)
    await page.keyboard.press('Tab');
  expect(await place()).toBe('plan-free-day');
  await page.keyboard.press('Control+A');
  await page.keyboard.type('2000');
  await page.keyboard.press('Enter');
  await question(page).waitFor();
  await page.keyboard.type('anna');
  await page.keyboard.press('Tab');
  await page.keyboard.type('without a mouse');
  await page.keyboard.press('Tab');
  expect(await page.evaluate('document.activeElement.textContent')).toBe('Apply');
  await page.keyboard.press('Enter');
  await rowOf(page, 'history', 'without a mouse').waitFor();
  await question(page).waitFor({ state: 'detached' });
  expect(await place()).toBe('plan-free-day');
  expect((await stack.admin('GET', '/plans')).json).toMatchObject({ free: { day: 2_000 } });
  expect(faults).toEqual([]);
});

test.for([
  { colorScheme: 'light', width: 1_200 },
  { colorScheme: 'dark', width: 1_200 },
  { colorScheme: 'light', width: 375 },
  { colorScheme: 'dark', width: 375 },
] as const)(
  'it is readable in $colorScheme at $width px, every field has a label, and nothing is cut off',
  async ({ colorScheme, width }) => {
    await stack.issueKey({ name: 'x'.repeat(100) });
    const { page } = await openConsole(browser, stack, { colorScheme, viewport: { width, height: 800 } });
    const check = async () => {
      const { texts, found } = await shortcomings(page);
      expect(found).toEqual([]);
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(width);
      return texts;
    };
    expect(await check()).toBeGreaterThan(60);
    await page.locator('#plan-pro-day').fill('none');
    await check();
    await reviewPlan(page, 'pro', { day: '123456' });
    await question(page).getByRole('button', { name: 'Apply' }).click();
    await question(page).getByText('author is required').waitFor();
    await check();
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: 'Issue a key' }).click();
    await check();
    const ground = String(await page.evaluate('getComputedStyle(document.body).backgroundColor'));
    expect(ground).toBe(colorScheme === 'dark' ? 'rgb(21, 24, 28)' : 'rgb(255, 255, 255)');
  },
);

test('nothing moves while the page is kept up to date', async () => {
  const key = await stack.issueKey({ minute: 10_000, day: 10_000 });
  // What is out of sight does not count as moved.
  const { page } = await openConsole(browser, stack, { viewport: { width: 1_200, height: 4_000 } });
  const counted = page.locator('#chart-text', { hasText: /now: [1-9]/ });
  await page.evaluate(`{
    globalThis.moved = [];
    const note = ({ node, previousRect, currentRect }) => moved.push([node?.parentElement?.outerHTML, previousRect, currentRect]);
    new PerformanceObserver((list) => list.getEntries().forEach(({ sources }) => sources.forEach(note))).observe({ type: 'layout-shift' });
  }`);
  const isSeen = counted.waitFor();
  for (let sent = 0; sent < 40; sent++) await send(`${stack.gateway}/v1/pets`, { key });
  await isSeen;
  const keys = page.locator('#keys');
  await keys.getByText(/^99\d\d \/ 10000$/).waitFor();
  await stack.admin('PATCH', `/keys/${idOf(key)}`, { day: 100_000_000 });
  await keys.getByText('/ 100000000').waitFor();
  // So that what was shown last has been painted.
  await page.evaluate('new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve, 100)))');
  expect(await page.evaluate('moved')).toEqual([]);
});
