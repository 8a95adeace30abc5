import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { shownCommands } from '../../gateway/operators/cli/commands/completion.ts';
import { createCommands } from '../../gateway/operators/cli/commands.ts';
import { Session } from '../../gateway/operators/cli/session.ts';
import { idOf } from '../support/api-key.ts';
import { ctlProcess, ctlWith, operatorOf } from '../support/ctl.ts';
import { serveHttp } from '../support/http-server.ts';
import { ROOT, startProcess } from '../support/process.ts';
import { ADMIN_TOKEN, startStack, temporaryFolder } from '../support/stack.ts';

/** The command line as a program: its version, its errors, its completion. */

const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string };

test('--version prints the version', async () => {
  expect(await ctlProcess({}, ['--version']).ended).toEqual({ code: 0, out: `${version}\n`, err: '' });
});

const NOWHERE = { ADMIN_PORT: '1', ADMIN_TOKEN };
const AWAY = 'No gateway answers at http://127.0.0.1:1. Is it running? ADMIN_HOST and ADMIN_PORT are its address.';

test.for([
  ['fly --json', 2, 'usage', "unknown command 'fly'", NOWHERE],
  ['--json keys rotate a --grace 24', 2, 'usage', 'It needs a unit', NOWHERE],
  ['--json keys create --plan free', 2, 'usage', "required option '--name <name>' not specified", NOWHERE],
  ['--json', 2, 'usage', 'A command is missing', NOWHERE],
  ['--json keys', 2, 'usage', 'A command is missing', NOWHERE],
  ['--json keys revoke a', 5, 'not_confirmed', 'pass --yes', NOWHERE],
  ['--json keys rotate a --grace 0', 5, 'not_confirmed', 'pass --yes', NOWHERE],
  ['--json plans show', 1, 'no_gateway', AWAY, NOWHERE],
  ['--json plans show', 1, 'no_token', '', { DATA_DIR: '/no/such/folder' }],
  ['--json plans show', 1, 'invalid_settings', 'ADMIN_PORT: must be a whole number', { ADMIN_PORT: 'abc' }],
] as [string, number, string, string, NodeJS.ProcessEnv][])(
  '`ctl %s` exits with %i and one line of JSON: %s, %s',
  async ([words, exit, code, message, environment]) => {
    const ended = await ctlWith(environment, ...words.split(' '));
    expect([ended.code, ended.out]).toEqual([exit, '']);
    expect(JSON.parse(ended.err)).toEqual({ code, message: expect.stringContaining(message) });
  },
);

test('ctl reports a server that is no gateway, a gateway that is away, and a wrong token', async () => {
  const adminUrl = await serveHttp((_request, response) => response.end('<html>'));
  const stack = await startStack();
  for (const [environment, message] of [
    [operatorOf({ adminUrl }), `The server at ${adminUrl} is not a gateway's admin listener.\n`],
    [NOWHERE, 'No gateway answers at http://127.0.0.1:1. Is it running? ADMIN_HOST and ADMIN_PORT are its address.\n'],
    [{ ...operatorOf(stack), ADMIN_TOKEN: 'of-another-gateway' }, 'The token is wrong or has been revoked.\n'],
  ] as const)
    expect(await ctlWith(environment, 'plans', 'show')).toEqual({ code: 1, out: '', err: message });
});

test('each file in commands/ defines the command of its name', async () => {
  const files = readdirSync(join(ROOT, 'gateway/operators/cli/commands')).map((file) => file.replace(/\.ts$/, ''));
  const { out } = await ctlWith({}, '--help');
  const [listed = ''] = out.split('Commands:\n')[1]?.split('\n\n') ?? [];
  const names = [...listed.matchAll(/^ {2}(\w+)/gm)].map(([, name]) => name);
  expect(names.filter((name) => name !== 'help').sort()).toEqual(files.sort());
});

/** The script for bash, in a file. */
async function bashScript(): Promise<string> {
  const script = join(await temporaryFolder(), 'ctl.bash');
  const { code, out } = await ctlWith({}, 'completion', 'bash');
  expect([code, out]).toEqual([0, expect.stringContaining('\ncomplete -F _animal_store_ctl ctl animal-store\n')]);
  writeFileSync(script, out);
  return script;
}

/** What bash offers behind each of these lines, whose words are separated by two spaces. */
async function offered(script: string, lines: readonly string[], environment: NodeJS.ProcessEnv = {}) {
  const complete = `offer() {
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _animal_store_ctl; printf '%s\\n' "\${COMPREPLY[@]}" 'the end'
  }`;
  const calls = lines.map(
    (line) =>
      `offer ${line
        .split('  ')
        .map((word) => `'${word}'`)
        .join(' ')}`,
  );
  const words = ['-c', [`source ${script}`, complete, ...calls].join('\n')];
  const { code, out, err } = await startProcess('bash', words, environment).ended;
  expect([code, err]).toEqual([0, '']);
  return out.split('the end\n').map((part) => part.split('\n').filter((word) => word !== ''));
}

test('bash completes commands, options and their values', async () => {
  const script = await bashScript();
  const program = await createCommands(new Session({}, () => ({})), () => false);
  const namesOf = (group: typeof program) => shownCommands(group).map((command) => command.name());
  const groups = program.commands.filter(({ commands }) => commands.length > 0);
  const rows: readonly (readonly [line: string, offered: readonly string[]])[] = [
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
  ];
  const answers = await offered(
    script,
    rows.map(([line]) => line),
  );
  for (const [at, [line, words]] of rows.entries()) expect([line, answers[at]]).toEqual([line, words]);
});

test('bash completes ids and names of keys if a gateway answers', async () => {
  const stack = await startStack();
  const acme = idOf(await stack.issueKey({ name: 'acme zoo' }));
  const farm = idOf(await stack.issueKey({ name: 'acme farm' }));
  const whole = await stack.issueKey({ name: "o'neill" });
  const script = await bashScript();
  const bin = join(ROOT, 'gateway/operators/cli/bin.js');
  const keys = (...lines: string[]) =>
    offered(
      script,
      lines.map((line) => `${bin}  ${line}`),
      operatorOf(stack),
    );
  const all = [idOf(whole), "o\\'neill", farm, 'acme\\ farm', acme, 'acme\\ zoo'];
  const rows: readonly (readonly [line: string, offered: readonly string[]])[] = [
    ['keys  show  ', all],
    ['requests  --key  ', all],
    ['activity  --target  acme\\ z', ['acme\\ zoo']],
    ['keys  show  "acme f', ['acme farm']],
    [`bans  lift  --json  ${acme.slice(0, 3)}`, [acme]],
    ['keys  set  acme zoo  --plan  f', ['free']],
    [`keys  secrets  revoke  ${acme}  `, expect.not.arrayContaining([farm])],
    ['keys  show  --js', ['--json']],
    [`keys  show  ${whole}`, []],
  ];
  const answers = await keys(...rows.map(([line]) => line));
  for (const [at, [line, words]] of rows.entries()) expect([line, answers[at]]).toEqual([line, words]);
  expect(JSON.stringify(stack.log)).not.toContain(whole.slice(16));
  await stack.stop();
  expect((await keys('keys  show  '))[0]).toEqual(expect.arrayContaining(['--json']));
});
