import { setTimeout as sleep } from 'node:timers/promises';
import { stripVTControlCharacters } from 'node:util';
import { expect, test, vi } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { CLI, operatorOf } from '../support/ctl.ts';
import { send } from '../support/http.ts';
import { type Started, startProcess } from '../support/process.ts';
import { type Stack, startStack } from '../support/stack.ts';

/** The command line as a person sees it: on a terminal, which `script` makes. */

// A command is a process, and starting one takes its time on a busy machine.
vi.setConfig({ testTimeout: 60_000 });
const RED = '\u001b[31m';

const stack = await startStack();

function onTerminal(words: readonly string[], environment: Record<string, string> = {}): Started {
  const command = [process.execPath, CLI, ...words].join(' ');
  return startProcess('script', ['-qec', command, '/dev/null'], {
    ...operatorOf(stack),
    TERM: 'xterm-256color',
    ...environment,
  });
}

/** Waits for the question and types. */
async function answer(started: Started, question: string, typed: string): Promise<number | null> {
  await expect.poll(() => started.out(), { timeout: 30_000 }).toContain(question);
  started.child.stdin?.write(typed);
  return (await started.ended).code;
}

const works = async (key: string) => (await send(`${stack.gateway}/v1/pets`, { key })).status === 200;

const minuteOf = async (of: Stack, plan: string) =>
  ((await of.admin('GET', '/plans')).json as Record<string, { minute: number }>)[plan]?.minute;

test('revoking asks first, and only a yes is a yes', async () => {
  const answers = [
    ['n\n', 5, true],
    ['\n', 5, true],
    ['\u0004', 5, true],
    ['\u0003', 5, true],
    ['y\n', 0, false],
  ] as const;
  const asked = answers.map(async ([typed, code, stillWorks]) => {
    const key = await stack.issueKey();
    const started = onTerminal(['keys', 'revoke', idOf(key)]);
    expect([typed, await answer(started, `Revoke ${idOf(key)} for good? [y/N]`, typed)]).toEqual([typed, code]);
    expect([typed, await works(key)]).toEqual([typed, stillWorks]);
  });
  await Promise.all(asked);
});

test('a change of plans is shown, in colour, and asked for, and nothing is done without a yes', async () => {
  const declined = onTerminal(['plans', 'set', 'free', '--minute', '71']);
  expect(await answer(declined, 'Make this change? [y/N]', 'n\n')).toBe(5);
  expect(declined.out()).toContain(RED);
  expect(stripVTControlCharacters(declined.out())).toContain('free.minute  60 -> 71');
  expect(await minuteOf(stack, 'free')).toBe(60);
  const confirmed = onTerminal(['plans', 'set', 'free', '--minute', '71'], { NO_COLOR: '1' });
  expect(await answer(confirmed, 'Make this change? [y/N]', 'y\n')).toBe(0);
  expect(confirmed.out()).not.toContain(RED);
  expect(await minuteOf(stack, 'free')).toBe(71);
  const asked = onTerminal(['plans', 'rollback']);
  expect(await answer(asked, 'Take back the change by', 'y\n')).toBe(0);
  expect(await minuteOf(stack, 'free')).toBe(60);
});

test('with --yes nothing is asked', async () => {
  const { code, out } = await onTerminal(['plans', 'set', 'pro', '--minute', '311', '--yes']).ended;
  expect([code, out.includes('[y/N]')]).toEqual([0, false]);
  expect(await minuteOf(stack, 'pro')).toBe(311);
});

test('who says yes to a change that somebody else has overtaken changes nothing', async () => {
  const started = onTerminal(['plans', 'set', 'business', '--minute', '1100']);
  await expect.poll(() => started.out(), { timeout: 30_000 }).toContain('[y/N]');
  await stack.admin('PATCH', '/plans/business', { minute: 1_050 });
  await sleep(50);
  started.child.stdin?.write('y\n');
  expect(await started.ended).toMatchObject({ code: 4, out: expect.stringContaining('have been changed meanwhile') });
  expect(await minuteOf(stack, 'business')).toBe(1_050);
});
