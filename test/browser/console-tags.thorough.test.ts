import { readFile } from 'node:fs/promises';
import type { Page } from 'playwright-core';
import { expect, test } from 'vitest';
import type { KeyView } from '../../gateway/operators/api/answers.ts';
import { expectReadable, shortcomings } from '../support/accessibility.ts';
import { idOf } from '../support/api-key.ts';
import { shareSession } from '../support/browser.ts';
import { confirm, isShown, openConsole, question, rowOf, takeKey } from '../support/console.ts';
import { send } from '../support/http.ts';
import { startStack } from '../support/stack.ts';

const stack = await startStack();
await shareSession(stack.adminUrl);
const ask = (key: string) => send(`${stack.gateway}/v1/pets`, { key });
const rowsOf = (page: Page, table: string) => page.getByRole('table', { name: table }).locator('tbody tr');
const namesIn = (page: Page, table: string) => rowsOf(page, table).locator('.name').allTextContents();

const keys: string[] = [];
for (const env of ['prod', 'test', 'prod'])
  keys.push(await stack.issueKey({ name: `${env} ${keys.length}`, tags: { customer: 'acme', env } }));
keys.push(await stack.issueKey({ name: 'untagged' }));
for (const [at, key] of keys.entries()) for (let sent = 0; sent <= at; sent++) await ask(key);

test("a key's tags are set, edited and shown, and invalid tags are reported at their field", async () => {
  const { page } = await openConsole(stack, '/console/keys');
  await page.getByRole('button', { name: 'Issue a key' }).click();
  await question(page).getByLabel('Name').fill('new');
  await question(page).getByLabel('Tags').fill('customer');
  await question(page).getByRole('button', { name: 'Issue' }).click();
  await question(page).getByText('Up to ten tags, such as customer=acme, env=prod').waitFor();
  await question(page).getByLabel('Tags').fill('env=dev, customer=globex');
  await question(page).getByRole('button', { name: 'Issue' }).click();
  const key = await takeKey(page);
  await page.locator('.under-title .tag', { hasText: 'customer=globex' }).waitFor();
  const edit = async (typed: string) => {
    await page.locator('.page-head').getByRole('button', { name: 'Edit' }).click();
    await question(page).getByLabel('Tags').fill(typed);
    const sent = page.waitForRequest((request) => request.method() === 'PATCH');
    await confirm(page, 'Save');
    return (await sent).postDataJSON();
  };
  expect(await edit('customer=globex')).toEqual({ tagChanges: { env: null } });
  await expect.poll(() => page.locator('.under-title .tag').allTextContents()).toEqual(['customer=globex']);
  await page.getByText('customer=globex, env=dev').first().waitFor();
  expect(await edit('')).toEqual({ tagChanges: { customer: null } });
  await expect.poll(() => page.locator('.under-title .tag').count()).toBe(0);
  expect((await stack.admin('GET', `/keys/${idOf(key)}`)).json as KeyView).not.toHaveProperty('tags');
});

test('operators who edit the tags of a key at the same time keep the tags of both', async () => {
  const id = idOf(await stack.issueKey({ tags: { team: 'one', stage: 'beta' } }));
  const edited = async (typed: string) => {
    const { page, excuse } = await openConsole(stack, `/console/key?id=${id}`);
    excuse(/400/);
    await page.locator('.page-head').getByRole('button', { name: 'Edit' }).click();
    await question(page).getByLabel('Tags').fill(typed);
    return page;
  };
  const [one, other, respaced, many] = [
    await edited('team=one, stage=beta, a=1'),
    await edited('b=2, team=two, stage=beta'),
    await edited('stage=beta,team=one'),
    await edited(`team=one, stage=beta, ${Array.from({ length: 8 }, (_, at) => `tag${at}=x`).join(', ')}`),
  ];
  for (const page of [one, other]) await confirm(page, 'Save');
  await confirm(respaced, 'Save');
  await respaced.getByText('Nothing was changed.').waitFor();
  await question(many).getByRole('button', { name: 'Save' }).click();
  await question(many).getByText('Tags must have at most 10 entries.').waitFor();
  expect((await stack.admin('GET', `/keys/${id}`)).json).toMatchObject({
    tags: { a: '1', b: '2', team: 'two', stage: 'beta' },
  });
});

test('the URL filters keys by tag, a tag links to its keys, and the search field shows the filter', async () => {
  const { page } = await openConsole(stack, '/console/keys?tag=customer:acme,env:prod');
  const names = () => namesIn(page, 'Keys');
  expect(await names()).toEqual(['prod 2', 'prod 0']);
  await page.getByLabel('Tag').fill('customer:acme');
  await page.getByLabel('Tag').press('Enter');
  await expect.poll(names).toEqual(['prod 2', 'test 1', 'prod 0']);
  expect(new URL(page.url()).search).toBe('?tag=customer%3Aacme');
  await rowOf(page, 'Keys', 'test 1').getByRole('link', { name: 'env=test' }).click();
  await expect.poll(names).toEqual(['test 1']);
  expect(await page.getByLabel('Tag').inputValue()).toBe('env=test');
  await page.getByLabel('Tag').fill('');
  expect(await page.getByLabel('Tag').getAttribute('placeholder')).toBe('customer=acme');
  await page.getByLabel('Tag').fill('customer=acme, env=prod');
  await page.getByLabel('Tag').press('Enter');
  await expect.poll(names).toEqual(['prod 2', 'prod 0']);
  expect((await shortcomings(page)).found).toEqual([]);
});

test('the URL filters requests by tag', async () => {
  const { page } = await openConsole(stack, '/console/requests?tag=env:prod');
  expect(await namesIn(page, 'Requests')).toEqual(['prod 2', 'prod 2', 'prod 2', 'prod 0']);
  await page.getByLabel('Tag').fill('env:nowhere');
  await page.getByRole('button', { name: 'Filter' }).click();
  await page.getByText('No recent request matches these filters.').waitFor();
});

test('usage is summed by key and by tag, filtered by the URL, and downloaded', async () => {
  const { page } = await openConsole(stack, '/console/usage?tag=customer:acme');
  const texts = async () =>
    (await rowsOf(page, 'Usage').allInnerTexts()).map((text) => text.replaceAll(/\s+/g, ' ').trim());
  expect(await namesIn(page, 'Usage')).toEqual(['prod 2', 'test 1', 'prod 0']);
  await page.getByText('In total, 6 admitted and 0 refused.').waitFor();
  const file = async () => {
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('button', { name: 'Download CSV' }).click(),
    ]);
    return (await readFile(await download.path(), 'utf8')).split('\r\n');
  };
  expect((await file()).slice(0, 2)).toEqual([
    'id,plan,admitted,refused,name,tags',
    `${idOf(keys[2] as string)},free,3,0,prod 2,"customer=acme, env=prod"`,
  ]);
  await page.getByLabel('Sum by tag').fill('env');
  await page.getByRole('button', { name: 'Filter' }).click();
  await expect.poll(texts).toEqual(['prod 2 4 0', 'test 1 2 0']);
  expect(new URL(page.url()).search).toBe('?by=env&tag=customer%3Aacme');
  expect(await file()).toEqual(['env,keys,admitted,refused', 'prod,2,4,0', 'test,1,2,0', '']);
  await expectReadable(page);
  await page.getByRole('link', { name: 'prod', exact: true }).click();
  await isShown(page);
  expect(new URL(page.url()).search).toBe('?tag=customer%3Aacme%2Cenv%3Dprod');
  await expect.poll(() => namesIn(page, 'Usage')).toEqual(['prod 2', 'prod 0']);
  await page.goto('/console/usage?by=env&from=2026-01-01&to=2026-01-02');
  await page.getByText('No matching key was used in this period.').waitFor();
  await page.getByText(/^Usage before \d{4}-\d\d-\d\d is not kept\.$/).waitFor();
  expect(await page.getByLabel('From').inputValue()).toBe('2026-01-01');
});
