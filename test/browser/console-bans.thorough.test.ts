import { expect, test } from 'vitest';
import { shortcomings } from '../support/accessibility.ts';
import { idOf } from '../support/api-key.ts';
import { openBrowser } from '../support/browser.ts';
import { openConsole, rowOf, visit } from '../support/console.ts';
import { send } from '../support/http.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { startStack } from '../support/stack.ts';

const browser = await openBrowser();
const { url: REDIS_URL, redis } = await emptyDatabase();
const stack = await startStack({ REDIS_URL, REDIS_TIMEOUT_MS: '5000' });

test.for([1_280, 375])(
  'at %i px a ban is shown with its end, its place in the series and the number of refused requests',
  async (width) => {
    await stack.admin('PATCH', '/plans/free', { ban_after: 2, ban_grace_seconds: 0, ban_seconds: 300 });
    const key = await stack.issueKey({ name: `loud ${width}`, minute: 1 });
    for (let sent = 0; sent < 9; sent++) await send(`${stack.gateway}/v1/pets`, { key });
    const { page, faults } = await openConsole(browser, stack, '/console/keys?state=banned', {
      viewport: { width, height: 800 },
    });
    const line = /until (\d+ \w+, )?\d\d:\d\d \(in [45] min\), first ban, refused 6 since/;
    await rowOf(page, 'Keys', `loud ${width}`).getByText(line).waitFor();
    expect((await shortcomings(page)).found).toEqual([]);
    await visit(page, `/console/key?id=${idOf(key)}`);
    await page.locator('.notice').getByText(line).waitFor();
    await visit(page, '/console/bans');
    await rowOf(page, 'Bans', `loud ${width}`).getByText(line).waitFor();
    await visit(page, '/console/requests');
    await rowOf(page, 'Requests', `loud ${width}`).first().getByText(line).waitFor();
    expect((await shortcomings(page)).found).toEqual([]);
    await visit(page, '/console/usage');
    await rowOf(page, 'Usage', `loud ${width}`).getByText(line).waitFor();
    await visit(page, '/');
    await rowOf(page, 'Busiest keys', `loud ${width}`).getByText(line).waitFor();
    expect(faults).toEqual([]);
  },
);

test('a page beyond the end of a list says so instead of showing an empty list', async () => {
  await stack.issueKey({ name: 'only one' });
  const { page, faults } = await openConsole(browser, stack, '/console/keys?offset=500');
  await page.getByText('The list ends before this page.').waitFor();
  await visit(page, '/console/bans?offset=500');
  await page.getByText('The list ends before this page.').waitFor();
  expect(faults).toEqual([]);
});

test('the minutes of a key show how many requests its bans refused, even after they are lifted', async () => {
  const key = await stack.issueKey({ name: 'lifted', minute: 1 });
  for (let sent = 0; sent < 9; sent++) await send(`${stack.gateway}/v1/pets`, { key });
  await stack.admin('DELETE', `/keys/${idOf(key)}/ban`);
  const { page, faults } = await openConsole(browser, stack, `/console/key?id=${idOf(key)}`);
  const minutes = page.locator('figure', { hasText: 'Requests per minute as a table' });
  await minutes.locator('summary').click();
  const [head] = await minutes.locator('thead tr').allInnerTexts();
  expect(head?.split(/\s*\t\s*/)).toEqual(['Time', 'Admitted', 'Refused', 'Refused by a ban']);
  const rows = (await minutes.locator('tbody tr').allInnerTexts()).map((row) => row.split('\t').slice(1).map(Number));
  expect(rows.reduce((sum, row) => sum.map((one, at) => one + (row[at] ?? 0)), [0, 0, 0])).toEqual([1, 3, 5]);
  expect(faults).toEqual([]);
});

test('a key whose limit is too low for its clients is marked in the list and on its page', async () => {
  const id = idOf(await stack.issueKey({ name: 'small' }));
  const [now, minute] = [Date.now() / 1_000, Math.floor(Date.now() / 60_000)];
  const marks = Array.from({ length: 15 }, (_, at) => `${minute - 15 + at}:0:${at === 0 ? 0 : 240 + 60 * at}`);
  await redis.hset(`gateway:key:{${id}}`, {
    left: `${now} 0/60 900/1000`,
    refusals: `${now + 241} ${now + 5} 0`,
    refused: 1_140,
  });
  await redis.hset(`gateway:marks:{${id}}`, { usage_minutes: marks.join(' ') });
  const { page, faults } = await openConsole(browser, stack, '/console/keys');
  const line = /limit too low for its clients: a refused request waits 4 min/i;
  await rowOf(page, 'Keys', 'small').getByText(line).waitFor();
  await visit(page, `/console/key?id=${id}`);
  await page.locator('.notice').getByText(line).waitFor();
  expect((await shortcomings(page)).found).toEqual([]);
  expect(faults).toEqual([]);
});
