import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { stripVTControlCharacters } from 'node:util';
import { expect, test } from 'vitest';
import { shownCommands } from '../../gateway/operators/cli/commands/completion.ts';
import { createCommands } from '../../gateway/operators/cli/commands.ts';
import { Session } from '../../gateway/operators/cli/session.ts';
import { idOf } from '../support/api-key.ts';
import { answer, ctl, ctlOnTerminal, ctlProcess, ctlWith, operatorOf } from '../support/ctl.ts';
import { serveHttp } from '../support/http-server.ts';
import { get, statusOf } from '../support/operators.ts';
import { ROOT, startProcess } from '../support/process.ts';
import { ADMIN_TOKEN, startStack, temporaryFolder } from '../support/stack.ts';

/** The command line as a program: version, errors, completion, and behaviour on a terminal. */

const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string };

test('--version prints the version', async () => {
  expect(await ctlProcess({}, ['--version']).ended).toEqual({ code: 0, out: `${version}\n`, err: '' });
});

const stack = await startStack();
const ID = idOf(await stack.issueKey());

const NOWHERE = { ADMIN_PORT: '1', ADMIN_TOKEN };
const AWAY = 'No gateway answers at http://127.0.0.1:1. Is it running? ADMIN_HOST and ADMIN_PORT set its address.';

test.for([
  ['fly --json', 2, 'usage', "unknown command 'fly'", NOWHERE],
  ['--json keys rotate a --grace 24', 2, 'usage', 'It needs a unit', NOWHERE],
  ['--json keys create --plan free', 2, 'usage', "required option '--name <name>' not specified", NOWHERE],
  ['--json', 2, 'usage', 'A command is missing', NOWHERE],
  ['--json keys', 2, 'usage', 'A command is missing', NOWHERE],
  ['--json keys revoke a', 1, 'no_gateway', AWAY, NOWHERE],
  [`--json keys revoke ${ID}`, 5, 'not_confirmed', 'pass --yes', operatorOf(stack)],
  [`--json keys rotate ${ID} --grace 0`, 5, 'not_confirmed', 'pass --yes', operatorOf(stack)],
  ['--json plans show', 1, 'no_gateway', AWAY, NOWHERE],
  ['--json plans show', 1, 'no_token', '', { DATA_DIR: '/no/such/folder' }],
  ['--json plans show', 1, 'invalid_settings', 'ADMIN_PORT: must be a whole number', { ADMIN_PORT: 'abc' }],
] as [string, number, string, string, NodeJS.ProcessEnv][])(
  '`ctl %s` exits with %i and prints one line of JSON: %s, %s',
  async ([words, exit, code, message, environment]) => {
    const ended = await ctlWith(environment, ...words.split(' '));
    expect([ended.code, ended.out]).toEqual([exit, '']);
    expect(JSON.parse(ended.err)).toEqual({ code, message: expect.stringContaining(message) });
  },
);

test('ctl reports a server that is not a gateway, a gateway that does not respond, and a wrong token', async () => {
  const expectFault = async (environment: NodeJS.ProcessEnv, message: string) =>
    expect(await ctlWith(environment, 'plans', 'show')).toEqual({ code: 1, out: '', err: `${message}\n` });
  for (const [status, body] of [
    [200, '<html>'],
    [404, ''],
    [502, '{"error":"away"}'],
  ] as const) {
    const adminUrl = await serveHttp((_request, response) => response.writeHead(status).end(body));
    await expectFault(operatorOf({ adminUrl }), `The server at ${adminUrl} is not a gateway's admin listener.`);
  }
  await expectFault(NOWHERE, AWAY);
  const stranger = { ...operatorOf(stack), ADMIN_TOKEN: 'of-another-gateway' };
  await expectFault(stranger, 'The token is wrong or has been revoked.');
});

test('each file in commands/ defines the command of the same name', async () => {
  const files = readdirSync(join(ROOT, 'gateway/operators/cli/commands')).map((file) => file.replace(/\.ts$/, ''));
  const { out } = await ctlWith({}, '--help');
  const [listed = ''] = out.split('Commands:\n')[1]?.split('\n\n') ?? [];
  const names = [...listed.matchAll(/^ {2}(\w+)/gm)].map(([, name]) => name);
  expect(names.filter((name) => name !== 'help').sort()).toEqual(files.sort());
});

/** Writes the completion script for bash to a file. @returns its path */
async function bashScript(): Promise<string> {
  const script = join(await temporaryFolder(), 'ctl.bash');
  const { code, out } = await ctlWith({}, 'completion', 'bash');
  expect([code, out]).toEqual([0, expect.stringContaining('\ncomplete -F _animal_store_ctl ctl animal-store\n')]);
  writeFileSync(script, out);
  return script;
}

type Row = readonly [line: string, offered: readonly string[]];

/** Expects bash to offer these completions for each line. Two spaces separate words, as a word may contain one. */
async function expectOffered(script: string, rows: readonly Row[], environment: NodeJS.ProcessEnv = {}) {
  const complete = `offer() {
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _animal_store_ctl; printf '%s\\n' "\${COMPREPLY[@]}" 'the end'
  }`;
  const calls = rows.map(([line]) => `offer '${line.replaceAll('  ', "' '")}'`);
  const words = ['-c', [`source ${script}`, complete, ...calls].join('\n')];
  const { code, out, err } = await startProcess('bash', words, environment).ended;
  expect([code, err]).toEqual([0, '']);
  const offered = out.split('the end\n').map((part) => part.split('\n').filter((word) => word !== ''));
  for (const [at, [line, words]] of rows.entries()) expect([line, offered[at]]).toEqual([line, words]);
}

test('bash completes commands, options and their values', async () => {
  const script = await bashScript();
  const program = await createCommands(new Session({}));
  const namesOf = (group: typeof program) => shownCommands(group).map((command) => command.name());
  const groups = program.commands.filter(({ commands }) => commands.length > 0);
  await expectOffered(script, [
    ['ctl  ', expect.arrayContaining([...namesOf(program), '--json', '--version'])],
    ...groups.map((group) => [`ctl  ${group.name()}  `, expect.arrayContaining(namesOf(group))] as const),
    ['ctl  keys  l', ['list']],
    ['ctl  --json  keys  secrets  re', ['revoke']],
    ['ctl  keys  list  --s', ['--state', '--sort']],
    ['ctl  keys  list  --plan  ', ['free', 'pro', 'business', 'enterprise']],
    ['ctl  keys  list  --plan  pro  --sort  i', ['idle']],
    ['ctl  requests  --f', ['--from', '--follow']],
    ['ctl  plans  set  b', ['business']],
    ['ctl  keys  create  --name  ', []],
    [`ctl  plans  diff  -f  ${script.slice(0, -5)}`, [script]],
  ]);
});

test('bash completes the ids and names of keys, secrets and tokens if a gateway responds', async () => {
  const stack = await startStack();
  const acme = idOf(await stack.issueKey({ name: 'acme zoo' }));
  const farm = idOf(await stack.issueKey({ name: 'acme farm' }));
  const whole = await stack.issueKey({ name: "o'neill" });
  const [{ id: first }] = (await get<{ secrets: [{ id: string }] }>(stack, `/keys/${acme}`)).secrets;
  await stack.admin('POST', `/keys/${acme}/secrets`, { name: 'billing service' });
  const token = (await stack.admin('POST', '/tokens', { name: 'on call', role: 'viewer' })).json as { id: string };
  const script = await bashScript();
  const bin = join(ROOT, 'gateway/operators/cli/bin.js');
  const expectRows = (...rows: Row[]) =>
    expectOffered(
      script,
      rows.map(([line, words]) => [`${bin}  ${line}`, words]),
      operatorOf(stack),
    );
  const all = [idOf(whole), "o\\'neill", farm, 'acme\\ farm', acme, 'acme\\ zoo'];
  await expectRows(
    ['keys  show  ', all],
    ['requests  --key  ', all],
    ['activity  --target  acme\\ z', ['acme\\ zoo']],
    ['keys  show  "acme f', ['acme farm']],
    [`bans  lift  --json  ${acme.slice(0, 3)}`, [acme]],
    [`keys  secrets  revoke  ${acme}  bill`, ['billing\\ service']],
    ['keys  secrets  set  acme\\ zoo  ', expect.arrayContaining([first, 'billing\\ service'])],
    [`keys  secrets  set  ${farm}  bill`, []],
    [`keys  rotate  ${acme}  --secret  bill`, ['billing\\ service']],
    ['tokens  revoke  ', [token.id, 'on\\ call']],
    [`keys  show  ${whole}`, []],
  );
  expect(JSON.stringify(stack.log)).not.toContain(whole.slice(16));
  await stack.stop();
  await expectRows(['keys  show  ', expect.arrayContaining(['--json'])]);
});

/** A program that prints what it is asked for, in place of ctl, which takes a quarter of a second to start. */
async function echo(): Promise<string> {
  const program = join(await temporaryFolder(), 'ctl');
  writeFileSync(program, '#!/bin/sh\nIFS=/; shift 2; echo "$*"\n', { mode: 0o755 });
  return program;
}

test('bash recognizes options and their values between the arguments', async () => {
  const program = await echo();
  const rows: readonly Row[] = [
    ['keys  set  acme zoo  --plan  f', ['free']],
    ['keys  rotate  --grace  24h  acme  --secret  bill', ['secret/bill/acme']],
    ['keys  rotate  --grace  =  24h  acme  --secret  bill', ['secret/bill/acme']],
    ['keys  secrets  set  --expires  2030-12-31T00  :  00  :  00Z  --json  acme  bill', ['secret/bill/acme']],
    ['keys  secrets  set  --scope  read  write  --name  x  acme  bill', ['secret/bill/acme']],
    ['keys  secrets  set  --scope  read  w', ['write']],
    ['bans  set  --for  2h  acme', ['key/acme/']],
    ['keys  set  --tag  env  =  prod  acme', ['key/acme/']],
    ['keys  list  --plan  =  f', ['free']],
    ['bans  set  acme  --for  2h  --re', ['--reason']],
    ['keys  secrets  list  acme  --js', ['--json']],
    ['keys  show  --js', ['--json']],
  ];
  await expectOffered(
    await bashScript(),
    rows.map(([line, words]) => [`${program}  ${line}`, words]),
  );
});

const RED = '\u001b[31m';

/** Tests ctl on a terminal that the program `script` provides. */

const onTerminal = ctlOnTerminal.bind(undefined, stack);

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
    expect([typed, await answer(started, `Permanently revoke test (${idOf(key)})? [y/N]`, typed)]).toEqual([
      typed,
      code,
    ]);
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

test('confirming a change or a file changes nothing if the plans have changed in the meantime', async () => {
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
    const reported = expect.stringContaining('have been changed in the meantime');
    expect(await started.ended).toMatchObject({ code: 4, out: reported });
    expect(await minuteOf('business')).toBe(minute);
  }
});

test('an expiry in the past requires confirmation, or --yes without a terminal', async () => {
  const key = await stack.issueKey();
  const past = '2020-01-01T00:00:00Z';
  const declined = onTerminal(['keys', 'expire', idOf(key), past]);
  expect(await answer(declined, `Expire test (${idOf(key)}) now? 2020-01-01`, 'n\n')).toBe(5);
  const inPipe = await ctl(stack, 'keys', 'expire', idOf(key), past);
  expect(inPipe).toMatchObject({ code: 5, out: '', err: expect.stringContaining('is in the past') });
  expect(await works(key)).toBe(true);
  expect((await ctl(stack, 'keys', 'expire', idOf(key), past, '--yes')).code).toBe(0);
  expect(await works(key)).toBe(false);
  expect((await ctl(stack, 'keys', 'expire', idOf(key), '2100-01-01T00:00:00Z')).code).toBe(0);
  const now = onTerminal(['keys', 'expire', idOf(key)]);
  expect(await answer(now, `Expire test (${idOf(key)}) now? [y/N]`, 'n\n')).toBe(5);
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
  const asShown = ['--expires', '2030-07-01 01:30:00 +05:30'];
  const created = await ctl(stack, '--json', 'keys', 'create', '--plan', 'free', '--name', 'a', ...asShown);
  expect(JSON.parse(created.out)).toMatchObject({ expiresAt: '2030-06-30T20:00:00.000Z' });
  expect((await ctl(stack, 'keys', 'secrets', 'add', idOf(key), '--name', 'b', ...asShown)).code).toBe(0);
});

test('the status of a refused request is coloured', async () => {
  const key = await stack.issueKey({ minute: 1 });
  for (let sent = 0; sent < 3; sent++) await statusOf(stack, key);
  const { code, out } = await onTerminal(['requests', '--key', idOf(key)]).ended;
  expect([code, out.split('\u001b[33m429').length]).toEqual([0, 3]);
  expect(out).not.toContain('\u001b[33m200');
});
