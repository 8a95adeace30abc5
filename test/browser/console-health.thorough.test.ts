import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { readCoreSettings } from '../../core/config.ts';
import { startCore } from '../../core/core.ts';
import { shortcomings } from '../support/accessibility.ts';
import { FAILED_REQUESTS } from '../support/browser.ts';
import { cleanUp } from '../support/clean-up.ts';
import { openConsole, rowOf } from '../support/console.ts';
import { listeningCore } from '../support/faulty-core.ts';
import { send } from '../support/http.ts';
import { readableLog } from '../support/log.ts';
import { freePort } from '../support/port.ts';
import { startRedisServer } from '../support/redis.ts';
import { type Stack, startStack, temporaryFolder } from '../support/stack.ts';
import { startWorkers, untilServing } from '../support/workers.ts';

const PATIENCE = { timeout: 30_000 };

test('the Health page shows which core is down, since when and why, and the state of Redis', async () => {
  const port = await freePort();
  const DATABASE_URL = `sqlite:${await temporaryFolder()}/other.db`;
  const stops = await startCore(readCoreSettings({ PORT: String(port), DATABASE_URL }), readableLog().logger);
  cleanUp(() => stops.stop(0));
  const server = await startRedisServer();
  cleanUp(() => server.stop());
  const { url: stays } = await listeningCore();
  const stack = await startStack({ CORE_URL: `http://127.0.0.1:${port},${stays}`, REDIS_URL: server.url });
  const key = await stack.issueKey();
  for (let sent = 0; sent < 4; sent++) expect((await send(`${stack.gateway}/v1/pets`, { key })).status).toBe(200);
  const { page, excuse } = await openConsole(stack, '/console/health');
  excuse(FAILED_REQUESTS);
  const row = (core: string) => rowOf(page, 'Cores', core);
  await row(stays).getByText('Up', { exact: true }).waitFor();
  await row(`:${port}`).getByText('Up', { exact: true }).waitFor();
  expect(await row(stays).innerText()).toMatch(/0\s+0\s+2,048\s+[\d.]+ ms, \d\d:\d\d[\s\S]*none/);
  await page.getByText('The numbers cover only this gateway.').waitFor();

  await stops.stop(0);
  await row(`:${port}`).getByText('Not in use', { exact: true }).waitFor(PATIENCE);
  await expect
    .poll(() => row(`:${port}`).innerText(), PATIENCE)
    .toMatch(/Not in use since \d\d:\d\d[\s\S]*ECONNREFUSED/);
  await row(stays).getByText('Up', { exact: true }).waitFor();
  expect((await shortcomings(page)).found).toEqual([]);

  const redis = page.getByRole('region', { name: 'Redis and the plan table' });
  await redis.getByText('Connected', { exact: true }).waitFor();
  expect(await redis.innerText()).toMatch(
    /A single Redis[\s\S]*[\d.]+ ms, \d\d:\d\d[\s\S]*99 % of calls within [\d.]+ ms/,
  );
  const checks = page.getByRole('table', { name: 'Checks' });
  const isGood = /\bredis memory\s+Good\b/;
  await expect.poll(() => checks.innerText(), PATIENCE).toMatch(isGood);
  const section = checks.getByRole('link', { name: 'GatewayBackupMissing' });
  expect(await section.getAttribute('href')).toBe('/runbook#gatewaybackupmissing');
  server.pause();
  await expect.poll(() => checks.innerText(), PATIENCE).toMatch(/\bredis\s+(Unknown|Fault)\b/);
  // Results from before the outage are not shown as current.
  expect(await checks.innerText()).not.toMatch(isGood);
  server.resume();
  await expect.poll(() => checks.innerText(), PATIENCE).toMatch(isGood);
  await server.stop();
  await redis.getByText('Disconnected', { exact: true }).waitFor(PATIENCE);
});

test('while all is well, the Health page renders only when a response arrives', async () => {
  const { page } = await openConsole(await startStack(), '/console/health');
  await page.evaluate(`(async () => {
    const { options } = await import('/console/lib/preact.js');
    globalThis.renders = 0;
    options.diffed = ({ type }) => void (renders += type?.name === 'HealthPage');
  })()`);
  await sleep(6_000);
  // The traffic is requested once a second, and the doctor every ten seconds.
  expect(await page.evaluate('renders')).toBeLessThan(9);
});

test('the Health page shows which workers are serving, and which of them its numbers cover', async () => {
  const workers = await startWorkers();
  const { page, excuse } = await openConsole(workers as unknown as Stack, '/console/health');
  excuse(FAILED_REQUESTS);
  await page.getByText('The numbers cover 2 of 2 workers of this gateway').waitFor(PATIENCE);
  const [first = 0, second = 0] = workers.pids();
  await rowOf(page, 'Workers', String(first)).getByText('Running', { exact: true }).waitFor();
  await rowOf(page, 'Workers', String(second)).getByText('Running', { exact: true }).waitFor();
  expect((await shortcomings(page)).found).toEqual([]);
  // The gateway kills a hung worker after 10 s.
  process.kill(second, 'SIGSTOP');
  await rowOf(page, 'Workers', String(second)).getByText('Unknown', { exact: true }).waitFor();
  await page.getByText('The numbers cover 1 of 2 workers of this gateway').waitFor({ timeout: 3_000 });
  process.kill(first, 'SIGKILL');
  await rowOf(page, 'Workers', String(first)).waitFor({ state: 'detached', ...PATIENCE });
  await untilServing(workers, 2);
  await expect
    .poll(() => page.getByRole('table', { name: 'Workers' }).getByText('Running', { exact: true }).count(), PATIENCE)
    .toBe(2);
});

test("the Health page shows the core's state and the plan values that are not in force", async () => {
  const stack = await startStack();
  const { page } = await openConsole(stack, '/console/health');
  await rowOf(page, 'Checks', 'core http').getByText('Good').first().waitFor();
  await rowOf(page, 'Checks', 'plan table').getByText('every value is in force').waitFor();
  await page.getByText('1 process running').waitFor();
  await stack.admin('PATCH', '/plans/pro', { mode: 'shadow' });
  await page.getByRole('button', { name: 'Check again' }).click();
  const row = rowOf(page, 'Checks', 'pro is in shadow mode');
  await row.getByText('Warning').waitFor();
  expect(await row.locator('time').count()).toBe(1);
});
