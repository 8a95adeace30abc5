import type { Page } from 'playwright-core';
import { expect, test } from 'vitest';
import { shortcomings } from '../support/accessibility.ts';
import { idOf } from '../support/api-key.ts';
import { shareSession } from '../support/browser.ts';
import { isShown, openConsole, openRow, rowOf, visit } from '../support/console.ts';
import { faultyCore, okTo } from '../support/faulty-core.ts';
import { send } from '../support/http.ts';
import { startStack } from '../support/stack.ts';

/** The page of requests, and the explanation of each request. */

const stack = await startStack();
await shareSession(stack.adminUrl);

const ask = (id: string, key?: string, path = '/v1/pets', gateway = stack.gateway) =>
  send(gateway + path, { ...(key && { key }), headers: { 'X-Request-Id': id } });
const idsIn = (page: Page): Promise<string[]> => page.locator('tr.opens .cut').allInnerTexts();
const opened = (page: Page) => page.locator('.request');

test('requests are listed with key, status, outcome and duration, and new ones appear automatically', async () => {
  const key = await stack.issueKey({ name: 'listed', minute: 1 });
  for (const id of ['l-served', 'l-refused']) await ask(id, key);
  await ask('l-stranger');
  const { page } = await openConsole(stack);
  await page.getByRole('navigation').getByRole('link', { name: 'Requests' }).click();
  const textOf = async (id: string) => (await rowOf(page, 'Requests', id).first().innerText()).replaceAll(/\s+/g, ' ');
  await expect.poll(() => textOf('l-served')).toMatch(/listed \S+ GET \/v1\/pets 200 Admitted [<\d. ]+ ms l-served/);
  expect(await textOf('l-refused')).toMatch(/GET \/v1\/pets 429 Refused [<\d. ]+ ms/);
  expect(await textOf('l-stranger')).toMatch(/none GET \/v1\/pets 401 No valid key/);
  await ask('l-later', key);
  await expect.poll(async () => (await idsIn(page))[0], { timeout: 10_000 }).toBe('l-later');
  await rowOf(page, 'Requests', 'l-served').getByRole('link', { name: 'listed' }).click();
  await page.getByRole('heading', { name: 'listed' }).waitFor();
});

test('a row expands by keyboard and by click, and shows what happened, why, until when, and what to do', async () => {
  const key = await stack.issueKey({ name: 'opened', plan: 'pro', minute: 50, day: 2 });
  for (const id of ['o-first', 'o-second', 'o-refused']) await ask(id, key);
  const { page } = await openConsole(stack, `/console/requests?keyId=${idOf(key)}`);
  const button = rowOf(page, 'Requests', 'o-refused').getByRole('button');
  await button.focus();
  await page.keyboard.press('Enter');
  expect(await button.getAttribute('aria-expanded')).toBe('true');
  const text = (await opened(page).innerText()).replaceAll(/\s+/g, ' ');
  expect(text).toMatch(
    /^GET \/v1\/pets came from 127\.0\.0\.1 with the secret \S+ and was answered with 429 rate_limit_exceeded after [<\d. ]+ ms\. The key had used up its limit of 2 requests per day\. The client could retry at [^Z]+?\. Requests work again in \d+ hours?\. Raise the limit of the key or of its plan \(pro\)/,
  );
  expect(text).toMatch(
    /Time spent decision [<\d. ]+ ms, waiting [<\d. ]+ ms .*Plan Pro .*Minute limit 48[.\d]* of 50 .*Day limit 0 of 2 requests left/,
  );
  await opened(page).getByRole('link', { name: 'Runbook' }).waitFor();
  expect(await opened(page).getByRole('link', { name: 'Plan Pro' }).getAttribute('href')).toBe('/console/plans');
  expect(await opened(page).getByRole('link', { name: 'Key opened' }).getAttribute('href')).toContain(idOf(key));
  await page.keyboard.press(' ');
  await opened(page).waitFor({ state: 'detached' });
  // A click anywhere on the row expands it, except on a link.
  await rowOf(page, 'Requests', 'o-first').getByText('Admitted').click();
  await opened(page).getByText('2 → 1 of 2 requests left').waitFor();
  const parts = (await opened(page).innerText()).replaceAll(/\s+/g, ' ');
  expect(parts).toMatch(/decision [<\d. ]+ ms, waiting [<\d. ]+ ms, core [<\d. ]+ ms, sending [<\d. ]+ ms/);
  await rowOf(page, 'Requests', 'o-second').getByRole('link', { name: 'o-second' }).click();
  await expect.poll(() => idsIn(page)).toEqual(['o-second']);
  await opened(page).getByText('1 → 0 of 2 requests left').waitFor();
});

test('a request refused by a ban links to the bans and to an existing heading of the runbook', async () => {
  const key = await stack.issueKey({ name: 'banned' });
  await stack.admin('PUT', `/keys/${idOf(key)}/ban`, { seconds: 600, reason: 'too loud' });
  await ask('b-banned', key);
  const { page, excuse } = await openConsole(stack, '/console/requests?q=b-banned');
  // The console requests the revoked key, which returns 404.
  excuse(/404/);
  // It is the only expanded row.
  await opened(page).getByText('An operator had banned the key until').waitFor();
  expect(await opened(page).innerText()).toMatch(/The key is banned until [\d:]+ \(in (10|9) min\), refused 1 since\./);
  expect(await opened(page).getByRole('link', { name: 'Bans' }).getAttribute('href')).toBe('/console/bans');
  await stack.admin('DELETE', `/keys/${idOf(key)}/ban`);
  await page.reload();
  await opened(page).getByText('Requests with the key work again now.').waitFor();
  await stack.admin('PATCH', `/keys/${idOf(key)}`, { disabled: true });
  await page.reload();
  await opened(page).getByText('The key is disabled now.').waitFor();
  await stack.admin('DELETE', `/keys/${idOf(key)}`);
  await page.reload();
  await opened(page).getByText('The key has been revoked since.').waitFor();
  await opened(page).getByRole('link', { name: 'Runbook' }).click();
  await page.getByRole('heading', { name: 'A client complains of 429' }).waitFor();
  expect(await page.locator(':target').count()).toBe(1);
});

test('the list of requests pauses while a row is expanded and continues once it is collapsed', async () => {
  const key = await stack.issueKey({ name: 'still' });
  for (const id of ['s-1', 's-2']) await ask(id, key);
  // The clock is that of the whole session.
  const { page } = await openConsole(stack, '/', {});
  await page.clock.install();
  await visit(page, `/console/requests?keyId=${idOf(key)}`);
  await openRow(page, 'Requests', 's-1');
  await page.getByText('While a request is open, the list is not updated.').waitFor();
  await ask('s-3', key);
  await page.clock.fastForward(4_000);
  await page.waitForTimeout(500);
  expect(await idsIn(page)).toEqual(['s-2', 's-1']);
  await rowOf(page, 'Requests', 's-1').first().getByRole('button').click();
  await expect.poll(() => idsIn(page), { timeout: 10_000 }).toEqual(['s-3', 's-2', 's-1']);
});

test('a request in progress is marked as such until it has its result', async () => {
  const held = Promise.withResolvers<void>();
  const core = await faultyCore(async (socket, head) => {
    await held.promise;
    socket.write(okTo(head));
  });
  const slow = await startStack({ CORE_URL: core, CORE_TIMEOUT_MS: '60000' });
  const { page } = await openConsole(slow, '/console/requests');
  await page.getByText('There are no requests yet.').waitFor();
  const asked = ask('u-slow', await slow.issueKey(), '/v1/pets', slow.gateway);
  await openRow(page, 'Requests', 'In progress');
  await opened(page).getByText('It is in progress.').waitFor();
  held.resolve();
  await asked;
  await opened(page).getByText('was answered with 200 after').waitFor();
});

test('filters are part of the URL and are kept while paging, and an invalid one is explained', async () => {
  const other = await startStack();
  const key = await other.issueKey({ name: 'many', day: 55 });
  for (let at = 0; at < 57; at++) await ask(`m-${at}`, key, '/v1/pets', other.gateway);
  await ask('m-stranger', undefined, '/v1/pets', other.gateway);
  const { page, excuse } = await openConsole(other, '/console/requests');
  await page.getByLabel('Status').fill('2xx');
  await page.getByLabel('Key id').fill(key);
  await page.getByRole('button', { name: 'Filter' }).click();
  await expect.poll(() => page.locator('tr.opens').count()).toBe(50);
  // Only the id of a pasted key is kept.
  expect(new URL(page.url()).search).toBe(`?keyId=${idOf(key)}&status=2xx`);
  await page.getByRole('button', { name: 'Older' }).click();
  await expect.poll(() => idsIn(page)).toEqual(['m-4', 'm-3', 'm-2', 'm-1', 'm-0']);
  await page.reload();
  await isShown(page);
  await expect.poll(() => idsIn(page)).toEqual(['m-4', 'm-3', 'm-2', 'm-1', 'm-0']);
  expect(await page.getByLabel('Status').inputValue()).toBe('2xx');
  await page.getByRole('button', { name: 'Newest' }).click();
  await expect.poll(() => page.locator('tr.opens').count()).toBe(50);

  await visit(page, '/console/requests?code=unauthorized');
  expect(await idsIn(page)).toEqual(['m-stranger']);
  await page.getByRole('link', { name: 'Clear' }).click();
  await expect.poll(() => page.locator('tr.opens').count()).toBe(50);
  expect(await page.getByLabel('Error code').inputValue()).toBe('');
  await page.getByLabel('From').fill('2199-01-01T00:00');
  await page.getByRole('button', { name: 'Filter' }).click();
  await page.getByText('No recent request matches these filters.').waitFor();
  expect(new URL(page.url()).searchParams.get('from')).toMatch(/^2(198-12-31|199-01-01)T\S+Z$/);
  await page.getByLabel('From').fill('');
  await page.getByLabel('To').fill('2199-01-01T00:00');
  await page.getByRole('button', { name: 'Filter' }).click();
  await expect.poll(() => page.locator('tr.opens').count()).toBe(50);
  excuse(/400/);
  await page.getByLabel('Status').fill('600');
  await page.getByRole('button', { name: 'Filter' }).click();
  await page.getByText('status must be a status such as 429, or a class such as 4xx.').waitFor();
});

test('the filter for a key accepts its full name, and offers a choice if several keys match', async () => {
  const other = await startStack();
  const [one, two, three] = [
    await other.issueKey({ name: 'Acme' }),
    await other.issueKey({ name: 'acme' }),
    await other.issueKey({ name: 'acme reports' }),
  ];
  for (const [id, key] of Object.entries({ 'n-1': one, 'n-2': two, 'n-3': three }))
    await ask(id, key, '/v1/pets', other.gateway);
  const { page } = await openConsole(other, '/console/requests?status=2xx');
  const shown = () => new URL(page.url()).search;
  const filterBy = async (text: string) => {
    await page.getByLabel('Key id').fill(text);
    await page.getByRole('button', { name: 'Filter' }).click();
  };
  await filterBy('ACME Reports');
  await expect.poll(shown).toBe(`?keyId=${idOf(three)}&status=2xx`);
  await expect.poll(() => idsIn(page)).toEqual(['n-3']);
  await other.admin('PUT', `/keys/${idOf(one)}/ban`, { seconds: 600, reason: 'too loud' });
  await other.admin('PATCH', `/keys/${idOf(two)}`, { disabled: true });
  await filterBy('acme');
  const choice = page.getByRole('status').filter({ hasText: 'Several keys have the name “acme”. Choose one:' });
  await expect.poll(() => choice.getByRole('link').count()).toBe(2);
  const lineOf = (key: string) => choice.locator('li', { hasText: idOf(key) });
  expect(await lineOf(one).innerText()).toMatch(/Banned until [\d:]+ \(in (10|9) min\), refused 0 since$/);
  expect(await lineOf(two).innerText()).toMatch(/Disabled$/);
  expect(await page.getByText('No recent request').count()).toBe(0);
  expect((await shortcomings(page)).found).toEqual([]);
  await lineOf(one).getByRole('link').click();
  await expect.poll(shown).toBe(`?keyId=${idOf(one)}&status=2xx`);
  await expect.poll(() => idsIn(page)).toEqual(['n-1']);
  expect(await page.getByLabel('Key id').inputValue()).toBe(idOf(one));
  await choice.waitFor({ state: 'detached' });
  // A part of a name selects nothing by itself, even if only one name contains it.
  await filterBy('REPORTS');
  const similar = page.getByRole('status').filter({ hasText: 'No key has the id or name “REPORTS”.' });
  await similar.getByText('These names contain it:').waitFor();
  expect(shown()).toBe('?keyId=REPORTS&status=2xx');
  await similar.getByRole('link', { name: 'acme reports' }).click();
  await expect.poll(() => idsIn(page)).toEqual(['n-3']);
});

test('the filter for a key finds a revoked key by its id or name, and says so if no key has that name', async () => {
  const key = await stack.issueKey({ name: 'Gone away' });
  // A client can choose a request id that is the name of a key.
  await ask('like-a-name', await stack.issueKey({ name: 'like-a-name' }));
  await ask('g-1', key);
  await stack.admin('DELETE', `/keys/${idOf(key)}`);
  const { page } = await openConsole(stack, '/console/requests?keyId=gone+away');
  for (const address of [undefined, `/console/requests?keyId=${idOf(key)}`]) {
    if (address !== undefined) await visit(page, address);
    await page.getByText(`The key Gone away was revoked. Its id was ${idOf(key)}.`).waitFor();
    await expect.poll(() => idsIn(page)).toEqual(['g-1']);
    expect(new URL(page.url()).search).toBe(`?keyId=${idOf(key)}`);
  }
  const second = await stack.issueKey({ name: 'gone away' });
  await stack.admin('DELETE', `/keys/${idOf(second)}`);
  await visit(page, '/console/requests?keyId=gone+away');
  await page.getByRole('link', { name: 'Gone away', exact: true }).click();
  await expect.poll(() => idsIn(page)).toEqual(['g-1']);
  await visit(page, '/console/requests?keyId=nosuch');
  await page.getByText('No key has the id or name “nosuch”.').waitFor();
  expect(await page.getByText('No recent request').count()).toBe(0);
  // It has the form of an id, and requests with an unknown id are listed too.
  await visit(page, '/console/requests?keyId=nosuchkey123');
  await page.getByText('No recent request matches these filters.').waitFor();
  for (let at = 0; at < 22; at++) await stack.issueKey({ name: `bulk ${at}` });
  await visit(page, '/console/requests?keyId=bulk');
  await page.getByText('and 2 more keys').waitFor();
  await visit(page, '/console/requests?keyId=like-a-name');
  await expect.poll(() => idsIn(page)).toEqual(['like-a-name']);
});

test.for([
  ['fractions of a second', { from: '2026-07-01T10:00:10.101Z', to: '2026-07-01T10:00:13.601Z' }],
  [
    'the hour that is repeated when clocks change',
    { from: '2026-10-25T00:30:00.000Z', to: '2026-10-25T01:30:00.000Z' },
  ],
] as const)('changing another filter preserves the period, even %s', async ([, period]) => {
  const query = new URLSearchParams(period);
  const { page } = await openConsole(stack, `/console/requests?${query}`, {
    timezoneId: 'Europe/Berlin',
  });
  const shown = () => Object.fromEntries(new URL(page.url()).searchParams);
  await page.getByLabel('Status').fill('2xx');
  await page.getByRole('button', { name: 'Filter' }).click();
  await expect.poll(shown).toEqual({ status: '2xx', ...period });
  await page.getByLabel('From').fill('2026-06-30T12:00:05');
  await page.getByRole('button', { name: 'Filter' }).click();
  await expect.poll(shown).toEqual({ status: '2xx', ...period, from: '2026-06-30T10:00:05.000Z' });
  await page.getByLabel('To').fill('');
  await page.getByRole('button', { name: 'Filter' }).click();
  await expect.poll(shown).toEqual({ status: '2xx', from: '2026-06-30T10:00:05.000Z' });
});

test('gateways that did not answer are named, and identical refusals are one row', async () => {
  const { page } = await openConsole(stack);
  await page.route(
    ({ pathname }) => pathname === '/requests',
    async (route) => {
      const answer = await route.fetch();
      const body = await answer.json();
      const requests = body.requests.map((one: object) => ({ ...one, repeated: 1_204 }));
      await route.fulfill({ response: answer, json: { ...body, requests, missing: ['host-b:7', 'host-c:8'] } });
    },
  );
  await ask('r-stranger');
  await visit(page, '/console/requests?q=r-stranger');
  await page.getByText('This list is incomplete. These gateways did not respond: host-b:7, host-c:8.').waitFor();
  await rowOf(page, 'Requests', 'r-stranger').first().getByText('and 1,204 more').waitFor();
  await opened(page).getByText('Its address sent 1,204 more like it in the same minute.').waitFor();
});
