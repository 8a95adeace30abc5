import type { Page } from 'playwright-core';
import { expect, test } from 'vitest';
import { shortcomings } from '../support/accessibility.ts';
import { activityOf } from '../support/activity.ts';
import { idOf } from '../support/api-key.ts';
import { shareSession } from '../support/browser.ts';
import { isShown, logIn, openConsole, question, takeKey, visit, visitConsole } from '../support/console.ts';
import { send } from '../support/http.ts';
import { startStack } from '../support/stack.ts';

const stack = await startStack();
await shareSession(stack.adminUrl);
const key = await stack.issueKey({ name: 'acme' });
await stack.admin('PUT', `/keys/${idOf(key)}/ban`, { seconds: 6_000, reason: 'a test' });
await stack.admin('PATCH', '/plans/pro', { minute: 301, author: 'a', reason: 'b' });

const RANGES = ['15 minutes', '1 hour', '7 days', '35 days'];
const FREE_TO_ALL = ['Check again', 'Download CSV', 'Filter', 'Find', 'Log out', ...RANGES];

/** Opens the console with a new token, and waits until it shows the token's role. */
async function openAs(role: string): Promise<Page> {
  const { json } = await stack.admin('POST', '/tokens', { name: 'carla', role });
  const { page } = await visitConsole(stack, '/console/access');
  await logIn(page, (json as { token: string }).token);
  await isShown(page);
  await page.getByText(new RegExp(`^carla, ${role}$`, 'i')).waitFor();
  return page;
}

/** A button that the browser itself adds to time fields. */
const OF_THE_BROWSER = /^Show local date/;

/** The buttons of a page, as the browser describes them to a screen reader. */
async function described(page: Page): Promise<{ name: string; isRefused: boolean; why: string }[]> {
  const session = await page.context().newCDPSession(page);
  const { nodes } = await session.send('Accessibility.getFullAXTree');
  await session.detach();
  return nodes
    .filter(({ role, name }) => role?.value === 'button' && !OF_THE_BROWSER.test(name?.value))
    .map(({ name, description, properties = [] }) => ({
      name: name?.value,
      isRefused: properties.some((one) => one.name === 'disabled' && one.value.value),
      why: description?.value,
    }));
}

/** Every page's disabled buttons, each as page, name and reason, and the names of its enabled buttons. */
async function buttonsOf(page: Page): Promise<{ refused: string[]; usable: string[] }> {
  const [refused, usable] = [new Set<string>(), new Set<string>()];
  for (const link of ['Keys', 'acme', 'Plans', 'Bans', 'Access', 'Audit log', 'Health']) {
    await page.getByRole('link', { name: link, exact: true }).first().click();
    await page.getByRole('heading', { name: link, exact: true, level: 1 }).waitFor();
    await isShown(page);
    for (const { name, isRefused, why } of await described(page))
      if (isRefused)
        refused.add(`${link}: ${name.replace(/ (acme|carla|first|Free|Pro|Business|Enterprise)$/, '')}: ${why}`);
      else usable.add(name);
  }
  return { refused: [...refused].sort(), usable: [...usable].sort() };
}

test('every button that a viewer may not use is disabled and names the required role', async () => {
  const page = await openAs('viewer');
  const { refused, usable } = await buttonsOf(page);
  expect(usable.filter((name) => !FREE_TO_ALL.includes(name))).toEqual([]);
  const why = (needs: string) => `This needs the ${needs} role. Your token has the Viewer role.`;
  expect(refused).toEqual(
    [
      ...['Access: Revoke', 'Access: Create token'].map((name) => `${name}: ${why('Admin')}`),
      ...[
        ...['Bans: Lift', 'Keys: Issue a key', 'Plans: Change', 'Plans: Roll back'],
        ...['Add a secret', 'Change', 'Disable', 'Edit', 'Lift ban', 'Reset limits', 'Revoke', 'Rotate'].map(
          (name) => `acme: ${name}`,
        ),
      ].map((name) => `${name}: ${why('Operator')}`),
    ].sort(),
  );
  for (const path of ['keys', `key?id=${idOf(key)}`, 'access']) {
    await visit(page, `/console/${path}`);
    await page.getByText('carla, Viewer').waitFor();
    expect((await shortcomings(page)).found).toEqual([]);
  }
  await visit(page, '/console/keys');
  await page.getByText('carla, Viewer').waitFor();
  const issue = page.getByRole('button', { name: 'Issue a key', disabled: true });
  await issue.focus();
  for (const press of [() => page.keyboard.press('Enter'), () => issue.click({ force: true })]) {
    await press();
    await page.locator('.toast').getByText(why('Operator')).waitFor();
    expect(await question(page).count()).toBe(0);
    await page.locator('.toast').evaluate((toast) => toast.replaceChildren());
  }
});

test('until the role and the name of a token are known, a button only says so', async () => {
  const { json } = await stack.admin('POST', '/tokens', { name: 'carla', role: 'operator' });
  const { page } = await visitConsole(stack, '/console/keys');
  const { promise: known, resolve: answer } = Promise.withResolvers<void>();
  await page.route('**/whoami', async (route) => {
    await known;
    await route.continue();
  });
  await logIn(page, (json as { token: string }).token);
  const issue = page.getByRole('button', { name: 'Issue a key' });
  await issue.click({ force: true });
  await page.locator('.toast').getByText('The role of your token is not known yet.').waitFor();
  expect(await question(page).count()).toBe(0);
  answer();
  await issue.click();
  await question(page).getByLabel('Name').waitFor();
  expect(await question(page).getByLabel('Who are you?').count()).toBe(0);
});

test('an operator may change everything except access', async () => {
  const { refused, usable } = await buttonsOf(await openAs('operator'));
  const why = 'This needs the Admin role. Your token has the Operator role.';
  expect(refused).toEqual([`Access: Create token: ${why}`, `Access: Revoke: ${why}`]);
  expect(usable).toEqual(expect.arrayContaining(['Issue a key', 'Edit', 'Revoke', 'Roll back']));
});

test('a user of a named token is not asked for a name', async () => {
  const page = await openAs('operator');
  await page.getByRole('link', { name: 'Plans', exact: true }).click();
  await page.getByRole('button', { name: 'Roll back' }).click();
  await question(page).getByRole('button', { name: 'Roll back' }).click();
  await page.getByText('The last change has been rolled back.').waitFor();
  expect((await activityOf(stack))[0]).toMatchObject({ actor: 'carla', reason: expect.stringMatching(/^rolls back/) });
});

/** Opens a page with an operator's token. @returns a function that revokes the token and waits for the login page */
async function openUntilRevoked(path: string): Promise<{ page: Page; revoke(): Promise<void> }> {
  const { json } = await stack.admin('POST', '/tokens', { name: 'dora', role: 'operator' });
  const { id, token } = json as { id: string; token: string };
  const { page, excuse } = await visitConsole(stack, path);
  excuse(/401/);
  await logIn(page, token);
  const revoke = async () => {
    await stack.admin('DELETE', `/tokens/${id}`);
    await page.getByText('The token is no longer accepted.').waitFor();
  };
  return { page, revoke };
}

test("a new key stays on the screen until it is copied, even if the operator's own token is revoked first", async () => {
  const { page, revoke } = await openUntilRevoked('/console/keys');
  await page.getByRole('button', { name: 'Issue a key' }).click();
  await question(page).getByLabel('Name').fill('of dora');
  await question(page).getByRole('button', { name: 'Issue' }).click();
  await question(page).getByLabel('API key').waitFor();
  await revoke();
  const issued = await takeKey(page);
  expect((await send(`${stack.gateway}/v1/pets`, { key: issued })).status).toBe(200);
  await logIn(page);
  await isShown(page);
  expect(await question(page).count()).toBe(0);
});

test.for([
  ['/console/keys', 'Issue a key', 'Name', 'typed', 'Issue'],
  [`/console/key?id=${idOf(key)}`, 'Edit', 'Own limit per day', '4321', 'Save'],
  ['/console/plans', 'Change Pro', 'Requests per day', '4321', 'Review'],
  ['/console/plans', 'Roll back', 'Why?', 'a typed reason', 'Roll back'],
] as const)(
  'on %s, the form %s with its text returns after a new login if the token is revoked in the meantime',
  async ([path, button, label, text, action]) => {
    const { page, revoke } = await openUntilRevoked(path);
    await page.getByRole('button', { name: button }).click();
    const field = question(page).getByLabel(label);
    await field.fill(text);
    await revoke();
    expect(await question(page).count()).toBe(0);
    await logIn(page);
    await isShown(page);
    expect(await field.inputValue()).toBe(text);
    await question(page).getByRole('button', { name: action }).waitFor();
    await page.keyboard.press('Escape');
    await page.locator('dialog').waitFor({ state: 'detached' });
  },
);

/**
 * Presses a button after the token was revoked, and logs in again.
 * @param others paths whose calls get no response, so that only the call of this button is refused
 */
async function pressRevoked(
  { page, revoke }: Awaited<ReturnType<typeof openUntilRevoked>>,
  name: string,
  others: string,
) {
  await page.route(others, () => {});
  const revoked = revoke();
  await question(page).getByRole('button', { name }).click();
  await revoked;
  await page.unrouteAll({ behavior: 'ignoreErrors' });
  await logIn(page);
  await isShown(page);
}

test('a form that was sent with a revoked token can be sent again after a new login, without an old error', async () => {
  const opened = await openUntilRevoked('/console/keys');
  const { page } = opened;
  await page.getByRole('button', { name: 'Issue a key' }).click();
  await question(page).getByLabel('Name').fill('sent twice');
  await pressRevoked(opened, 'Issue', '**/{traffic,whoami,keys?*}');
  expect(await question(page).getByRole('alert').innerText()).toBe('');
  await question(page).getByRole('button', { name: 'Issue' }).click();
  await takeKey(page);
  await page.getByRole('heading', { name: 'sent twice' }).waitFor();
});

test('after a new login, the review of a plan repeats its trial of the new limits', async () => {
  const opened = await openUntilRevoked('/console/plans');
  const { page } = opened;
  await page.getByRole('button', { name: 'Change Business' }).click();
  await question(page).getByLabel('Requests per minute').fill('77');
  await pressRevoked(opened, 'Review', '**/{traffic,whoami,plans,plans/history*,activity*}');
  await question(page).getByText('Requests per minute: 1,000 → 77').waitFor();
  await question(page).getByText('No key of this plan sent a request.').waitFor();
});

test('an admin and the shared token may use every button', async () => {
  const { refused } = await buttonsOf(await openAs('admin'));
  expect(refused).toEqual([]);
  const { page } = await openConsole(stack, '/console/access');
  await page.getByText('Shared token, Admin').waitFor();
  await page.getByRole('button', { name: 'Create token' }).click();
  await question(page).getByLabel('Role').waitFor();
});
