import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { HistoryAnswer } from '../../gateway/operators/api/answers.ts';
import { ALERT_NAMES } from '../support/alerts.ts';
import { idOf } from '../support/api-key.ts';
import { ctl, ctlReading } from '../support/ctl.ts';
import { send } from '../support/http.ts';
import { inTurn } from '../support/in-turn.ts';
import { ROOT } from '../support/process.ts';
import { connectionTo } from '../support/redis-database.ts';
import { startRedisWithUsers, urlOf } from '../support/redis-users.ts';
import { startStack } from '../support/stack.ts';

const runbook = readFileSync(join(ROOT, 'deploy/RUNBOOK.md'), 'utf8');
const pages = runbook.split(/^## /m).slice(1);
const titleOf = (page: string) => page.slice(0, page.indexOf('\n'));

/** All text between backticks, without duplicates or line breaks. */
const spans = [...new Set([...runbook.matchAll(/`([^`]+)`/g)].map(([, span = '']) => span.replaceAll(/\s+/g, ' ')))];
const commandsOf = (program: string) =>
  spans.filter((span) => span.startsWith(`${program} `) && !span.includes(' -h '));

/** The words of a command, split as a shell would. */
const wordsOf = (command: string): string[] =>
  [...command.matchAll(/"([^"]*)"|<[^>]+>|\S+/g)].map(([word, quoted]) => quoted ?? word).slice(1);

/** A Redis with the shipped users, a gateway that uses one of them, and a key that has been used. */
async function setUp() {
  const { server } = await startRedisWithUsers();
  const stack = await startStack({ REDIS_URL: urlOf('gateway', server.url), REDIS_TIMEOUT_MS: '5000' });
  const sre = connectionTo(urlOf('sre', server.url));
  return { stack, sre };
}

test('every alert has a page that says what it means, where to look, what to do and how to undo that', () => {
  const titles = pages.map(titleOf);
  expect(titles.slice(0, ALERT_NAMES.length)).toEqual(ALERT_NAMES);
  expect(titles.length).toBeGreaterThan(ALERT_NAMES.length);
  for (const page of pages) {
    const parts = [...page.matchAll(/^\*\*(.+?)\*\* \S/gm)].map(([, part]) => part);
    expect([titleOf(page), ...parts.filter((part) => part !== 'Undo')]).toEqual([
      titleOf(page),
      'Means',
      'Look at',
      'Do',
    ]);
    expect(['Do', 'Undo']).toContain(parts.at(-1));
  }
});

test('the Redis user sre may run every redis-cli command of the runbook', async () => {
  const { sre } = await setUp();
  const commands = commandsOf('redis-cli');
  expect(commands.length).toBeGreaterThan(5);
  for (const command of commands) {
    const [name = '', ...words] = wordsOf(command);
    // Only a script that keeps Redis busy can be ended.
    const reply = sre.call(name, ...words).catch(({ message }: Error) => /^NOTBUSY/.exec(message)?.[0]);
    expect(await reply, command).toBeDefined();
  }
});

test('every ctl command of the README works as written, in order', async () => {
  const { stack } = await setUp();
  const readme = readFileSync(join(ROOT, 'README.md'), 'utf8');
  const commands = [...readme.matchAll(/^ {4}npm run -s (ctl) -- (.+?) +#/gm)].map(
    ([, name, rest]) => `${name} ${rest}`,
  );
  expect(commands.length).toBeGreaterThan(5);
  for (const command of commands) {
    const { code, err } = await ctl(stack, ...wordsOf(command));
    expect([command, code, code === 0 ? '' : err]).toEqual([command, 0, '']);
  }
});

test('every ctl command in the runbook works as written', async () => {
  const { stack } = await setUp();
  const { out: backup } = await ctl(stack, 'backup');
  const run = async (command: string) => {
    const key = await stack.issueKey();
    const { secrets } = (await stack.admin('GET', `/keys/${idOf(key)}`)).json as { secrets: [{ id: string }] };
    const requestId = String((await send(`${stack.gateway}/v1/pets`, { key })).headers['x-request-id']);
    const { id: tokenId } = (await stack.admin('POST', '/tokens', { name: 'ann', role: 'viewer' })).json as {
      id: string;
    };
    // Ensures that there is always a change to revert.
    if (command.startsWith('ctl plans'))
      await stack.admin('PATCH', '/plans/pro', { minute: (Date.now() % 100_000_000) + 1 });
    const history = (await stack.admin('GET', '/plans/history')).json as HistoryAnswer;
    const [typed = '', input] = command.split(' < ');
    const given: Readonly<Record<string, string>> = {
      '<id>': idOf(key),
      '<secret id>': secrets[0].id,
      '<request id>': requestId,
      '<token id>': tokenId,
      '<change>': history.history[0]?.id ?? '',
    };
    const words = wordsOf(typed).map((word) => given[word] ?? word);
    const { code, err } = await (input ? ctlReading(stack, backup, ...words) : ctl(stack, ...words));
    return [command, code, code === 0 ? '' : err];
  };
  const commands = ['ctl doctor', ...commandsOf('ctl')];
  expect(commands.length).toBeGreaterThan(20);
  expect(commands).toContain('ctl restore < keys.jsonl');
  const [plans, others] = [
    commands.filter((one) => one.startsWith('ctl plans')),
    commands.filter((one) => !one.startsWith('ctl plans')),
  ];
  // Plan changes run in turn, because one of two concurrent changes is a conflict.
  const done = (await Promise.all([inTurn(plans, 1, run), inTurn(others, 2, run)])).flat();
  expect(done.filter(([, code]) => code !== 0)).toEqual([]);
  // Each command starts a process, which is slow on a busy machine.
}, 240_000);
