import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { stripVTControlCharacters } from 'node:util';
import { expect, test } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { answer, ctl, ctlOnTerminal, ctlWith, operatorOf } from '../support/ctl.ts';
import { get, statusOf } from '../support/operators.ts';
import { startStack, temporaryFolder } from '../support/stack.ts';

/** The command line on a terminal, which `script` provides. */

const RED = '\u001b[31m';

const stack = await startStack();

const onTerminal = (words: readonly string[], environment: Record<string, string> = {}) =>
  ctlOnTerminal(stack, words, environment);

const works = async (key: string) => (await statusOf(stack, key)) === 200;

const minuteOf = async (plan: string) => (await get<Record<string, { minute: number }>>(stack, '/plans'))[plan]?.minute;

test('ctl asks before it revokes, and only yes confirms', async () => {
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
    expect([typed, await answer(started, `Permanently revoke ${idOf(key)}? [y/N]`, typed)]).toEqual([typed, code]);
    expect([typed, await works(key)]).toEqual([typed, stillWorks]);
  });
  await Promise.all(asked);
});

test('ctl shows a plan change in colour and asks for confirmation', async () => {
  const declined = onTerminal(['plans', 'set', 'free', '--minute', '71']);
  expect(await answer(declined, 'Make this change? [y/N]', 'n\n')).toBe(5);
  expect(declined.out()).toContain(RED);
  expect(stripVTControlCharacters(declined.out())).toContain('free.minute  60 -> 71');
  expect(await minuteOf('free')).toBe(60);
  const confirmed = onTerminal(['plans', 'set', 'free', '--minute', '71'], { NO_COLOR: '1' });
  expect(await answer(confirmed, 'Make this change? [y/N]', 'y\n')).toBe(0);
  expect(confirmed.out()).not.toContain(RED);
  expect(await minuteOf('free')).toBe(71);
  const asked = onTerminal(['plans', 'rollback']);
  expect(await answer(asked, 'Roll back the change by', 'y\n')).toBe(0);
  expect(await minuteOf('free')).toBe(60);
});

test('--yes skips all prompts', async () => {
  const { code, out } = await onTerminal(['plans', 'set', 'pro', '--minute', '311', '--yes']).ended;
  expect([code, out.includes('[y/N]')]).toEqual([0, false]);
  expect(await minuteOf('pro')).toBe(311);
});

test('an outdated confirmation of a change or of a file changes nothing', async () => {
  const file = join(await temporaryFolder(), 'plans.yaml');
  await writeFile(file, 'business: { minute: 1200, ban_seconds: 400 }\n');
  for (const [words, question, minute] of [
    [['set', 'business', '--minute', '1100'], 'Make this change? [y/N]', 1_050],
    [['apply', '-f', file], 'Make these 2 changes? [y/N]', 1_060],
  ] as const) {
    const started = onTerminal(['plans', ...words]);
    await expect.poll(() => started.out(), { timeout: 30_000 }).toContain(question);
    await stack.admin('PATCH', '/plans/business', { minute });
    started.child.stdin?.write('y\n');
    const told = expect.stringContaining('have been changed in the meantime');
    expect(await started.ended).toMatchObject({ code: 4, out: told });
    expect(await minuteOf('business')).toBe(minute);
  }
});

test('an expiry in the past needs a confirmation, or --yes without a terminal', async () => {
  const key = await stack.issueKey();
  const past = '2020-01-01T00:00:00Z';
  const declined = onTerminal(['keys', 'expire', idOf(key), past]);
  expect(await answer(declined, `Expire ${idOf(key)} now? 2020-01-01`, 'n\n')).toBe(5);
  const inPipe = await ctl(stack, 'keys', 'expire', idOf(key), past);
  expect(inPipe).toMatchObject({ code: 5, out: '', err: expect.stringContaining('is in the past') });
  expect(await works(key)).toBe(true);
  expect((await ctl(stack, 'keys', 'expire', idOf(key), past, '--yes')).code).toBe(0);
  expect(await works(key)).toBe(false);
  expect((await ctl(stack, 'keys', 'expire', idOf(key), '2100-01-01T00:00:00Z')).code).toBe(0);
  const now = onTerminal(['keys', 'expire', idOf(key)]);
  expect(await answer(now, `Expire ${idOf(key)} now? [y/N]`, 'n\n')).toBe(5);
  expect(await works(key)).toBe(true);
});

test('times are local on a terminal, and UTC with --utc, in a pipe and as JSON', async () => {
  const key = await stack.issueKey({ expiresAt: '2030-06-30T20:00:00Z' });
  const show = ['keys', 'show', idOf(key)];
  const [shown, utc, json, inPipe, history, nowhere] = await Promise.all([
    onTerminal(show, { TZ: 'Asia/Kolkata' }).ended,
    onTerminal([...show, '--utc'], { TZ: 'Asia/Kolkata' }).ended,
    onTerminal(['--json', ...show], { TZ: 'Asia/Kolkata' }).ended,
    ctlWith({ ...operatorOf(stack), TZ: 'Asia/Kolkata' }, ...show),
    onTerminal(['activity', '--limit', '1'], { TZ: 'Asia/Kolkata' }).ended,
    onTerminal(show, { TZ: 'Nonsense' }).ended,
  ]);
  expect(shown.out).toContain('2030-07-01 01:30:00 +05:30');
  expect(utc.out).toContain('2030-06-30 20:00:00 +00:00');
  for (const { out } of [json, inPipe]) expect(out).toContain('2030-06-30T20:00:00.000Z');
  expect(history.out).toMatch(/ \d\d:\d\d:\d\d \+05:30 /);
  const note = 'Note: the time zone Nonsense is unknown. Times are in UTC.\r\n';
  expect([nowhere.out.startsWith(note), nowhere.out.includes('2030-06-30 20:00:00 +00:00')]).toEqual([true, true]);
  expect([shown, utc, json, inPipe].filter(({ out }) => out.includes('is unknown'))).toEqual([]);
});

test('the status of a refused request is coloured', async () => {
  const key = await stack.issueKey({ minute: 1 });
  for (let sent = 0; sent < 3; sent++) await statusOf(stack, key);
  const { code, out } = await onTerminal(['requests', '--key', idOf(key)]).ended;
  expect([code, out.split('\u001b[33m429').length]).toEqual([0, 3]);
  expect(out).not.toContain('\u001b[33m200');
});
