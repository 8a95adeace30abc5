import type { Page } from 'playwright-core';
import { expect, test, vi } from 'vitest';
import { fieldsOf, PLAN_MODES, PLAN_NAMES } from '../../gateway/access/plans.ts';
import { idOf } from '../support/api-key.ts';
import { openBrowser } from '../support/browser.ts';
import { agree, openConsole, question, reviewPlan, rowOf } from '../support/console.ts';
import { type Answer, send } from '../support/http.ts';
import { startStack } from '../support/stack.ts';

// A browser beside other tests takes its time.
vi.setConfig({ testTimeout: 60_000 });
const PATIENCE = { timeout: 30_000 };

const browser = await openBrowser();
const stack = await startStack();

const ask = (key: string): Promise<Answer> => send(`${stack.gateway}/v1/pets`, { key });
const codeOf = ({ json }: Answer): string | undefined => (json as { code?: string }).code;

/** Issues a key on the page, and takes it from where it is shown this once. */
async function issue(page: Page, name: string, plan = 'free'): Promise<string> {
  await page.getByRole('button', { name: 'Issue a key' }).click();
  await question(page).getByLabel('Name').fill(name);
  await question(page).getByLabel('Plan').selectOption(plan);
  await question(page).getByRole('button', { name: 'Issue' }).click();
  const key = await question(page).getByLabel('API key').inputValue();
  await question(page).getByRole('button', { name: 'Done' }).click();
  return key;
}

test('an operator edits a plan, issues a key, sees it banned, lifts the ban, and takes the edit back', async () => {
  const { page, faults } = await openConsole(browser, stack, { permissions: ['clipboard-read', 'clipboard-write'] });

  await reviewPlan(page, 'free', { minute: '3', ban_after: '2' });
  expect(await question(page).getByRole('listitem').allInnerTexts()).toEqual(['minute: 60 → 3', 'ban_after: 60 → 2']);
  await agree(page, 'Apply', 'anna', 'too many of them');
  await question(page).waitFor({ state: 'detached' });
  await rowOf(page, 'history', 'too many of them').waitFor();
  expect((await stack.admin('GET', '/plans')).json).toMatchObject({ free: { minute: 3, day: 1_000, ban_after: 2 } });

  await page.getByRole('button', { name: 'Issue a key' }).click();
  await question(page).getByLabel('Name').fill('acme');
  await question(page).getByRole('button', { name: 'Issue' }).click();
  const key = await question(page).getByLabel('API key').inputValue();
  await page.keyboard.press('Escape');
  await question(page).getByRole('button', { name: 'Copy' }).click();
  await question(page).getByText('Copied.').waitFor();
  expect(await page.evaluate('navigator.clipboard.readText()')).toBe(key);
  await question(page).getByRole('button', { name: 'Done' }).click();
  // A dialog goes when the browser says that it was closed, which is a turn later.
  await expect.poll(() => page.evaluate('document.documentElement.outerHTML')).not.toContain(key.slice(16));

  expect((await ask(key)).headers['x-ratelimit-limit']).toBe('3');
  await rowOf(page, 'keys', 'acme').getByText('2 / 3').waitFor();
  await vi.waitFor(async () => expect(codeOf(await ask(key))).toBe('key_banned'), PATIENCE);
  await rowOf(page, 'keys', 'acme').getByText('banned').waitFor();
  await page
    .locator('#rates [data-outcome="banned"] dd', { hasText: /[1-9]/ })
    .or(page.locator('#chart-text', { hasText: /these two minutes: .*, [^,]*[1-9][^,]*\.$/ }))
    .first()
    .waitFor();

  const ban = rowOf(page, 'bans', 'acme');
  await ban.getByRole('button', { name: 'Lift' }).click();
  await page.getByText('The ban of acme is lifted.').waitFor();
  await ban.waitFor({ state: 'detached' });
  await vi.waitFor(async () => expect(codeOf(await ask(key))).not.toBe('key_banned'), PATIENCE);

  await page.getByRole('button', { name: 'Roll back' }).click();
  expect(await question(page).getByRole('listitem').allInnerTexts()).toEqual(
    ['minute: 3 → 60', 'ban_after: 2 → 60'].map((line) => `free.${line}`),
  );
  await question(page).getByRole('button', { name: 'Roll back' }).click();
  await rowOf(page, 'history', 'takes back').waitFor();
  // Asked sooner than this, it would only be banned again.
  await rowOf(page, 'keys', 'acme')
    .getByText(/^[1-9]\d* \/ 60$/)
    .waitFor();
  expect((await ask(key)).status).toBe(200);
  await expect.poll(() => page.locator('#plan-free-minute').inputValue()).toBe('60');
  expect(faults).toEqual([]);
});

test('a conflict of two editors is told, with what is in force now, and what was typed stays', async () => {
  const [one, other] = [await openConsole(browser, stack), await openConsole(browser, stack)];
  await reviewPlan(one.page, 'business', { minute: '2000' });
  await reviewPlan(other.page, 'business', { minute: '3000' });
  await agree(one.page, 'Apply', 'anna');
  await question(one.page).waitFor({ state: 'detached' });

  const line = question(other.page).getByRole('listitem');
  expect(await line.innerText()).toBe('minute: 1000 → 3000');
  await agree(other.page, 'Apply', 'ben');
  await question(other.page).getByRole('alert').getByText('changed meanwhile').waitFor();
  expect(await line.innerText()).toBe('minute: 2000 → 3000');
  expect((await stack.admin('GET', '/plans')).json).toMatchObject({ business: { minute: 2_000 } });

  await question(other.page).getByRole('button', { name: 'Apply' }).click();
  await question(other.page).waitFor({ state: 'detached' });
  expect((await stack.admin('GET', '/plans')).json).toMatchObject({ business: { minute: 3_000 } });
  await expect.poll(() => one.page.locator('#plan-business-minute').inputValue()).toBe('3000');
  expect(one.faults).toEqual([]);
  // The browser itself notes a 409, as it does whatever a page makes of it.
  expect(other.faults).toEqual([expect.stringContaining('409')]);
});

test('a plan is put into shadow mode, and enforced again', async () => {
  const { page, faults } = await openConsole(browser, stack);
  const key = await stack.issueKey({ plan: 'pro', minute: 1, day: 1 });
  await ask(key);
  expect((await ask(key)).status).toBe(429);
  for (const [mode, other, status] of [
    ['shadow', 'enforce', 200],
    ['enforce', 'shadow', 429],
  ] as const) {
    await page.getByLabel('pro: Mode').selectOption(mode);
    await page.getByRole('button', { name: 'Review … pro' }).click();
    expect(await question(page).getByRole('listitem').allInnerTexts()).toEqual([`mode: ${other} → ${mode}`]);
    await agree(page, 'Apply');
    await question(page).waitFor({ state: 'detached' });
    expect((await ask(key)).status).toBe(status);
  }
  expect(faults).toEqual([]);
});

test('every plan is there, with every field that the gateway has for it', async () => {
  const { page } = await openConsole(browser, stack);
  const shown = page.locator('#plans tbody').locator('input, select').filter({ visible: true });
  const ids = await shown.evaluateAll((fields) => fields.map(({ id }) => id));
  expect(ids).toEqual(
    PLAN_NAMES.flatMap((plan) => [...fieldsOf(plan), 'mode'].map((field) => `plan-${plan}-${field}`)),
  );
  const modes = await page.getByLabel('free: Mode').locator('option').allInnerTexts();
  expect(modes).toEqual([...PLAN_MODES]);
});

test('a limit that is none is told at its field, in the words of the gateway, and goes nowhere', async () => {
  const { page, faults } = await openConsole(browser, stack);
  const field = page.locator('#plan-pro-day');
  for (const text of ['0', '-1', '1.5', '1000000001', '', 'many', '1e3', '0x3C']) {
    await field.fill(text);
    await field.press('Enter');
    expect(await question(page).count()).toBe(0);
    const refusal = await stack.admin('PATCH', '/plans/pro', { day: Number(text || 'none') });
    const told = await page.locator('#plan-pro-day-note').innerText();
    // What these two are in JavaScript is a number after all.
    if (!['1e3', '0x3C'].includes(text)) expect((refusal.json as { message: string }).message).toContain(told);
    expect([text, told, await field.getAttribute('aria-invalid')]).toEqual([
      text,
      'day must be a whole number from 1 to 1000000000',
      'true',
    ]);
  }
  await page.getByRole('button', { name: 'Discard pro' }).click();
  expect(await field.getAttribute('aria-invalid')).toBeNull();
  expect(faults).toEqual([]);
});

test('what the gateway refuses is told at the field that it is about', async () => {
  const { page } = await openConsole(browser, stack);
  await reviewPlan(page, 'pro', { minute: '301' });
  await agree(page, 'Apply', 'an\tna');
  const author = question(page).getByLabel('Who are you?');
  await question(page).getByText('author must not be empty or have control characters').waitFor();
  expect(await author.getAttribute('aria-invalid')).toBe('true');
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: 'Discard pro' }).click();

  await page.getByRole('button', { name: 'Issue a key' }).click();
  await question(page).getByLabel('Name').fill('big');
  await question(page).getByLabel('Plan').selectOption('enterprise');
  await question(page).getByRole('button', { name: 'Issue' }).click();
  await question(page).getByText('an enterprise key carries its own limits').waitFor();
  expect(await question(page).getByLabel('Own limit a minute').getAttribute('aria-invalid')).toBe('true');
  expect(((await stack.admin('GET', '/keys?name=big')).json as { keys: unknown[] }).keys).toEqual([]);
});

test('a key is disabled, enabled, rotated, banned and, once that is confirmed, revoked', async () => {
  const { page, faults } = await openConsole(browser, stack);
  const old = await issue(page, 'zoo', 'pro');
  const row = rowOf(page, 'keys', 'zoo');
  await row.getByRole('button', { name: 'Disable zoo' }).click();
  await row.getByText('disabled').waitFor();
  expect((await ask(old)).status).toBe(401);
  await row.getByRole('button', { name: 'Enable zoo' }).click();
  await row.getByText('active').waitFor();
  await stack.admin('PATCH', `/keys/${idOf(old)}`, { name: 'zoo of old' });
  await row.getByRole('button', { name: 'Disable zoo of old' }).waitFor();
  await stack.admin('PATCH', `/keys/${idOf(old)}`, { name: 'zoo' });
  await row.getByRole('button', { name: 'Disable zoo', exact: true }).waitFor();

  await row.getByRole('button', { name: 'Rotate … zoo' }).click();
  await question(page).getByRole('button', { name: 'Rotate' }).click();
  const key = await question(page).getByLabel('API key').inputValue();
  await question(page).getByRole('button', { name: 'Done' }).click();
  expect([(await ask(old)).status, (await ask(key)).status]).toEqual([200, 200]);

  await row.getByRole('button', { name: 'Ban … zoo' }).click();
  await question(page).getByLabel('For').fill('2');
  await question(page).getByLabel('Unit').selectOption('hours');
  await question(page).getByLabel('Why?').fill('scrapes everything');
  await question(page).getByRole('button', { name: 'Ban' }).click();
  await rowOf(page, 'bans', 'zoo').getByText('scrapes everything').waitFor();
  const wait = Number((await ask(key)).headers['retry-after']);
  expect([wait > 7_000, wait <= 7_200]).toEqual([true, true]);

  const revoke = row.getByRole('button', { name: 'Revoke … zoo' });
  await revoke.click();
  // Nobody revokes by pressing Enter once too often.
  await page.keyboard.press('Enter');
  await question(page).waitFor({ state: 'detached' });
  expect((await ask(key)).status).toBe(429);
  await revoke.click();
  await question(page).getByRole('button', { name: 'Revoke for good' }).click();
  await row.waitFor({ state: 'detached' });
  expect((await ask(key)).status).toBe(401);
  expect(faults).toEqual([]);
});

test('keys are found by name and leafed through, and an empty list says so', async () => {
  for (let at = 0; at < 22; at++) await stack.issueKey({ name: `herd ${at}` });
  const { page, faults } = await openConsole(browser, stack);
  const search = async (name: string) => {
    await page.getByLabel('Name holds').fill(name);
    await page.getByRole('button', { name: 'Search' }).click();
  };
  await search('HERD');
  const rows = page.locator('#keys tbody tr');
  await expect.poll(async () => [await rows.count(), await rows.filter({ hasText: 'herd' }).count()]).toEqual([20, 20]);
  await page.locator('#keys-next').click();
  await expect.poll(() => rows.locator('.name').allInnerTexts()).toEqual(['herd 1', 'herd 0']);
  await page.locator('#keys-previous').click();
  await expect.poll(() => rows.count()).toBe(20);
  await search('nobody');
  await page.getByText('No key’s name holds “nobody”.').waitFor();
  expect(faults).toEqual([]);
});
