import type { Locator, Page } from 'playwright-core';
import { expect, test } from 'vitest';
import { expectGrounds, expectReadable } from '../support/accessibility.ts';
import { idOf } from '../support/api-key.ts';
import { type WatchedPage, watchedPage } from '../support/browser.ts';
import { send } from '../support/http.ts';
import { startStack } from '../support/stack.ts';

const stack = await startStack();

async function openReference(
  options: Parameters<typeof watchedPage>[1] = {},
  { gateway } = stack,
): Promise<WatchedPage> {
  const watched = await watchedPage(gateway, options);
  await watched.page.goto(`${gateway}/docs`);
  return watched;
}

async function pasteKey(page: Page, key: string): Promise<void> {
  await page.getByLabel('API key').fill(key);
  await page.getByRole('button', { name: 'Show limits' }).click();
  await page.locator('#key-report').waitFor();
}

const OPERATIONS = ['listPets', 'createPet', 'getPet', 'listOrders', 'getLimits'];

const panelOf = (page: Page, operation: string): Locator => page.locator(`#${operation}`);

/** Presses the button and reads what the panel shows. */
async function execute(panel: Locator) {
  await panel.getByRole('button', { name: 'Send request' }).click();
  await expect.poll(() => panel.locator('.status').innerText()).toMatch(/ ms$/);
  return {
    status: await panel.locator('.status').innerText(),
    body: await panel.locator('.answer code').innerText(),
    headers: (await panel.locator('.headers pre').textContent()) ?? '',
  };
}

test('with a pasted key, the panels add, list and get a pet, and the key does not leave the page', async () => {
  const key = await stack.issueKey();
  const { page, faults } = await openReference();
  const list = panelOf(page, 'listPets');
  const stranger = await execute(list);
  expect(stranger.status).toMatch(/^401/);
  expect(stranger.headers).toContain('www-authenticate: Bearer');
  // The browser itself logs a 401, whatever the page does with it.
  expect(faults.splice(0)).toEqual([expect.stringContaining('401')]);
  await pasteKey(page, key);

  const add = panelOf(page, 'createPet');
  await add.getByLabel('Body to send').fill('{"name":"Rex","categoryId":3}');
  const added = await execute(add);
  expect(added.status).toMatch(/^201/);
  const { id } = JSON.parse(added.body) as { id: number };

  await list.getByLabel('status').selectOption('available');
  await list.getByLabel('X-Request-Id').fill('from-the-reference');
  const listed = await execute(list);
  expect(listed.status).toMatch(/^200/);
  expect(JSON.parse(listed.body)).toEqual([{ id, name: 'Rex', categoryId: 3, status: 'available' }]);
  expect(listed.headers).toMatch(/^x-ratelimit-limit: 60$/m);
  expect(listed.headers).toMatch(/^x-request-id: from-the-reference$/m);
  expect(listed.headers).toMatch(/^ratelimit-policy: "minute";q=60;w=60/m);
  await list.getByLabel('status').selectOption('sold');
  await list.getByRole('button', { name: 'Send request' }).click();
  await expect.poll(() => list.locator('.answer code').innerText()).toBe('[]');

  const get = panelOf(page, 'getPet');
  await get.getByLabel('petId').fill(String(id));
  const got = await execute(get);
  expect(JSON.parse(got.body)).toMatchObject({ id, name: 'Rex' });
  expect(got.headers).toMatch(/^sunset: Thu, ?05 Dec 2030/m);

  expect(
    await page.evaluate('JSON.stringify([localStorage, sessionStorage, document.cookie, location.href])'),
  ).not.toContain(key);
  expect(JSON.stringify(stack.log)).not.toContain(key);
  await page.reload();
  expect(await page.locator('body').innerText()).not.toContain(key);
});

test('the page shows the gauges, daily usage and refusals of a pasted key, and keeps them up to date', async () => {
  const key = await stack.issueKey({ name: 'acme', minute: 2, day: 100 });
  const { page, excuse } = await openReference();
  excuse(/429/);
  await page.clock.install();
  await pasteKey(page, key);
  const tile = (name: string) => page.locator(`.tiles div:has(dt:text-is("${name}")) dd`).innerText();
  await page.getByText('acme, plan Free.').waitFor();
  expect(await tile('Minute')).toMatch(/2 of 2 left[\s\S]*Full/);
  expect(await tile('Wait in line')).toMatch(/None/);
  const list = panelOf(page, 'listPets');
  for (const status of [/^200/, /^200/, /^429/]) expect((await execute(list)).status).toMatch(status);
  const refused = await execute(list);
  expect(refused.headers).toMatch(/^retry-after: \d+$/m);
  expect(JSON.parse(refused.body)).toMatchObject({ code: 'rate_limit_exceeded', status: 429 });
  // Refusals of the customer's other programs are listed too.
  await send(`${stack.gateway}/v1/pets/7`, { key });
  await page.clock.fastForward(5_000);
  const why =
    'It was refused: the minute limit was used up\\.( A retry will be admitted from (\\d+ \\w+, )?\\d\\d:\\d\\d(:\\d\\d)?\\.)?';
  const refusalOf = (path: string) => expect.stringMatching(new RegExp(`GET ${path} ${why} What to do$`));
  await expect
    .poll(() => page.locator('#refusals li').allInnerTexts(), { timeout: 15_000 })
    .toEqual([refusalOf('/v1/pets/7'), refusalOf('/v1/pets'), refusalOf('/v1/pets')]);
  await expect.poll(() => tile('Minute')).toMatch(/0 of 2 left[\s\S]*Full again at \d\d:\d\d:\d\d/);
  expect(await tile('Day')).toMatch(/98 of 100 left/);
  // The wait is two minutes at first, which the page shows as `2 min 0 s`.
  await expect.poll(() => tile('Wait in line'), { timeout: 15_000 }).toMatch(/\d+ seconds/);
  // The key has ten strikes, one of which expires every 3.75 s or so.
  expect(await tile('Strikes left before a ban')).toMatch(/^[789]\b/);
  await page.getByText('Usage as a table').click();
  const today = page.locator('#usage tbody tr').first();
  await expect.poll(() => today.locator('td').allInnerTexts()).toEqual(['2', '3']);
  expect(await page.locator('#usage-bars rect').count()).toBe(2);
});

/** Moves the page's clock, and leaves time for the requests that are due. */
async function pass(page: Page, ms: number): Promise<void> {
  await page.clock.fastForward(ms);
  await page.waitForTimeout(500);
}

test('JSON is indented unless that would round an integer', async () => {
  const { page } = await openReference();
  await pasteKey(page, await stack.issueKey({ name: 'indented' }));
  const { body } = await execute(panelOf(page, 'getLimits'));
  expect(body).toMatch(/^\{\n {2}"name": "indented",\n[\s\S]*"refillPerSecond": 0\.\d{16}/);
  let sent = '';
  await page.route('**/v1/pets', (route) => route.fulfill({ body: sent }));
  for (const [text, shown] of [
    ['{"id":9007199254740993}', '{"id":9007199254740993}'],
    ['[1, -9007199254740993]', '[1, -9007199254740993]'],
  ] as const) {
    sent = text;
    expect((await execute(panelOf(page, 'listPets'))).body).toBe(shown);
  }
});

test('if the refusals cannot be read, the page asks again once before it says so, and keeps the last ones', async () => {
  const { page } = await openReference();
  await page.clock.install();
  const refusal = { at: 1795262395, method: 'GET', path: '/v1/pets', code: 'key_banned', limit: null, repeated: 0 };
  let refusals: object[] | null = [refusal];
  let asked = 0;
  await page.route('**/v1/limits?refusals=true', async (route) => {
    const response = await route.fetch();
    asked++;
    await route.fulfill({ response, json: { ...((await response.json()) as object), refusals, waitSeconds: 27_991 } });
  });
  const listed = page.locator('#refusals li');
  const sentence = page.getByText('They cannot be read right now. This page will try again.');
  const none = page.getByText('There are no recent refusals for this key.');
  const expectAfter = async (ms: number, requests: number, isSaid: boolean, entries: number, isEmpty = false) => {
    asked = 0;
    await pass(page, ms);
    const shown = [asked, await sentence.isVisible(), await listed.count(), await none.isVisible()];
    expect([ms, ...shown]).toEqual([ms, requests, isSaid, entries, isEmpty]);
  };
  await pasteKey(page, await stack.issueKey());
  await listed.waitFor();
  expect(await page.locator('#wait').innerText()).toBe('7 h 47 min');
  refusals = null;
  await expectAfter(5_000, 1, false, 1);
  await expectAfter(1_500, 1, true, 1);
  await expectAfter(1_500, 0, true, 1);
  await expectAfter(3_500, 1, true, 1);
  refusals = [refusal, refusal];
  await expectAfter(5_000, 1, false, 2);
  refusals = null;
  await pasteKey(page, await stack.issueKey());
  await expectAfter(100, 0, false, 0);
  refusals = [];
  await expectAfter(1_500, 1, false, 0, true);
});

test('a ban is shown with the time at which it expires', async () => {
  const key = await stack.issueKey({ name: 'was too loud' });
  const { page } = await openReference();
  await page.clock.install();
  await pasteKey(page, key);
  await stack.admin('PUT', `/keys/${idOf(key)}/ban`, { seconds: 600, reason: 'a test' });
  await page.clock.fastForward(5_000);
  // Ten minutes from now may be tomorrow. The date is shown then.
  await page.getByText(/was too loud is banned until (\d+ \w+, \d\d:\d\d|\d\d:\d\d:\d\d)\. /).waitFor();
  await page.getByText(/^Banned until (\d+ \w+, \d\d:\d\d|\d\d:\d\d:\d\d)$/).waitFor();
});

test('the page requests limits at most every 5 s, only while it is visible, and rarely for an invalid key', async () => {
  const key = await stack.issueKey();
  const { page, excuse } = await openReference();
  excuse(/401/);
  await page.clock.install();
  let asked = 0;
  page.on('request', (request) => {
    if (request.url().includes('/v1/limits')) asked++;
  });
  await pasteKey(page, key);
  for (let times = 0; times < 3; times++) await pass(page, 4_000);
  expect(asked).toBeGreaterThanOrEqual(2);
  expect(asked).toBeLessThanOrEqual(3);
  const show = (isHidden: boolean) =>
    page.evaluate(
      `Object.defineProperty(document, 'hidden', { configurable: true, get: () => ${isHidden} }); document.dispatchEvent(new Event('visibilitychange'))`,
    );
  await show(true);
  asked = 0;
  await pass(page, 6_000);
  expect(asked).toBe(0);
  await show(false);
  await expect.poll(() => asked).toBe(1);
  await page.getByLabel('API key').fill('as_abcdefghijkl_wrong');
  await page.getByRole('button', { name: 'Show limits' }).click();
  await page.getByText('The gateway does not accept this key').waitFor();
  expect(await page.locator('#key-report').isVisible()).toBe(false);
  asked = 0;
  await pass(page, 6_000);
  expect(asked).toBe(0);
});

test('a rejected key is checked again once a minute, and is shown when it works again', async () => {
  const key = await stack.issueKey({ name: 'back again' });
  const path = `/keys/${idOf(key)}`;
  const { page, excuse } = await openReference();
  excuse(/401/);
  await page.clock.install();
  await pasteKey(page, key);
  await stack.admin('PATCH', path, { disabled: true });
  await page.clock.fastForward(5_000);
  await page.getByText('The gateway does not accept this key').waitFor();
  await stack.admin('PATCH', path, { disabled: false });
  let asked = 0;
  page.on('request', () => asked++);
  await pass(page, 50_000);
  expect(asked).toBe(0);
  await page.clock.fastForward(10_000);
  await page.getByText('back again, plan Free.').waitFor();
  expect(await page.locator('#key-report').isVisible()).toBe(true);
});

test('while the gateway refuses the address, the page reports it and respects Retry-After', async () => {
  const own = await startStack();
  const { page, excuse } = await watchedPage(own.gateway);
  excuse(/429/);
  await page.clock.install();
  await page.goto(`${own.gateway}/docs`);
  const key = await own.issueKey();
  await pasteKey(page, key);
  // Uses up the allowance of the address until the page reports that it is out of date.
  let isNoticed = false;
  const noise = (async () => {
    while (!isNoticed) await Promise.all(Array.from({ length: 30 }, () => send(`${own.gateway}/v1/limits`, { key })));
  })();
  await page.getByText(/^Not up to date: .+\. Next attempt in [\d,]+ seconds\.$/).waitFor();
  isNoticed = true;
  await noise;
  expect(await page.locator('#key-report').isVisible()).toBe(true);
  let asked = 0;
  page.on('request', () => asked++);
  await pass(page, 7_000);
  expect(asked).toBe(0);
});

test('a key that was typed, but not sent with its form, is used by the next request', async () => {
  const key = await stack.issueKey();
  const { page } = await openReference();
  await page.getByLabel('API key').fill(key);
  const list = panelOf(page, 'listPets');
  expect((await execute(list)).status).toMatch(/^200/);
  expect(await list.locator('.request pre:visible').innerText()).toContain(`Bearer ${key}`);
  await list.getByLabel('X-Request-Id').fill('🐕');
  await list.getByRole('button', { name: 'Send request' }).click();
  await list.getByText('X-Request-Id can contain only letters, digits and signs of ASCII.').waitFor();
  expect(await list.locator('.status').innerText()).toBe('Not sent');
  await page.getByLabel('API key').fill('as_wrong');
  await page.getByRole('button', { name: 'Show limits' }).click();
  await page.getByText('This is not an API key. Keys look like as_…_…').waitFor();
});

test('code samples name this gateway and the pasted key until it is cleared, and are copied as shown', async () => {
  const key = await stack.issueKey();
  const { page } = await openReference({ permissions: ['clipboard-read', 'clipboard-write'] });
  await page.clock.install();
  const sample = panelOf(page, 'createPet').locator('.request pre:visible');
  const placeholders = { curl: '$KEY', fetch: 'process.env.KEY', Python: 'os.environ["KEY"]' };
  const choose = (language: string) => panelOf(page, 'listPets').getByRole('button', { name: language }).click();
  for (const [language, placeholder] of Object.entries(placeholders)) {
    await choose(language);
    expect(await sample.innerText()).toContain(`${stack.gateway}/v1/pets`);
    expect(await sample.innerText()).toContain(placeholder);
  }
  const note = async () => (await page.locator('#start + .beside .quiet:visible').allInnerTexts()).join();
  expect(await note()).toMatch(/^In bash or zsh, run this first, alone, and then paste the key\./);
  // Pasted together, `read` would take the next command as the key, and the key would be run as a command.
  const copied: string[] = [];
  for (const copy of await page.locator('#start + .beside .copy').all()) {
    await copy.click();
    copied.push(await page.evaluate('navigator.clipboard.readText()'));
  }
  expect(copied).toEqual([
    'read -rs KEY && export KEY',
    `curl -i -H "Authorization: Bearer $KEY" ${stack.gateway}/v1/pets`,
  ]);
  await pasteKey(page, key);
  expect(await note()).toBe("This command contains your key, which will be in the shell's history.");
  for (const [language, placeholder] of Object.entries(placeholders)) {
    await choose(language);
    expect(await sample.innerText()).toContain(`Bearer ${key}`);
    expect(await sample.innerText()).not.toContain(placeholder);
    const copy = panelOf(page, 'createPet').locator('.request .copy');
    await copy.click();
    await expect.poll(() => page.evaluate('navigator.clipboard.readText()')).toBe(await sample.innerText());
    await expect.poll(() => copy.innerText()).toBe('Copied');
    await page.clock.fastForward(5_000);
    await expect.poll(() => copy.innerText()).toBe('Copy');
  }
  await page.getByRole('button', { name: 'Forget key' }).click();
  expect(await page.locator('body').innerText()).not.toContain(key);
  expect(await note()).toMatch(/^In bash or zsh/);
  expect(await sample.innerText()).toContain('os.environ["KEY"]');
  expect(await page.locator('#key-report').isVisible()).toBe(false);
  await page.getByLabel('API key').fill('not a key');
  await page.getByRole('button', { name: 'Show limits' }).click();
  await page.getByText('This is not an API key.').waitFor();
  expect(await sample.innerText()).toContain('os.environ["KEY"]');
  await pasteKey(page, `Bearer ${key}`);
  expect(await sample.innerText()).toContain(`Bearer ${key}"`);
});

test('every operation except store orders can be tried, and lists only its own errors', async () => {
  const { page } = await openReference();
  const buttons = OPERATIONS.map((operation) => panelOf(page, operation).locator('.send, input').count());
  expect((await Promise.all(buttons)).map((count) => count > 0)).toEqual([true, true, true, false, true]);
  expect(await page.locator('.operation:has(.deprecated)').getAttribute('data-path')).toBe('/v1/pets/{petId}');
  const statuses = await panelOf(page, 'createPet').locator('.outcomes b').allInnerTexts();
  expect(statuses).toEqual(['201', '409', '413', '415']);
  for (const operation of OPERATIONS)
    expect(((await panelOf(page, operation).boundingBox()) ?? { height: Number.NaN }).height).toBeLessThan(1_600);
});

test('request and response are side by side on a wide page and stacked on a phone', async () => {
  const { page } = await openReference({ viewport: { width: 1_280, height: 800 } });
  const boxOf = async (operation: string, part: string) => {
    const box = await panelOf(page, operation).locator(part).boundingBox();
    return box ?? expect.fail(`${part} of ${operation} is not shown`);
  };
  for (const operation of OPERATIONS) {
    const [request, answer] = [await boxOf(operation, '.request'), await boxOf(operation, '.answer')];
    expect(answer.y).toBe(request.y);
    expect(answer.x).toBeGreaterThan(request.x + request.width);
    expect(answer.x + answer.width).toBeGreaterThan(1_200);
  }
  await page.setViewportSize({ width: 375, height: 800 });
  const [request, answer] = [await boxOf('createPet', '.request'), await boxOf('createPet', '.answer')];
  expect(answer.x).toBe(request.x);
  expect(answer.y).toBeGreaterThanOrEqual(request.y + request.height);
});

test('the page fits, is readable and passes axe-core in each theme', async () => {
  const { page } = await openReference();
  const key = await stack.issueKey({ name: 'x'.repeat(100), minute: 1 });
  await pasteKey(page, key);
  await execute(panelOf(page, 'listPets'));
  await send(`${stack.gateway}/v1/pets/${'7'.repeat(200)}`, { key });
  await page.locator('#refusals').getByText('7'.repeat(200)).waitFor();
  for (const folded of await page.locator('details:visible').all()) await folded.locator('summary').click();
  expect(await expectReadable(page)).toBeGreaterThan(200);
  await expectGrounds(page, 'documentElement', { dark: 'rgb(20, 23, 27)', light: 'rgb(255, 255, 255)' });
  await page.setViewportSize({ width: 320, height: 800 });
  expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(320);
  const plans = page.getByRole('region', { name: 'Plans' });
  await plans.press('ArrowRight');
  await expect.poll(() => plans.evaluate((region) => region.scrollLeft)).toBeGreaterThan(0);
});

test('in forced colours, meters and legends keep their colours, and the language in use is outlined', async () => {
  const { page } = await openReference();
  const key = await stack.issueKey();
  await pasteKey(page, key);
  const styles = () =>
    page.evaluate(`[
      ...['meter', '.legend::before'].map((one) => {
        const [name, part] = one.split('::');
        const { forcedColorAdjust, backgroundColor } = getComputedStyle(document.querySelector(name), part);
        return part === undefined ? forcedColorAdjust : backgroundColor;
      }),
      getComputedStyle(document.querySelector('[aria-pressed="true"]')).outlineStyle,
    ]`);
  await page.emulateMedia({ forcedColors: 'active' });
  expect(await styles()).toEqual(['none', 'rgb(11, 87, 168)', 'solid']);
});
