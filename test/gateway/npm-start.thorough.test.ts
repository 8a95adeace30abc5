import { existsSync } from 'node:fs';
import { readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { z } from 'zod';
import { CoreSettings } from '../../core/config.ts';
import { LocalSettings } from '../../deploy/local-settings.ts';
import { everythingIn } from '../support/embedded-database.ts';
import { post, send } from '../support/http.ts';
import { serveHttp } from '../support/http-server.ts';
import { floodWithoutKey } from '../support/keyless-flood.ts';
import { parsedLines } from '../support/log.ts';
import { ROOT, type Started, startProcess, startService } from '../support/process.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { temporaryFolder } from '../support/stack.ts';

const ANY_PORTS = { PORT: '0', ADMIN_PORT: '0' };

/** Runs `npm start` in its own process group, as in a terminal, so that the test can press Ctrl-C. */
async function npmStart(
  DATA_DIR: string,
  given: NodeJS.ProcessEnv = {},
): Promise<Started & { keys: string[]; gateway: string; curl: string }> {
  const environment = { DATA_DIR, CORE_PORT: '0', ...ANY_PORTS, ...given };
  const started = startProcess('npm', ['start', '--silent'], environment, { detached: true });
  await expect.poll(started.out).toContain('Ctrl-C stops ');
  const keys = started.out().match(/as_\w{12}_\w{38}/g) ?? [];
  const curl = /^ {2}(curl .*)$/m.exec(started.out())?.[1] ?? '';
  return { ...started, keys: keys.slice(0, 4), gateway: /gateway +(\S+)/.exec(started.out())?.[1] ?? '', curl };
}

const pressCtrlC = ({ child }: Started) => process.kill(-(child.pid as number), 'SIGINT');

/** Returns the processes of `npm start` that use this folder. */
const leftOver = (DATA_DIR: string): Promise<string[]> => processesWith(`DATA_DIR=${DATA_DIR}`);

/** Returns the `npm start` processes that run with a single malloc arena: the gateway's primary and its worker. */
async function withOneArena(DATA_DIR: string): Promise<string[]> {
  const having = await processesWith('MALLOC_ARENA_MAX=1');
  return (await leftOver(DATA_DIR)).filter((one) => having.includes(one));
}

/** Returns the processes with this variable in their environment. */
async function processesWith(variable: string): Promise<string[]> {
  const { ended } = startProcess('sh', ['-c', `grep -lsz "^${variable}$" /proc/[0-9]*/environ; true`], {});
  return (await ended).out.split('\n').filter((line) => line !== '');
}

test('npm start prints a key per plan and a working curl command, even with secret files, and leaves no process behind', async () => {
  const DATA_DIR = await temporaryFolder();
  const first = await npmStart(DATA_DIR);
  const limits = await Promise.all(
    first.keys.map(async (key) => (await send(`${first.gateway}/v1/pets`, { key })).headers['x-ratelimit-limit']),
  );
  expect(limits).toEqual(['60', '300', '1000', '5000']);
  const pasted = await startProcess('sh', ['-c', first.curl], {}).ended;
  expect(pasted.out).toMatch(/^HTTP\/1.1 200 OK\r\n[\s\S]*\r\n\r\n\[\]$/);
  const added = await post(`${first.gateway}/v1/pets`, { name: 'Rex', categoryId: 1 }, { key: first.keys[0] ?? '' });
  expect(added.status).toBe(201);
  const consoleUrl = /admin +(\S+)/.exec(first.out())?.[1] ?? '';
  expect((await send(consoleUrl)).headers['content-type']).toMatch(/^text\/html/);
  expect(first.out()).toContain(`token in ${DATA_DIR}/admin-token`);
  expect((await stat(`${DATA_DIR}/demo-keys.json`)).mode & 0o777).toBe(0o600);
  expect(await withOneArena(DATA_DIR)).toHaveLength(2);

  // It stops even if its output is no longer read.
  first.child.stdout?.pause();
  await floodWithoutKey(first.gateway, 500);
  pressCtrlC(first);
  await expect.poll(() => leftOver(DATA_DIR)).toEqual([]);
  expect(everythingIn(DATA_DIR)).not.toContain(first.keys[0]?.slice(16, 48));

  const files = { ADMIN_TOKEN_FILE: join(DATA_DIR, 'a'), DATABASE_URL_FILE: join(DATA_DIR, 'b') };
  await writeFile(files.ADMIN_TOKEN_FILE, 'token-of-the-tests');
  await writeFile(files.DATABASE_URL_FILE, `sqlite:${DATA_DIR}/other.db`);
  // The write-ahead log exists only if it was not merged into the database.
  for (const name of (await readdir(DATA_DIR)).filter((one) => one.startsWith('store.db')))
    await rename(join(DATA_DIR, name), join(DATA_DIR, name.replace('store', 'other')));
  const second = await npmStart(DATA_DIR, { ...files, DATABASE_URL: '' });
  expect(second.out()).toContain(`token in ${files.ADMIN_TOKEN_FILE};`);
  expect(second.keys).toEqual(first.keys);
  expect((await send(`${second.gateway}/v1/pets`, { key: second.keys[0] })).text).toBe(`[${added.text}]`);

  // npm may be killed without a signal to its child processes.
  process.kill(second.child.pid as number, 'SIGKILL');
  await expect.poll(() => leftOver(DATA_DIR)).toEqual([]);
}, 60_000);

test('npm start with CORE_URL starts only the gateway, in front of the API at that URL', async () => {
  const CORE_URL = await serveHttp((request, response) => {
    response.setHeader('x-request-id', String(request.headers['x-request-id']));
    response.end('["of an API of my own"]');
  });
  const DATA_DIR = await temporaryFolder();
  const { gateway, keys, out } = await npmStart(DATA_DIR, { CORE_URL });
  expect((await send(`${gateway}/v1/pets`, { key: keys[0] })).text).toBe('["of an API of my own"]');
  expect(out()).toContain(`core       ${CORE_URL}`);
  expect(existsSync(join(DATA_DIR, 'store.db'))).toBe(false);
}, 60_000);

test('npm start reports all invalid settings of both services and invalid arguments, and starts nothing', async () => {
  const DATA_DIR = join(await temporaryFolder(), 'new');
  const environment = {
    ...{ DATA_DIR, CORE_HOST: 'a b', CORE_PORT: 'x', PORT: '70000', ADMIN_PORT: 'x' },
    ...{ DATABASE_URL: 'mysql://a', CORE_TOKEN: 'short', LOG_LEVEL: 'loud', WORKERS: '2', CORE_URL: 'store' },
  };
  const args = ['start', '--silent', '--', '--prot', '9000'];
  const { code, out, err } = await startProcess('npm', args, environment).ended;
  expect({ code, out, started: existsSync(DATA_DIR) }).toEqual({ code: 1, out: '', started: false });
  expect(err).toBe(`The settings are invalid:
  PORT: must be a whole number from 0 to 65535
  CORE_URL.0: must be an http://, https://, http+srv://, https+srv:// or unix: URL
  CORE_TOKEN: must be a token of at least 16 characters, without spaces; separate several with commas, without empty ones
  ADMIN_PORT: must be a whole number from 0 to 65535
  LOG_LEVEL: must be one of fatal, error, warn, info, debug, trace, silent
  CORE_HOST: must be a host name or an IP address
  CORE_PORT: must be a whole number from 0 to 65535
  DATABASE_URL: must be sqlite:<path> or postgres://…
  WORKERS: must be 1 without REDIS_URL: embedded storage cannot be shared
  --prot: is not accepted: settings are environment variables. Did you mean PORT=9000?
`);
});

test.for([
  ['of both services', ['CORE_PORT', 'PORT', 'ADMIN_PORT'], 'core'],
  ['of the gateway', ['PORT', 'ADMIN_PORT'], 'gateway'],
] as const)('npm start names every port %s that is in use', async ([, names, ended]) => {
  const { port } = new URL(await serveHttp(() => {}));
  const taken = Object.fromEntries(names.map((name) => [name, port]));
  const environment = { CORE_PORT: '0', DATA_DIR: await temporaryFolder(), ...taken };
  const { code, err } = await startProcess('npm', ['start', '--silent'], environment).ended;
  const lines = names.map(
    (name) =>
      `Cannot listen on 127.0.0.1:${port}: another program uses this address. Stop it, or set ${name} to a free port.`,
  );
  lines.push(`The ${ended} has exited (exit code 1). Stopping.`, '');
  expect({ code, err: err.split('\n') }).toEqual({ code: 1, err: lines });
});

test('npm start accepts every setting of the core and validates it as the core does', () => {
  const names = Object.keys(CoreSettings.shape).map((name) => (/^(HOST|PORT)$/.test(name) ? `CORE_${name}` : name));
  expect(Object.keys(LocalSettings.shape)).toEqual(expect.arrayContaining(names));
  for (const bad of ['', 'x', '-1', 'a b', '99999999999']) {
    const faults = (schema: z.ZodObject) => {
      const given = Object.fromEntries(Object.keys(schema.shape).map((name) => [name, bad]));
      return schema.safeParse(given).error?.issues ?? [];
    };
    const ofCore = faults(CoreSettings).map(({ path, message }) => [
      String(path[0]).replace(/^(?=HOST|PORT)/, 'CORE_'),
      message,
    ]);
    const ofBoth = faults(LocalSettings).map(({ path, message }) => [path[0], message]);
    expect(ofBoth).toEqual(expect.arrayContaining(ofCore));
  }
});

test('compiled code is cached in node_modules for the next start', async () => {
  const compiled = join(ROOT, 'node_modules/.cache/compiled');
  const before = performance.timeOrigin;
  // Services of other tests may write to it at the same time.
  await rm(compiled, { recursive: true, force: true, maxRetries: 10 });
  const { code, out } = await startProcess('npm', ['run', '-s', 'ctl', '--', '--help'], {}).ended;
  expect([code, out.includes('ctl keys create')]).toEqual([0, true]);
  const kept = await readdir(compiled, { recursive: true });
  expect([kept.length > 20, (await stat(compiled)).mtimeMs > before]).toEqual([true, true]);
});

test('on the first start, a worker uses the code that its primary has compiled', async () => {
  const folder = await temporaryFolder();
  const environment = { ...ANY_PORTS, DATA_DIR: await temporaryFolder(), NODE_COMPILE_CACHE: folder };
  const started = await startService('gateway/main.ts', environment);
  const lines = parsedLines(started.out);
  const served = () => lines().find(({ msg }) => msg === 'worker is serving')?.time;
  await expect.poll(served).toBeDefined();
  const files = (await readdir(folder, { recursive: true, withFileTypes: true })).filter((entry) => entry.isFile());
  // A file that is still being written has a temporary name.
  const kept = await Promise.all(files.map((file) => stat(join(file.parentPath, file.name)).catch(() => undefined)));
  expect(kept.filter((one) => one !== undefined && one.mtimeMs < Date.parse(String(served()))).length).toBeGreaterThan(
    50,
  );
});

const SAYS_IF_COMPILER = encodeURIComponent(`process.on('exit', () => {
  if (process.moduleLoadList.some((name) => name.includes('/amaro/'))) console.error('has loaded the compiler');
})`);

test('a gateway loads only compiled code after npm ci, with or without Redis, even when its console is opened', async () => {
  const NODE_COMPILE_CACHE = await temporaryFolder();
  const { postinstall } = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8')).scripts;
  await startProcess('sh', ['-c', postinstall], { NODE_COMPILE_CACHE }).ended;
  const NODE_OPTIONS = `--import data:text/javascript,${SAYS_IF_COMPILER}`;
  for (const REDIS_URL of ['', (await emptyDatabase()).url]) {
    const environment = {
      ...ANY_PORTS,
      REDIS_URL,
      DATA_DIR: await temporaryFolder(),
      NODE_COMPILE_CACHE,
      NODE_OPTIONS,
    };
    const { child, ended, addresses } = await startService('gateway/main.ts', environment);
    const script = await send(`${addresses.admin}/console/router.ts`);
    expect([script.status, script.text.includes('interface ')]).toEqual([200, false]);
    child.kill('SIGINT');
    expect(await ended).toMatchObject({ code: 0, err: '' });
  }
});
