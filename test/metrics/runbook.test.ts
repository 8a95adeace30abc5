import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { expect, test } from 'vitest';
import { ALERT_NAMES } from '../support/alerts.ts';
import { idOf } from '../support/api-key.ts';
import { cleanUp } from '../support/clean-up.ts';
import { ctl } from '../support/ctl.ts';
import { send } from '../support/http.ts';
import { inTurn } from '../support/in-turn.ts';
import { ROOT } from '../support/process.ts';
import { startRedisWithUsers, urlOf } from '../support/redis-users.ts';
import { startStack } from '../support/stack.ts';

const runbook = readFileSync(join(ROOT, 'deploy/RUNBOOK.md'), 'utf8');
const pages = runbook.split(/^## /m).slice(1);
const titleOf = (page: string) => page.slice(0, page.indexOf('\n'));

/** What stands between backquotes, each once; a line may end in the middle of it. */
const spans = [...new Set([...runbook.matchAll(/`([^`]+)`/g)].map(([, span = '']) => span.replaceAll(/\s+/g, ' ')))];
const commandsOf = (program: string) =>
  spans.filter((span) => span.startsWith(`${program} `) && !span.includes(' -h '));

/** A command's words, as a shell takes them apart. */
const wordsOf = (command: string): string[] =>
  [...command.matchAll(/"([^"]*)"|<[^>]+>|\S+/g)].map(([word, quoted]) => quoted ?? word).slice(1);

/** A Redis with the users that are shipped, a gateway that is one of them, and a key that has asked for something. */
async function setUp() {
  const { server } = await startRedisWithUsers();
  const stack = await startStack({ REDIS_URL: urlOf('gateway', server.url), REDIS_TIMEOUT_MS: '5000' });
  const sre = new Redis(urlOf('sre', server.url));
  cleanUp(() => sre.disconnect());
  return { stack, sre };
}

test('every alert has its page, and every page says what it means, where to look, what to do and how to undo it', () => {
  const titles = pages.map(titleOf);
  expect(titles.slice(0, ALERT_NAMES.length)).toEqual(ALERT_NAMES);
  expect(titles.length).toBeGreaterThan(ALERT_NAMES.length);
  for (const page of pages) {
    const parts = [...page.matchAll(/^\*\*(.+?)\*\* \S/gm)].map(([, part]) => part);
    expect([titleOf(page), ...parts]).toEqual([titleOf(page), 'Means', 'Look at', 'Do', 'Undo']);
  }
});

test('every link leads to a page', () => {
  const links = [...runbook.matchAll(/\]\(#([^)]+)\)/g)].map(([, anchor]) => anchor as string);
  const anchors = pages.map((page) => titleOf(page).toLowerCase().replaceAll(' ', '-'));
  expect(links.length).toBeGreaterThan(10);
  expect(links.filter((link) => !anchors.includes(link))).toEqual([]);
});

test('every command of redis-cli is one that the user sre may give', async () => {
  const { sre } = await setUp();
  const commands = commandsOf('redis-cli');
  expect(commands.length).toBeGreaterThan(5);
  for (const command of commands) {
    const [name = '', ...words] = wordsOf(command);
    await expect(sre.call(name, ...words), command).resolves.toBeDefined();
  }
});

test('every command of ctl is done as it is written', async () => {
  const { stack } = await setUp();
  const run = async (command: string) => {
    const key = await stack.issueKey();
    const requestId = String((await send(`${stack.gateway}/v1/pets`, { key })).headers['x-request-id']);
    const words = wordsOf(command).map((word) => ({ '<id>': idOf(key), '<request id>': requestId })[word] ?? word);
    // There is always a change that can be taken back.
    if (command.startsWith('ctl plans'))
      await stack.admin('PATCH', '/plans/pro', { minute: (Date.now() % 100_000_000) + 1 });
    const { code, err } = await ctl(stack, ...words);
    return [command, code, code === 0 ? '' : err];
  };
  const commands = ['ctl doctor', ...commandsOf('ctl')];
  expect(commands.length).toBeGreaterThan(20);
  const [plans, others] = [
    commands.filter((one) => one.startsWith('ctl plans')),
    commands.filter((one) => !one.startsWith('ctl plans')),
  ];
  // Changes of plans one after the other: of two at once, one is a conflict.
  const done = (await Promise.all([inTurn(plans, 1, run), inTurn(others, 2, run)])).flat();
  expect(done.filter(([, code]) => code !== 0)).toEqual([]);
});
