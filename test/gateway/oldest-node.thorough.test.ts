import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { send } from '../support/http.ts';
import { ROOT, startProcess } from '../support/process.ts';
import { temporaryFolder } from '../support/stack.ts';

/** Tests of the areas that differ most between Node versions: connections, upgrades, pipelining and streams. */
const FILES = ['security/tunnel', 'gateway/large-answers', 'gateway/pipelining'];

/** Downloads this version of Node from npm. */
async function nodeOf(version: string): Promise<string> {
  const folder = await temporaryFolder();
  const name = `node-linux-${process.arch}`;
  const options = ['--prefix', folder, '--no-save', '--no-audit', '--no-fund'];
  await promisify(execFile)('npm', ['install', ...options, `${name}@${version}`]);
  return join(folder, 'node_modules', name, 'bin');
}

/** Starts core and gateway as npm start does, which itself uses the project's own Node. */
async function expectStarts(node: string): Promise<void> {
  const environment = { PORT: '0', CORE_PORT: '0', ADMIN_PORT: '0', DATA_DIR: await temporaryFolder() };
  const started = startProcess(node, ['deploy/local.ts'], environment);
  await expect.poll(started.out, { timeout: 60_000 }).toContain('Ctrl-C stops both.');
  const [key] = /as_\w{12}_\w{38}/.exec(started.out()) ?? [];
  const gateway = /gateway +(\S+)/.exec(started.out())?.[1];
  expect(await send(`${gateway}/v1/pets`, { key })).toMatchObject({ status: 200, text: '[]' });
  started.child.kill('SIGINT');
  expect(await started.ended).toMatchObject({ code: 0, err: '' });
}

const INSTALL_AND_RUN_MS = 600_000;

test.runIf(process.platform === 'linux')(
  'the services run on the oldest Node that package.json allows',
  async () => {
    const { engines } = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8')) as { engines: { node: string } };
    const version = engines.node.replace('>=', '');
    const bin = await nodeOf(version);
    await expectStarts(join(bin, 'node'));
    expect((await startProcess(join(bin, 'node'), ['--version'], {}).ended).out).toBe(`v${version}\n`);
    const vitest = [join(ROOT, 'test/node_modules/vitest/vitest.mjs'), 'run', '--config', 'test/vitest.config.ts'];
    // The nested run starts its own servers and skips long searches.
    const own = { THOROUGH: undefined, REDIS_URL: undefined, POSTGRES_URL: undefined };
    const environment = { ...own, PATH: `${bin}${delimiter}${process.env.PATH}` };
    const { code, out } = await startProcess(join(bin, 'node'), [...vitest, ...FILES], environment).ended;
    expect(out.match(/^(failed: .*|\d+ passed, \d+ failed.*)$/gm)).toEqual([
      expect.stringMatching(/ passed, 0 failed$/),
    ]);
    expect(code).toBe(0);
  },
  INSTALL_AND_RUN_MS,
);

const OLD_NODE = `data:text/javascript,Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '22.1.0' } })`;

test.for(['gateway/main.ts', 'core/main.ts', 'gateway/operators/cli/main.ts'])(
  '%s says which Node it needs, instead of failing with a stack trace',
  async (main) => {
    const { code, out, err } = await startProcess(process.execPath, ['--import', OLD_NODE, main], {}).ended;
    const needed = /^This is Node 22\.1\.0; Node 24\.15 or later is needed\. [^\n]+\n$/;
    expect([code, out, err]).toEqual([1, '', expect.stringMatching(needed)]);
  },
);
