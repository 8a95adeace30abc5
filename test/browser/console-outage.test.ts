import { Redis } from 'ioredis';
import { expect, test, vi } from 'vitest';
import { openBrowser } from '../support/browser.ts';
import { cleanUp } from '../support/clean-up.ts';
import { openConsole } from '../support/console.ts';
import { send } from '../support/http.ts';
import { startRedisServer } from '../support/redis.ts';
import { startStack } from '../support/stack.ts';

// A browser beside other tests takes its time.
vi.setConfig({ testTimeout: 90_000 });
const PATIENCE = { timeout: 30_000 };

/** The browser notes what failed to load by itself, whatever a page makes of it. */
const ofThePage = (faults: string[]): string[] =>
  faults.filter((fault) => !fault.startsWith('Failed to load resource'));

test('it tells that Redis is away, that it is back, that a stored value is rejected, and that the gateway is gone', async () => {
  const server = await startRedisServer();
  cleanUp(() => server.stop());
  const redis = new Redis(server.url);
  redis.on('error', () => {});
  cleanUp(() => redis.disconnect());
  const stack = await startStack({ REDIS_URL: server.url });
  const key = await stack.issueKey({ minute: 1_000_000, day: 1_000_000 });
  const { page, faults } = await openConsole(await openBrowser(), stack);
  const state = page.locator('#state');
  // Whether Redis is there is seen by who asks it.
  const isTold = (what: string) =>
    vi.waitFor(async () => {
      await send(`${stack.gateway}/v1/pets`, { key }).catch(() => {});
      expect(await state.getAttribute('data-state')).toBe(what);
    }, PATIENCE);
  await isTold('shared');

  await redis.hset('gateway:plans', 'free.minute', '<b>lots</b>');
  const field = page.locator('#plan-free-minute-note');
  await field.getByText('“<b>lots</b>” is rejected').waitFor();
  await page.getByText('free.minute: “<b>lots</b>” is rejected, 60 stays in force.').waitFor();
  expect(await page.evaluate('getComputedStyle(document.querySelector("#rejected")).color')).toBe('rgb(179, 38, 30)');
  expect(await page.locator('#plan-free-minute').inputValue()).toBe('60');
  await redis.hset('gateway:plans', 'free.minute', '61');
  await page.getByText('Every stored value is in force.').waitFor();
  await expect.poll(() => page.locator('#plan-free-minute').inputValue()).toBe('61');

  await server.stop();
  // With no client to decide on, what shows it is that nothing can be read.
  await page.locator('#state[data-state="away"]', { hasText: 'Redis is away.' }).waitFor();
  await isTold('local');
  expect(await state.innerText()).toMatch(/^Redis is away\. Decisions are local/);
  await server.restart();
  await isTold('shared');
  expect(ofThePage(faults)).toEqual([]);

  await stack.stop();
  await isTold('silent');
  expect(await state.innerText()).toMatch(/^The gateway does not answer\./);
  await page.getByText('A second, now: not known.').waitFor();
  expect(ofThePage(faults)).toEqual([]);
});
