import type { Browser, Locator, Page } from 'playwright-core';
import { expect } from 'vitest';
import { type WatchedPage, watchedPage } from './browser.ts';
import { ADMIN_TOKEN, type Stack } from './stack.ts';

/** The operators' console in a browser. */

/** The page as it comes, before anybody has logged in. */
export async function visitConsole(
  browser: Browser,
  { adminUrl }: Stack,
  options: Parameters<Browser['newPage']>[0] = {},
): Promise<WatchedPage> {
  const watched = await watchedPage(browser, adminUrl, options);
  await watched.page.goto(adminUrl);
  return watched;
}

export async function logIn(page: Page, token = ADMIN_TOKEN): Promise<void> {
  await page.getByLabel('Admin token').fill(token);
  await page.getByRole('button', { name: 'Log in' }).click();
}

/** Logged in, with all that it shows there. */
export async function openConsole(...visit: Parameters<typeof visitConsole>): Promise<WatchedPage> {
  const watched = await visitConsole(...visit);
  await logIn(watched.page);
  await isShown(watched.page);
  return watched;
}

/** Returns once every section has got what it shows. */
export async function isShown(page: Page): Promise<void> {
  for (const table of ['plans', 'history', 'keys', 'bans']) await page.locator(`#${table} tbody tr`).first().waitFor();
  await expect.poll(() => page.locator('#plan-free-minute').inputValue(), { timeout: 20_000 }).not.toBe('');
  await page.locator('#state[data-state="shared"]', { hasText: 'No outage' }).waitFor();
}

/** The question that is open. */
export const question = (page: Page): Locator => page.getByRole('dialog');

/** Types limits of a plan, by field, and asks for their review. */
export async function reviewPlan(page: Page, plan: string, limits: Record<string, string>): Promise<void> {
  for (const [field, value] of Object.entries(limits)) await page.locator(`#plan-${plan}-${field}`).fill(value);
  await page.getByRole('button', { name: `Review … ${plan}` }).click();
}

/** Says who and why, and agrees. */
export async function agree(page: Page, button: string, author = 'anna', reason = 'a test'): Promise<void> {
  await question(page).getByLabel('Who are you?').fill(author);
  await question(page).getByLabel('Why?').fill(reason);
  await question(page).getByRole('button', { name: button }).click();
}

/** A row, by the name of its key, or by whatever else is in it. */
export const rowOf = (page: Page, table: 'keys' | 'bans' | 'history', text: string): Locator =>
  page.locator(`#${table} tbody tr`, { hasText: text });
