import type { Locator, Page } from 'playwright-core';
import { expect } from 'vitest';
import { type WatchedPage, watchedPage } from './browser.ts';
import { ADMIN_TOKEN, type Stack } from './stack.ts';

/** The operators' console in a browser. */

/** Opens a page of the console without logging in. */
export async function visitConsole(
  { adminUrl }: Pick<Stack, 'adminUrl'>,
  path = '/',
  ...session: Parameters<typeof watchedPage> extends [unknown, ...infer Session] ? Session : never
): Promise<WatchedPage> {
  const watched = await watchedPage(adminUrl, ...session);
  await watched.page.goto(path);
  return watched;
}

export async function logIn(page: Page, token = ADMIN_TOKEN): Promise<void> {
  await page.getByLabel('Admin token').fill(token);
  await page.getByRole('button', { name: 'Log in' }).click();
}

/** Opens a page, logs in with a name, and waits for all content. */
export async function openConsole(...visit: Parameters<typeof visitConsole>): Promise<WatchedPage> {
  const watched = await visitConsole(...visit);
  await watched.page.getByLabel('Your name').fill('a tester');
  await logIn(watched.page);
  await isShown(watched.page);
  return watched;
}

/** Opens another page of the console by its URL, like a link from a colleague. */
export async function visit(page: Page, path: string): Promise<void> {
  await page.goto(path);
  await isShown(page);
}

/** Resolves once every part of the page has its content. */
export async function isShown(page: Page): Promise<void> {
  // The heading of the login page is not in #main.
  await page.locator('#main h1').waitFor();
  await expect.poll(() => page.getByText('Loading …').count()).toBe(0);
}

/** The open dialog. */
export const question = (page: Page): Locator => page.getByRole('dialog');

/** Enters values of a plan by the labels of their fields, and opens the review. */
export async function reviewPlan(page: Page, plan: string, values: Record<string, string>): Promise<void> {
  await page.getByRole('button', { name: `Change ${plan}` }).click();
  for (const [label, value] of Object.entries(values)) {
    const field = question(page).getByLabel(label);
    await field.waitFor();
    if ((await field.locator('option').count()) > 0) await field.selectOption(value);
    else await field.fill(value);
  }
  await question(page).getByRole('button', { name: 'Review' }).click();
}

/** Enters author and reason, and confirms. */
export async function agree(page: Page, button: string, author = 'anna', reason = 'a test'): Promise<void> {
  await question(page).getByLabel('Who are you?').fill(author);
  await question(page).getByLabel('Why?').fill(reason);
  await question(page).getByRole('button', { name: button }).click();
}

/** Presses the button that confirms the open dialog, and waits until it has closed. */
export async function confirm(page: Page, button: string): Promise<void> {
  await question(page).getByRole('button', { name: button, exact: true }).click();
  await question(page).waitFor({ state: 'detached' });
}

/** Reads the whole key from the only dialog that shows it, and closes the dialog. */
export async function takeKey(page: Page): Promise<string> {
  const key = await question(page).getByLabel('API key').inputValue();
  const done = question(page).getByRole('button', { name: 'Done' });
  await done.click();
  // The key was not copied, so the dialog asks for confirmation.
  await question(page).getByText('Press Done once more').waitFor();
  await done.click();
  await question(page).waitFor({ state: 'detached' });
  return key;
}

/** A row of a table, by the table's name and some text in the row. */
export const rowOf = (page: Page, table: string, text: string): Locator =>
  page.getByRole('table', { name: table, exact: true }).locator('tbody tr', { hasText: text });

/** Expands a row. */
export const openRow = (page: Page, table: string, text: string): Promise<void> =>
  rowOf(page, table, text).first().locator('[aria-expanded="false"]').click();
