import { cpSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { ctlWith, operatorOf } from '../support/ctl.ts';
import { need } from '../support/install.ts';
import { ROOT, startProcess } from '../support/process.ts';
import { startStack, temporaryFolder } from '../support/stack.ts';

/** The command line as npm installs it, and its completion for zsh. */

const BIN = 'gateway/operators/cli/bin.js';

/** Copies the package into a node_modules folder, as npm does. @param engine the Node version that it requires */
async function installed(engine?: string): Promise<string> {
  const modules = join(await temporaryFolder(), 'node_modules');
  const own = join(modules, 'animal-store-gateway');
  mkdirSync(own, { recursive: true });
  for (const name of ['gateway', 'shared', 'package.json'])
    cpSync(join(ROOT, name), join(own, name), { recursive: true });
  for (const name of readdirSync(join(ROOT, 'node_modules')).filter((name) => !name.startsWith('.')))
    symlinkSync(join(ROOT, 'node_modules', name), join(modules, name));
  if (engine !== undefined) {
    const text = readFileSync(join(own, 'package.json'), 'utf8');
    writeFileSync(join(own, 'package.json'), text.replace(/"node": ">=[\d.]+"/, `"node": ">=${engine}"`));
  }
  return join(own, BIN);
}

test('ctl runs in the project and where npm has installed it', async () => {
  for (const bin of [BIN, await installed()]) {
    const { ended } = startProcess(process.execPath, [bin, 'keys', '--help'], {});
    expect(await ended).toMatchObject({ code: 0, out: expect.stringContaining('Usage: ctl keys'), err: '' });
  }
});

test('ctl reports a version of Node that is too old', async () => {
  const { ended } = startProcess(process.execPath, [await installed('99.1.0'), '--version'], {});
  expect(await ended).toEqual({
    code: 1,
    out: '',
    err: `This is Node ${process.versions.node}; ctl needs Node 99.1.0 or later.\n`,
  });
});

test('npx runs ctl in the project', async () => {
  const { code, out } = await startProcess('npx', ['--no-install', 'ctl', '--help'], {}).ended;
  expect([code, out]).toEqual([0, expect.stringContaining('Usage: ctl [options] [command]')]);
});

/** Prints what the script passes to zsh. */
const ZSH = `
compdef() { print -r -- "completes $*" }
compadd() { print -rl -- "\${@[2,-1]}" }
_describe() { print -rl -- "\${(@P)2}" }
_files() { print -r -- files }
source "$1"
words=(gateway/operators/cli/bin.js "\${@[2,-1]}") CURRENT=$#
_animal_store_ctl
`;

test('zsh completes commands, options and their values', async () => {
  need('zsh');
  const script = join(await temporaryFolder(), '_ctl');
  writeFileSync(script, (await ctlWith({}, 'completion', 'zsh')).out);
  const stack = await startStack();
  const id = idOf(await stack.issueKey({ name: 'acme zoo' }));
  const offered = async (...words: string[]) => {
    const { code, out, err } = await startProcess('zsh', ['-fc', ZSH, 'zsh', script, ...words], operatorOf(stack))
      .ended;
    expect([code, err]).toEqual([0, '']);
    const [first, ...rest] = out.trimEnd().split('\n');
    expect(first).toBe('completes _animal_store_ctl ctl animal-store');
    return rest;
  };
  expect(await offered('keys', '')).toEqual(expect.arrayContaining(['list:list keys, newest first']));
  expect(await offered('keys', 'create', '')).toEqual(
    expect.arrayContaining(["--minute:its own limit of requests per minute, instead of the plan's"]),
  );
  expect(await offered('keys', 'list', '--plan', '')).toEqual(['free', 'pro', 'business', 'enterprise']);
  expect(await offered('plans', 'diff', '-f', '')).toEqual(['files']);
  expect(await offered('keys', 'create', '--name', '')).toEqual([]);
  expect(await offered('keys', 'show', '')).toEqual([id, 'acme zoo']);
  expect(await offered('requests', '--key', "'acme z")).toEqual(['acme zoo']);
  await stack.admin('POST', `/keys/${id}/secrets`, { name: 'billing service' });
  expect(await offered('keys', 'secrets', 'set', "'acme zoo'", 'bill')).toEqual(['billing service']);
  expect(await offered('keys', 'rotate', '--grace', '24h', 'acme zoo', '--secret', 'bill')).toEqual([
    'billing service',
  ]);
  expect(await offered('keys', 'secrets', 'set', '--scope', 'read', 'w')).toEqual(['read', 'write']);
  expect(await offered('bans', 'set', '--for', '2h', "'acme z")).toEqual(['acme zoo']);
  expect(await offered('keys', 'rotate', '--grace', '')).toEqual([]);
  expect(await offered('keys', 'rotate', 'acme zoo', '')).toEqual(
    expect.arrayContaining([expect.stringMatching('^--grace:')]),
  );
});
