import type { Page } from 'playwright-core';
import { expect, test } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { shareSession } from '../support/browser.ts';
import { logIn, openConsole, question, rowOf, visit, visitConsole } from '../support/console.ts';
import { send } from '../support/http.ts';
import { startStack } from '../support/stack.ts';

/**
 * An operator's tasks, each starting on the first page, with the number of clicks that it takes. Typing does not count.
 */

const stack = await startStack();
await shareSession(stack.adminUrl);

/** Counts the clicks that the browser receives. A choice from a list counts as one click. */
async function startWalk() {
  const { page } = await openConsole(stack);
  let clicks = 0;
  const click = async (role: 'button' | 'link', name: string, within: Pick<Page, 'getByRole'> = page) => {
    clicks++;
    await within.getByRole(role, { name, exact: true }).first().click();
  };
  return { page, click, clicks: () => clicks };
}

test('finding the key in a log line and raising its limit takes 4 clicks', async () => {
  const key = await stack.issueKey({ name: 'from the log', minute: 5, day: 100 });
  await send(`${stack.gateway}/v1/pets`, { key, headers: { 'X-Request-Id': 'id-in-the-log' } });
  const { page, click, clicks } = await startWalk();
  await page.locator('#find').fill('id-in-the-log');
  await click('button', 'Find');
  await click('link', 'from the log', page.getByRole('table', { name: 'Requests' }));
  await page.getByRole('heading', { name: 'from the log' }).waitFor();
  await click('button', 'Edit');
  await question(page).getByLabel('Own limit per minute').fill('500');
  await click('button', 'Save');
  await page.getByText('/ 500').waitFor();
  expect((await stack.admin('GET', `/keys/${idOf(key)}`)).json).toMatchObject({ minute: 500 });
  expect(clicks()).toBe(4);
});

test('finding out why a request was refused, from its id, takes 1 click', async () => {
  const key = await stack.issueKey({ name: 'complains', minute: 1, day: 100 });
  await send(`${stack.gateway}/v1/pets`, { key });
  await send(`${stack.gateway}/v1/pets`, { key, headers: { 'X-Request-Id': 'id-in-the-answer' } });
  const { page, click, clicks } = await startWalk();
  await page.locator('#find').fill('id-in-the-answer');
  await click('button', 'Find');
  await page.getByText('The key had used up its limit of 1 request per minute.').waitFor();
  await page.getByText('Raise the limit of the key or of its plan (free)').waitFor();
  expect(clicks()).toBe(1);
});

test('finding the busiest key, banning it, and lifting the ban, each with a reason, takes 5 clicks', async () => {
  const key = await stack.issueKey({ name: 'the loudest' });
  for (let sent = 0; sent < 30; sent++) await send(`${stack.gateway}/v1/pets`, { key });
  const { page, click, clicks } = await startWalk();
  const loudest = page.getByRole('table', { name: 'Busiest keys' }).locator('tbody tr').first();
  await expect.poll(() => loudest.innerText()).toContain('the loudest');
  await click('link', 'the loudest', loudest);
  await click('button', 'Ban', page.locator('.page-head'));
  await question(page).getByLabel('Why?').fill('too loud');
  await click('button', 'Ban', question(page));
  await page.getByText('Reason: too loud').waitFor();
  expect((await stack.admin('GET', `/keys/${idOf(key)}`)).json).toMatchObject({ state: 'banned' });
  await click('button', 'Lift ban');
  await question(page).getByLabel('Why?').fill('they have called');
  await click('button', 'Lift ban', question(page));
  await rowOf(page, 'Audit log', 'they have called').waitFor();
  expect((await stack.admin('GET', `/keys/${idOf(key)}`)).json).toMatchObject({ state: 'active' });
  expect(clicks()).toBe(5);
});

test('trying a plan limit on the last hour and then setting it takes 4 clicks', async () => {
  const key = await stack.issueKey({ name: 'grows', plan: 'business' });
  await send(`${stack.gateway}/v1/pets`, { key });
  const { page, click, clicks } = await startWalk();
  await click('link', 'Plans');
  await click('button', 'Change Business');
  await question(page).getByLabel('Requests per minute').fill('2000');
  await click('button', 'Review', question(page));
  await question(page).getByText('would have refused 0 of 1 request from 1 key').waitFor();
  await question(page).getByLabel('Who are you?').fill('anna');
  await question(page).getByLabel('Why?').fill('they grow');
  await click('button', 'Apply', question(page));
  await rowOf(page, 'In force', 'Business').getByText('2,000').waitFor();
  expect((await stack.admin('GET', '/plans')).json).toMatchObject({ business: { minute: 2_000 } });
  expect(clicks()).toBe(4);
});

test("finding out who lowered a plan's limit takes 1 click", async () => {
  await stack.admin('PATCH', '/plans/free', { minute: 30, author: 'carl', reason: 'to save the core' });
  const { page, click, clicks } = await startWalk();
  await click('link', 'Plans');
  const change = rowOf(page, 'Audit log', 'to save the core');
  await change.getByText('carl').waitFor();
  await change.getByText('Free, requests per minute').waitFor();
  expect(clicks()).toBe(1);
  await stack.admin('PATCH', '/plans/free', { minute: 60 });
});

test("rolling back yesterday's plan change takes 3 clicks", async () => {
  await stack.admin('PATCH', '/plans/pro', { minute: 3, author: 'ben', reason: 'of yesterday' });
  const { page, click, clicks } = await startWalk();
  await click('link', 'Plans');
  await click('button', 'Roll back', rowOf(page, 'Changes', 'of yesterday'));
  await question(page).getByLabel('Who are you?').fill('anna');
  await click('button', 'Roll back', question(page));
  await rowOf(page, 'Changes', 'rolls back').waitFor();
  expect((await stack.admin('GET', '/plans')).json).toMatchObject({ pro: { minute: 300 } });
  expect(clicks()).toBe(3);
});

test("seeing an alert's effect takes no click for the last hour, and 1 for a client's last few days", async () => {
  const key = await stack.issueKey({ name: 'perhaps hurt', minute: 1, day: 10 });
  for (let sent = 0; sent < 2; sent++) await send(`${stack.gateway}/v1/pets`, { key });
  const { page, click, clicks } = await startWalk();
  await page.locator('.tile', { hasText: 'Server errors' }).waitFor();
  await page.getByText('Response time as a table').waitFor();
  expect(clicks()).toBe(0);
  await page.locator('#find').fill('perhaps');
  await click('button', 'Find');
  await page.getByRole('heading', { name: 'perhaps hurt' }).waitFor();

  const days = page.locator('figure', { hasText: 'Requests per day (UTC)' });
  await days.locator('.legend').getByText('Refused 1').waitFor();
  await rowOf(page, 'Last requests', 'Refused').first().waitFor();
  expect(clicks()).toBe(1);
});

test('giving a colleague read-only access takes 3 clicks', async () => {
  const key = await stack.issueKey({ name: 'only looked at' });
  const { page, click, clicks } = await startWalk();
  await click('link', 'Access');
  await click('button', 'Create token');
  await question(page).getByLabel('Name').fill('carla');
  await click('button', 'Create token', question(page));
  const token = await question(page).getByLabel('Token').inputValue();
  expect(clicks()).toBe(3);
  const colleague = await visitConsole(stack, `/console/key?id=${idOf(key)}`);
  await logIn(colleague.page, token);
  await colleague.page.getByRole('heading', { name: 'only looked at' }).waitFor();
  const ban = colleague.page.locator('.page-head').getByRole('button', { name: 'Ban', disabled: true });
  await colleague.page.getByText('carla, Viewer').waitFor();
  await ban.waitFor();
  expect(await ban.getAttribute('title')).toBe('This needs the Operator role. Your token has the Viewer role.');
  await visit(colleague.page, '/console/activity');
  await rowOf(colleague.page, 'Audit log', 'Token created').first().waitFor();
});
