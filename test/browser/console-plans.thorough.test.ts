import type { Locator } from 'playwright-core';
import { expect, test, vi } from 'vitest';
import { fieldsOf, PLAN_FIELDS, PLAN_NAMES } from '../../gateway/limiter/plans.ts';
import { shareSession } from '../support/browser.ts';
import { agree, confirm, openConsole, question, reviewPlan, rowOf } from '../support/console.ts';
import { send } from '../support/http.ts';
import { startStack } from '../support/stack.ts';

const stack = await startStack();
await shareSession(stack.adminUrl);
const PAGE = '/console/plans';
const valuesOf = async (places: Locator, attribute: string) =>
  await Promise.all((await places.all()).map((place) => place.getAttribute(attribute)));
const differences = 'dialog .differences li';

test('a plan change is reviewed, made, listed in the history, and rolled back', async () => {
  const { page } = await openConsole(stack, PAGE);
  await reviewPlan(page, 'Free', { 'Requests per minute': '30', 'Ban after strikes': '20' });
  expect(await page.locator(differences).allInnerTexts()).toEqual([
    'Requests per minute: 60 → 30',
    'Ban after strikes: 5 × minute → 20',
  ]);
  await question(page).getByRole('button', { name: 'Apply' }).click();
  await question(page).getByText('A reason is required.').waitFor();
  expect((await stack.admin('GET', '/plans')).json).toMatchObject({ free: { minute: 60 } });
  // The audit log below must show the change before its next poll in 5 s.
  await page.waitForResponse((response) => response.url().includes('/activity?'));
  await agree(page, 'Apply', 'anna', 'too many of them');
  await question(page).waitFor({ state: 'detached' });
  await rowOf(page, 'Audit log', 'too many of them').waitFor({ timeout: 3_000 });
  const row = rowOf(page, 'Changes', 'too many of them');
  expect(await row.innerText()).toContain('Free, requests per minute: 60 → 30');
  expect(await row.innerText()).toContain('Free, ban after strikes: 5 × minute → 20');
  expect((await stack.admin('GET', '/plans')).json).toMatchObject({ free: { minute: 30, day: 1_000, ban_after: 20 } });

  await row.getByRole('button', { name: 'Roll back' }).click();
  expect(await page.locator(differences).allInnerTexts()).toEqual([
    'Free, requests per minute: 30 → 60',
    'Free, ban after strikes: 20 → 5 × minute',
  ]);
  await confirm(page, 'Roll back');
  await rowOf(page, 'Changes', 'rolls back').waitFor();
  expect((await stack.admin('GET', '/plans')).json).toMatchObject({ free: { minute: 60 } });
  expect((await stack.admin('GET', '/plans')).json).not.toHaveProperty('free.ban_after');
});

test('an optional number is removed by emptying its field', async () => {
  const { page } = await openConsole(stack, PAGE);
  await reviewPlan(page, 'Pro', { 'Ban after strikes': '400' });
  await agree(page, 'Apply', 'anna', 'fewer');
  await question(page).waitFor({ state: 'detached' });
  await rowOf(page, 'In force', 'Pro').getByText('400').waitFor();
  await reviewPlan(page, 'Pro', { 'Ban after strikes': '' });
  await agree(page, 'Apply', 'anna', 'as usual');
  await question(page).waitFor({ state: 'detached' });
  await rowOf(page, 'In force', 'Pro').getByText('5 × minute').waitFor();
});

test('the review shows what the new limits would have refused in the last hour', async () => {
  const key = await stack.issueKey({ name: 'busy shop', plan: 'business' });
  for (let sent = 0; sent < 12; sent++) await send(`${stack.gateway}/v1/pets`, { key });
  const { page } = await openConsole(stack, PAGE);
  await reviewPlan(page, 'Business', { 'Requests per minute': '2' });
  const tried = await stack.admin('POST', '/plans/business/try', { minute: 2 });
  const { wouldRefuse } = (tried.json as { affected: [{ wouldRefuse: number }] }).affected[0];
  expect(wouldRefuse).toBeGreaterThan(0);
  await question(page).getByText(`would have refused at least ${wouldRefuse} of 12 requests`).waitFor();
  await question(page).getByText(`busy shop: ${wouldRefuse} of 12, instead of 0`).waitFor();
  await confirm(page, 'Cancel');
  await reviewPlan(page, 'Business', { 'Requests per minute': '999' });
  await question(page)
    .getByText('As far as the counts show, these limits would have refused 0 of 12 requests from 1 key.')
    .waitFor();
  await question(page).getByText('This is a lower bound: requests are counted by minute').waitFor();
});

test('after a conflict between two operators, the review shows the values in force and keeps the typed ones', async () => {
  const [one, other] = [await openConsole(stack, PAGE), await openConsole(stack, PAGE)];
  await reviewPlan(one.page, 'Business', { 'Requests per minute': '2000' });
  await reviewPlan(other.page, 'Business', { 'Requests per minute': '3000' });
  await agree(one.page, 'Apply', 'anna');
  await question(one.page).waitFor({ state: 'detached' });

  expect(await other.page.locator(differences).innerText()).toBe('Requests per minute: 1,000 → 3,000');
  await agree(other.page, 'Apply', 'ben', 'growth');
  await question(other.page).getByText('changed in the meantime').waitFor();
  expect(await other.page.locator(differences).innerText()).toBe('Requests per minute: 2,000 → 3,000');
  expect((await stack.admin('GET', '/plans')).json).toMatchObject({ business: { minute: 2_000 } });
  expect(await question(other.page).getByLabel('Why?').inputValue()).toBe('growth');
  await confirm(other.page, 'Apply');
  expect((await stack.admin('GET', '/plans')).json).toMatchObject({ business: { minute: 3_000 } });
  await rowOf(one.page, 'In force', 'Business').getByText('3,000').waitFor();
  // The browser itself logs a 409, whatever the page does with it.
  expect(other.faults.splice(0)).toEqual([expect.stringContaining('409')]);
});

test('the plan form has exactly the fields and options of each plan', async () => {
  const { page } = await openConsole(stack, PAGE);
  for (const plan of PLAN_NAMES) {
    await page.getByRole('button', { name: `Change ${plan}` }).click();
    const fields = question(page).locator('input, select');
    await fields.first().waitFor();
    expect(await valuesOf(fields, 'name')).toEqual(fieldsOf(plan));
    expect(await valuesOf(question(page).locator('option'), 'value')).toEqual([...PLAN_FIELDS.mode.options]);
    await confirm(page, 'Cancel');
  }
});

test('an invalid limit is reported at its field, and is not sent', async () => {
  const { page } = await openConsole(stack, PAGE);
  await page.getByRole('button', { name: 'Change Pro' }).click();
  const field = question(page).getByLabel('Requests per day');
  for (const text of ['0', '-1', '1.5', '1000000001', '', 'many', '1e3', '0x3C']) {
    await field.fill(text);
    await field.press('Enter');
    await question(page).getByText('A whole number from 1 to 1,000,000,000.').waitFor();
    expect([text, await field.getAttribute('aria-invalid')]).toEqual([text, 'true']);
    await field.fill('10000');
    await field.press('Enter');
    await question(page).getByText('You have not changed anything.').waitFor();
  }
});

test('an error from the gateway is shown at the field that caused it', async () => {
  const { page, excuse } = await openConsole(stack, PAGE);
  excuse(/400/);
  await reviewPlan(page, 'Pro', { 'Requests per minute': '301' });
  await agree(page, 'Apply', 'an\tna');
  await question(page).getByText('Who are you? must not be empty or contain control characters').waitFor();
  expect(await question(page).getByLabel('Who are you?').getAttribute('aria-invalid')).toBe('true');
  expect((await stack.admin('GET', '/plans')).json).toMatchObject({ pro: { minute: 300 } });
});

test('a plan is set to shadow mode and back to enforce', async () => {
  const { page } = await openConsole(stack, PAGE);
  const key = await stack.issueKey({ plan: 'pro', minute: 1, day: 1 });
  const ask = () => send(`${stack.gateway}/v1/pets`, { key });
  await ask();
  expect((await ask()).status).toBe(429);
  const banner = page.locator('#state');
  const expectState = (text: string) =>
    vi.waitFor(async () => expect(await banner.innerText()).toBe(`All well\n${text}`), 10_000);
  for (const [mode, status, state] of [
    ['shadow', 200, 'The plan Pro is in shadow mode and refuses nothing.'],
    ['enforce', 429, 'Every limit is exact.'],
  ] as const) {
    await reviewPlan(page, 'Pro', { Mode: mode });
    await agree(page, 'Apply');
    await question(page).waitFor({ state: 'detached' });
    await vi.waitFor(async () => expect((await ask()).status).toBe(status), 10_000);
    await expectState(state);
  }
  for (const plan of ['free', 'pro', 'business']) await stack.admin('PATCH', `/plans/${plan}`, { mode: 'shadow' });
  await expectState('The plans Free, Pro and Business are in shadow mode and refuse nothing.');
  for (const plan of ['free', 'pro', 'business']) await stack.admin('PATCH', `/plans/${plan}`, { mode: 'enforce' });
});

test('the Plans page fits on a phone, and just before and after its tables become cards', async () => {
  await stack.admin('PATCH', '/plans/business', { minute: 100_000, day: 10_000_000 });
  const { page } = await openConsole(stack, PAGE);
  await rowOf(page, 'In force', 'Business').getByText('10,000,000').waitFor();
  for (const width of [320, 720, 721, 768, 820, 821, 1_024]) {
    await page.setViewportSize({ width, height: 800 });
    expect([width, await page.evaluate('document.documentElement.scrollWidth')]).toEqual([width, width]);
  }
});

test('the Plans page can be used with the keyboard alone, and the focus is always visible', async () => {
  const { page } = await openConsole(stack, PAGE);
  const focused = async () => {
    const [text, outline] = (await page.evaluate(`{
      const { activeElement: at } = document;
      [at.matches('body, main') ? '' : at.textContent || at.name, getComputedStyle(at).outlineStyle];
    }`)) as [string, string];
    if (text !== '') expect([text, outline]).toEqual([text, 'solid']);
    return text;
  };
  await page.keyboard.press('Tab');
  for (let pressed = 0; pressed < 40 && !(await focused()).includes('Change Free'); pressed++)
    await page.keyboard.press('Tab');
  expect(await focused()).toContain('Change Free');
  await page.keyboard.press('Enter');
  await question(page).waitFor();
  await page.keyboard.press('Tab');
  expect(await focused()).toBe('day');
  await page.keyboard.press('Control+A');
  await page.keyboard.type('2000');
  await page.keyboard.press('Enter');
  await question(page).getByText('Review the change to Free').waitFor();
  expect(await focused()).toBe('author');
  await page.keyboard.type('anna');
  await page.keyboard.press('Tab');
  await page.keyboard.type('without a mouse');
  await page.keyboard.press('Enter');
  await rowOf(page, 'Changes', 'without a mouse').waitFor();
  await question(page).waitFor({ state: 'detached' });
  expect((await stack.admin('GET', '/plans')).json).toMatchObject({ free: { day: 2_000 } });
  expect(await focused()).toContain('Change Free');
  // The / key moves the focus to the search from anywhere on the page.
  await page.keyboard.press('/');
  expect(await page.evaluate('[document.activeElement.id, document.activeElement.value]')).toEqual(['find', '']);
});
