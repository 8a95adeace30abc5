import { setTimeout as sleep } from 'node:timers/promises';
import { stripVTControlCharacters } from 'node:util';
import { expect, test } from 'vitest';
import { send } from '../support/http.ts';
import { type Started, startProcess } from '../support/process.ts';
import { type Stack, startStack } from '../support/stack.ts';

/** The command line as a person sees it: on a terminal, which `script` makes. */

const TIMEOUT_MS = 60_000;
const RED = '\u001b[31m';

const stack = await startStack();

function onTerminal(words: readonly string[], environment: Record<string, string> = {}): Started {
  const command = [process.execPath, 'gateway/admin/cli.ts', ...words].join(' ');
  return startProcess('script', ['-qec', command, '/dev/null'], {
    ADMIN_PORT: new URL(stack.adminUrl).port,
    ADMIN_TOKEN: 'token-of-the-tests',
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

test.concurrent.for([
  ['n\n', 5, true],
  ['\n', 5, true],
  ['\u0004', 5, true],
  ['y\n', 0, false],
] as const)(
  'revoking asks first: %j ends with %d',
  { timeout: TIMEOUT_MS },
  async ([typed, code, stillWorks], { expect }) => {
    const key = await stack.issueKey();
    const started = onTerminal(['keys', 'revoke', key.slice(3, 15)]);
    expect(await answer(started, `Revoke ${key.slice(3, 15)} for good? [y/N]`, typed)).toBe(code);
    expect(await works(key)).toBe(stillWorks);
  },
);

test('a change of plans is shown, in colour, and asked for, and nothing is done without a yes', {
  timeout: TIMEOUT_MS,
}, async () => {
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

test('with --yes nothing is asked', { timeout: TIMEOUT_MS }, async () => {
  const { code, out } = await onTerminal(['plans', 'set', 'pro', '--minute', '311', '--yes']).ended;
  expect([code, out.includes('[y/N]')]).toEqual([0, false]);
  expect(await minuteOf(stack, 'pro')).toBe(311);
});

test('who says yes to a change that somebody else has overtaken changes nothing', { timeout: TIMEOUT_MS }, async () => {
  const started = onTerminal(['plans', 'set', 'business', '--minute', '1100']);
  await expect.poll(() => started.out(), { timeout: 30_000 }).toContain('[y/N]');
  await stack.admin('PATCH', '/plans/business', { minute: 1_050 });
  await sleep(50);
  started.child.stdin?.write('y\n');
  expect(await started.ended).toMatchObject({ code: 4, out: expect.stringContaining('have been changed meanwhile') });
  expect(await minuteOf(stack, 'business')).toBe(1_050);
});
