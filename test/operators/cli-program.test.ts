import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { PROGRAM_NAMES, shownCommands } from '../../gateway/operators/cli/commands/completion.ts';
import { createCommands } from '../../gateway/operators/cli/commands.ts';
import { Session } from '../../gateway/operators/cli/session.ts';
import { idOf } from '../support/api-key.ts';
import { CLI, operatorOf } from '../support/ctl.ts';
import { ROOT, startProcess } from '../support/process.ts';
import { startStack, temporaryFolder } from '../support/stack.ts';

/** The command line as a program: its version, its errors as JSON, its completion. */

const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string };

const ctlWith = (environment: NodeJS.ProcessEnv, ...words: readonly string[]) =>
  startProcess(process.execPath, [CLI, ...words], environment).ended;

test('--version prints the version', async () => {
  expect(await ctlWith({}, '--version')).toEqual({ code: 0, out: `${version}\n`, err: '' });
});

test.for([
  [['fly', '--json'], 2, 'usage', "unknown command 'fly'"],
  [['--json', 'keys', 'rotate', 'a', '--grace', '24'], 2, 'usage', 'It needs a unit'],
  [['--json', 'keys', 'create', '--plan', 'free'], 2, 'usage', "required option '--name <name>' not specified"],
  [['--json'], 2, 'usage', 'A command is missing'],
  [['--json', 'keys'], 2, 'usage', 'A command is missing'],
  [['--json', 'keys', 'revoke', 'a'], 5, 'not_confirmed', 'pass --yes'],
  [['--json', 'plans', 'show'], 1, 'no_gateway', 'No gateway answers'],
] as const)('%j exits with %i and one line of JSON: %s', async ([words, exit, code, message]) => {
  const ended = await ctlWith({ ADMIN_PORT: '1', ADMIN_TOKEN: 'token-of-the-tests' }, ...words);
  expect([ended.code, ended.out]).toEqual([exit, '']);
  expect(JSON.parse(ended.err)).toEqual({ code, message: expect.stringContaining(message) });
});

test('missing tokens and invalid settings have error codes', async () => {
  const [noToken, badPort] = await Promise.all([
    ctlWith({ DATA_DIR: '/no/such/folder' }, '--json', 'plans', 'show'),
    ctlWith({ ADMIN_PORT: 'abc' }, '--json', 'plans', 'show'),
  ]);
  expect([noToken.code, JSON.parse(noToken.err)]).toMatchObject([1, { code: 'no_token' }]);
  expect([badPort.code, JSON.parse(badPort.err)]).toMatchObject([1, { code: 'invalid_settings' }]);
});

/** What a shell offers behind these words. */
const offered = (script: string, ...words: readonly string[]): Promise<string[]> =>
  offeredTo({}, script, 'ctl', ...words);

async function offeredTo(environment: NodeJS.ProcessEnv, script: string, ...words: string[]): Promise<string[]> {
  const asked = `source ${script}; COMP_WORDS=("$@"); COMP_CWORD=$((\${#COMP_WORDS[@]} - 1)); _animal_store_ctl; printf '%s\\n' "\${COMPREPLY[@]}"`;
  const { code, out, err } = await startProcess('bash', ['-c', asked, 'bash', ...words], environment).ended;
  expect([code, err]).toEqual([0, '']);
  return out.split('\n').filter((word) => word !== '');
}

test('each file in commands/ defines the command of its name', async () => {
  const files = readdirSync(join(ROOT, 'gateway/operators/cli/commands')).map((file) => file.replace(/\.ts$/, ''));
  const { out } = await ctlWith({}, '--help');
  const [listed = ''] = out.split('Commands:\n')[1]?.split('\n\n') ?? [];
  const names = [...listed.matchAll(/^ {2}(\w+)/gm)].map(([, name]) => name);
  expect(names.filter((name) => name !== 'help').sort()).toEqual(files.sort());
});

test('bash completes commands, options and their values', async () => {
  const folder = await temporaryFolder();
  const script = join(folder, 'ctl.bash');
  const { code, out } = await ctlWith({}, 'completion', 'bash');
  expect(code).toBe(0);
  writeFileSync(script, out);
  const program = await createCommands(new Session({}, () => ({})), () => false);
  const namesOf = (group: typeof program) => shownCommands(group).map((command) => command.name());
  expect(await offered(script, '')).toEqual(expect.arrayContaining([...namesOf(program), '--json', '--version']));
  for (const group of program.commands.filter(({ commands }) => commands.length > 0))
    expect(await offered(script, group.name(), '')).toEqual(expect.arrayContaining(namesOf(group)));
  expect(await offered(script, 'keys', 'l')).toEqual(['list']);
  expect(await offered(script, '--json', 'keys', 'secrets', 're')).toEqual(['revoke']);
  expect(await offered(script, 'keys', 'list', '--s')).toEqual(['--state', '--sort']);
  expect(await offered(script, 'keys', 'list', '--plan', '')).toEqual(['free', 'pro', 'business', 'enterprise']);
  expect(await offered(script, 'keys', 'list', '--plan', 'pro', '--sort', 'i')).toEqual(['idle']);
  expect(await offered(script, 'requests', '--f')).toEqual(['--from', '--follow']);
  expect(await offered(script, 'plans', 'set', 'b')).toEqual(['business']);
  expect(await offered(script, 'keys', 'create', '--name', '')).toEqual([]);
  expect(await offered(script, 'plans', 'diff', '-f', `${folder}/ct`)).toEqual([script]);
});

test('bash completes ids and names of keys if a gateway answers', async () => {
  const stack = await startStack();
  const acme = idOf(await stack.issueKey({ name: 'acme zoo' }));
  const farm = idOf(await stack.issueKey({ name: 'acme farm' }));
  const whole = await stack.issueKey({ name: "o'neill" });
  const script = join(await temporaryFolder(), 'ctl.bash');
  writeFileSync(script, (await ctlWith({}, 'completion', 'bash')).out);
  const bin = join(ROOT, 'gateway/operators/cli/bin.js');
  const keys = (...words: string[]) => offeredTo(operatorOf(stack), script, bin, ...words);
  const all = [idOf(whole), "o\\'neill", farm, 'acme\\ farm', acme, 'acme\\ zoo'];
  expect(await keys('keys', 'show', '')).toEqual(all);
  expect(await keys('requests', '--key', '')).toEqual(all);
  expect(await keys('activity', '--target', 'acme\\ z')).toEqual(['acme\\ zoo']);
  expect(await keys('keys', 'show', '"acme f')).toEqual(['acme farm']);
  expect(await keys('bans', 'lift', '--json', acme.slice(0, 3))).toEqual([acme]);
  expect(await keys('keys', 'set', 'acme zoo', '--plan', 'f')).toEqual(['free']);
  expect(await keys('keys', 'secrets', 'revoke', acme, '')).not.toContain(farm);
  expect(await keys('keys', 'show', '--js')).toEqual(['--json']);
  expect(await keys('keys', 'show', whole)).toEqual([]);
  expect(JSON.stringify(stack.log)).not.toContain(whole.slice(16));
  await stack.stop();
  expect(await keys('keys', 'show', '')).toEqual(expect.arrayContaining(['--json']));
});

test('the package installs ctl and animal-store', () => {
  expect(PROGRAM_NAMES).toEqual(['ctl', 'animal-store']);
});
