import { Redis } from 'ioredis';
import { expect, test, vi } from 'vitest';
import type { DoctorAnswer } from '../../gateway/operators/api/answers.ts';
import { idOf } from '../support/api-key.ts';
import { FAILED_REQUESTS } from '../support/browser.ts';
import { cleanUp } from '../support/clean-up.ts';
import { openConsole, question, rowOf, visit } from '../support/console.ts';
import { send } from '../support/http.ts';
import { startRedisServer } from '../support/redis.ts';
import { startStack } from '../support/stack.ts';

const PATIENCE = { timeout: 30_000 };

/** Starts a gateway with its own Redis. */
async function startWithRedis() {
  const server = await startRedisServer();
  cleanUp(() => server.stop());
  const redis = new Redis(server.url);
  redis.on('error', () => {});
  cleanUp(() => redis.disconnect());
  return { server, redis, stack: await startStack({ REDIS_URL: server.url }) };
}

test('the console shows a Redis outage, rejected plan values, and the loss of the gateway', async () => {
  const { server, redis, stack } = await startWithRedis();
  const key = await stack.issueKey({ name: 'known', minute: 1_000_000, day: 1_000_000 });
  const { page, excuse } = await openConsole(stack, '/console/plans');
  excuse(FAILED_REQUESTS);
  const state = page.locator('#state');
  // Only requests to Redis reveal an outage.
  const shows = (what: RegExp) =>
    vi.waitFor(async () => {
      await send(`${stack.gateway}/v1/pets`, { key }).catch(() => {});
      expect(await state.innerText()).toMatch(what);
    }, PATIENCE);
  await shows(/All well/);

  await redis.hset('gateway:plans', 'free.minute', '<b>lots</b>');
  await page.getByText('Free, requests per minute: “<b>lots</b>” is rejected, 60 stays in force.').waitFor();
  await shows(/1 plan value not in force/);
  await redis.config('SET', 'maxmemory', '1gb', 'maxmemory-policy', 'allkeys-lru');
  await shows(/Redis memory[\s\S]*maxmemory-policy is allkeys-lru/);
  await redis.config('SET', 'maxmemory-policy', 'noeviction');
  await shows(/1 plan value not in force/);
  await redis.hset('gateway:plans', 'free.minute', '61');
  await page.getByText('is rejected').waitFor({ state: 'detached' });
  await rowOf(page, 'In force', 'Free').getByText('61', { exact: true }).waitFor();

  // No gateway can read a value of this type, until somebody deletes it.
  await redis.multi().del('gateway:plans').set('gateway:plans', 'text').exec();
  await shows(/Plan table[\s\S]*cannot be read; the last good one stays in force[\s\S]*Since \d\d:\d\d/);
  const ready = async () => (await send(`${stack.adminUrl}/readyz`)).text;
  expect(await ready()).toContain('plan table cannot be read; the last good one stays in force (fault since ');
  const { findings } = (await stack.admin('GET', '/doctor')).json as DoctorAnswer;
  expect(findings.find(({ about }) => about === 'plan table')?.advice).toContain('run DEL gateway:plans');
  await redis.del('gateway:plans');
  await shows(/All well/);

  await server.stop();
  // Without client requests, only failed reads of keys and plans show the outage.
  await state.getByText('Redis is not connected. The data on this page is out of date.').waitFor(PATIENCE);
  await shows(/Redis is unavailable[\s\S]*Decisions are local[\s\S]*Since \d\d:\d\d/);
  // Data that was read before stays visible, with a note that it is old.
  await page.getByText('Not up to date: Redis is not connected.').first().waitFor();
  await rowOf(page, 'In force', 'Free').getByText('61', { exact: true }).waitFor();
  for (const path of ['/console/keys', '/console/bans', `/console/key?id=${idOf(key)}`]) {
    await visit(page, path);
    await page.getByText('Redis is not connected.').first().waitFor(PATIENCE);
  }
  // Redis returns without its data, and the gateway writes the plans back.
  await server.restart();
  await expect.poll(() => redis.hget('gateway:plans', 'free.minute').catch(() => undefined)).toBe('61');
  await shows(/Changes by operators\s+They were lost, because Redis has older data[\s\S]*Since \d\d:\d\d/);

  await stack.stop();
  await shows(/No response[\s\S]*Since \d\d:\d\d/);
});

test('a value of the wrong type in Redis is named, and Redis is not reported as down', async () => {
  const { redis, stack } = await startWithRedis();
  await stack.issueKey();
  const why = (name: string) => `${name} in Redis holds a value of the wrong type. Check the value, then delete it.`;
  const { page, excuse } = await openConsole(stack, '/console/keys');
  excuse(FAILED_REQUESTS);
  const state = page.locator('#state');
  await redis.rename('gateway:keys', 'test:keys');
  await redis.set('gateway:keys', 'foo');
  await state.getByText('Data cannot be read').waitFor(PATIENCE);
  await state.getByText(why('gateway:keys')).waitFor(PATIENCE);
  await page.getByText(`Not up to date: ${why('gateway:keys')}`).waitFor(PATIENCE);
  expect((await stack.admin('POST', '/keys', { name: 'test', plan: 'free' })).json).toMatchObject({
    message: `The change was not made. ${why('gateway:keys')}`,
  });
  expect((await stack.admin('GET', '/doctor')).json).toMatchObject({
    findings: expect.arrayContaining([expect.objectContaining({ about: 'keys', advice: why('gateway:keys') })]),
  });
  await redis.rename('test:keys', 'gateway:keys');
  await state.getByText('All well').waitFor(PATIENCE);

  await redis.set('gateway:activity', 'foo');
  await state.getByText(/^They were last read \d+\.\d s ago: WRONGTYPE in gateway:activity\./).waitFor(PATIENCE);
  expect((await stack.admin('GET', '/activity')).json).toMatchObject({ message: why('gateway:activity') });
  await page.getByText('Redis is unavailable').waitFor({ state: 'detached' });
});

test('a single request without a response does not change the state that is shown', async () => {
  const stack = await startStack();
  const { page, excuse } = await openConsole(stack, '/console/bans');
  excuse(FAILED_REQUESTS);
  const missed = new Set<string>();
  await page.route('**/*', async (route) => {
    const { pathname } = new URL(route.request().url());
    if (missed.has(pathname)) return await route.continue();
    missed.add(pathname);
    await route.abort();
  });
  const seen: string[] = [];
  const look = async () => void seen.push(await page.locator('#state').innerText());
  const looking = setInterval(() => look().catch(() => {}), 50);
  // By then, every request has been repeated and answered.
  await expect.poll(() => [...missed].sort(), PATIENCE).toEqual(['/bans', '/traffic']);
  for (let answered = 0; answered < 3; answered++) await page.waitForResponse('**/traffic');
  clearInterval(looking);
  expect(seen.length).toBeGreaterThan(0);
  expect(seen.filter((text) => !text.includes('All well'))).toEqual([]);
});

test('a change without a response says that it may have been made, and where to look before it is repeated', async () => {
  const stack = await startStack();
  const { page, excuse } = await openConsole(stack, '/console/keys');
  excuse(FAILED_REQUESTS);
  let answer: 'nothing' | 'page of a proxy' | 'refusal' = 'nothing';
  await page.route(
    ({ pathname }) => pathname === '/keys',
    async (route) => {
      if (route.request().method() !== 'POST') return await route.continue();
      if (answer === 'refusal') return await route.fulfill({ status: 413, body: '<h1>Too large</h1>' });
      await route.fetch();
      if (answer === 'nothing') await route.abort();
      else await route.fulfill({ status: 504, body: '<h1>Gateway timeout</h1>' });
    },
  );
  await page.getByRole('button', { name: 'Issue a key' }).click();
  await question(page).getByLabel('Name').fill('issued');
  const expectSaid = async (text: string) => {
    await question(page).getByRole('button', { name: 'Issue' }).click();
    await expect.poll(() => question(page).locator('p.fault').innerText()).toBe(text);
  };
  const maybe = ' The change may have been made: check the audit log before you repeat it.';
  await expectSaid(`The gateway does not respond.${maybe}`);
  answer = 'page of a proxy';
  await expectSaid(`This server is not a gateway’s admin listener.${maybe}`);
  answer = 'refusal';
  await expectSaid('This server is not a gateway’s admin listener.');
});
