import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { type AdminAddress, AdminError, exchange, findAdmin } from '../gateway/operators/cli/admin-client.ts';
import { tokenFile } from '../gateway/operators/tokens.ts';
import { asksForHelp } from '../shared/process/arguments.ts';
import { COMPILED } from '../shared/process/compile-cache.ts';
import { readSettings, SettingsError } from '../shared/process/env.ts';
import { printHelp } from '../shared/process/help.ts';
import { LOGS_TO_4 } from '../shared/process/log-descriptor.ts';
import { every } from '../shared/process/repeat.ts';
import { explain, tryPort } from '../shared/process/run.ts';
import { LOCAL_PROGRAM, LocalSettings } from './local-settings.ts';
import { TerminalLog } from './log-terminal.ts';

/**
 * `npm start`: core and gateway as two processes with embedded storage, a demo key per plan, and a curl line to paste.
 * With CORE_URL, only the gateway is started, in front of that API. On a terminal, each log line is printed in a short
 * readable form; elsewhere, logs are JSON. When this process exits, for any reason, both services exit too: they watch
 * their message channel to it.
 */

const ROOT = dirname(import.meta.dirname);

if (asksForHelp(process.argv)) {
  printHelp(LOCAL_PROGRAM);
  process.exit();
}

const settings = readOrExit();
const DATA_DIR = resolve(settings.DATA_DIR);
/** Readable only by its owner. */
const DEMO_KEYS_FILE = join(DATA_DIR, 'demo-keys.json');
const DEMO_KEYS = [
  { name: 'demo free', plan: 'free' },
  { name: 'demo pro', plan: 'pro' },
  { name: 'demo business', plan: 'business' },
  { name: 'demo enterprise', plan: 'enterprise', minute: 5_000, day: 500_000 },
];

/**
 * The services get their own HOST and PORT, because they share the rest of the environment. `node --watch` makes
 * processes report their imports on the message channel on which services report their addresses, so this is disabled
 * for services.
 */
const { HOST, PORT, CORE_HOST, CORE_PORT, WATCH_REPORT_DEPENDENCIES: _watch, ...given } = process.env;
const ownDatabase = settings.DATABASE_URL === undefined && { DATABASE_URL: `sqlite:${join(DATA_DIR, 'store.db')}` };
const shared = { NODE_COMPILE_CACHE: COMPILED, ...given, ...ownDatabase, DATA_DIR };

/** The running services, the last started first. */
const children: ChildProcess[] = [];
let stoppingSince: number | undefined;
const AGAIN_AFTER_MS = 1_000;
const forever = new Promise<never>(() => {});
const terminal = process.stdout.isTTY ? new TerminalLog() : undefined;

for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, stopOrKill);
process.on('SIGHUP', stop);
stopWithParent();

const hasOwnCore = !given.CORE_URL;
const coreUrl = hasOwnCore ? (await launch('core', { HOST: CORE_HOST, PORT: CORE_PORT })).core : given.CORE_URL;
// Like its workers, the gateway's primary uses a single malloc arena. After it has listed keys for operators, it keeps
// 10 MB less memory.
const gateway = await launch('gateway', { HOST, PORT, CORE_URL: coreUrl, MALLOC_ARENA_MAX: '1' });
terminal?.nameKeysBy(admin);
const keys = await demoKeys().catch(giveUp);
if (keys !== undefined) printWelcome(keys);
terminal?.showRequests();

/** Reports the invalid settings of both services together, and starts neither. */
function readOrExit() {
  try {
    return readSettings(LocalSettings, process.env, process.argv.slice(2));
  } catch (fault) {
    if (!(fault instanceof SettingsError)) throw fault;
    process.stderr.write(`${fault.message}\n`);
    process.exit(1);
  }
}

/**
 * The demo keys by plan. A key that no longer works, because it was revoked or rotated, is replaced.
 * @throws {AdminError} if the gateway cannot issue keys
 */
async function demoKeys(): Promise<Record<string, string>> {
  const at = await admin();
  const kept = await readKept();
  for (const demo of DEMO_KEYS) {
    const key = kept[demo.plan];
    if (key !== undefined && (await isThere(key, at)) && (await opens(key))) continue;
    const { body } = await exchange(at, { method: 'POST', path: '/keys', body: demo });
    kept[demo.plan] = (body as { key: string }).key;
  }
  await mkdir(DATA_DIR, { recursive: true, mode: 0o700 });
  await writeFile(DEMO_KEYS_FILE, `${JSON.stringify(kept, undefined, 2)}\n`, { mode: 0o600 });
  return kept;
}

async function readKept(): Promise<Record<string, string>> {
  try {
    return JSON.parse(await readFile(DEMO_KEYS_FILE, 'utf8')) as Record<string, string>;
  } catch {
    return {};
  }
}

async function isThere(key: string, at: AdminAddress): Promise<boolean> {
  try {
    await exchange(at, { method: 'GET', path: `/keys/${encodeURIComponent(key.slice(3, 15))}` });
    return true;
  } catch (fault) {
    if (fault instanceof AdminError && fault.status === 404) return false;
    throw fault;
  }
}

/**
 * Whether the gateway accepts a key. Asks for the key's limits, which costs no token. If no response arrives, for
 * example because the certificate is private, the key counts as accepted.
 */
async function opens(key: string): Promise<boolean> {
  const headers = { authorization: `Bearer ${key}` };
  const answer = await fetch(`${gateway.gateway}/v1/limits`, { headers }).catch(() => undefined);
  await answer?.body?.cancel();
  return answer?.status !== 401;
}

/** Finds the admin API for each use, because the operators' token may be in a file that changes. */
async function admin(): Promise<AdminAddress> {
  return { ...(await findAdmin({ ...process.env, DATA_DIR })), url: gateway.admin ?? '' };
}

/** Reports why no keys can be issued, and stops. @throws any other fault */
function giveUp(fault: unknown): void {
  if (!(fault instanceof AdminError || fault instanceof SettingsError)) throw fault;
  const isRedisAway = fault instanceof AdminError && fault.status === 503 && settings.REDIS_URL !== undefined;
  process.stderr.write(`${isRedisAway ? redisAway() : fault.message}\n`);
  process.exitCode = 1;
  stop();
}

/** The message for a Redis that does not respond. It contains no user names or passwords. */
function redisAway(): string {
  const hosts = settings.REDIS_URL?.map((url) => new URL(url).host).join(', ');
  return `No Redis responds at ${hosts} (REDIS_URL). Start one there, or unset REDIS_URL to store limits locally.`;
}

/**
 * Starts a service and waits for its addresses. It runs in its own process group: Ctrl-C reaches only this process,
 * which stops the gateway before the core that it needs.
 */
async function launch(name: 'core' | 'gateway', own: NodeJS.ProcessEnv): Promise<Record<string, string>> {
  const child = spawn(process.execPath, [`${name}/main.ts`], {
    cwd: ROOT,
    env: { ...shared, ...LOGS_TO_4, ...own },
    stdio: ['ignore', 'ignore', 'pipe', 'ipc', terminal ? 'pipe' : 1],
    detached: true,
  });
  terminal?.show(child.stdio[4] as Readable);
  passOn(name, child.stderr as Readable);
  children.unshift(child);
  const ended = once(child, 'close').then(([code]) => hasEnded(name, child, code));
  const [addresses] = (await Promise.race([once(child, 'message'), ended.then(() => forever)])) as [
    Record<string, string>,
  ];
  return addresses;
}

/** Passes on a service's error output. The core's HOST and PORT are renamed as in this program. */
function passOn(name: string, faults: Readable): void {
  const lines = createInterface({ input: faults });
  const shown = (line: string) => (name === 'core' ? line.replaceAll(/\b(HOST|PORT)\b/g, 'CORE_$1') : line);
  lines.on('line', (line) => process.stderr.write(`${shown(line)}\n`));
}

async function hasEnded(name: string, child: ChildProcess, code: number | null): Promise<void> {
  children.splice(children.indexOf(child), 1);
  if (stoppingSince === undefined) {
    if (children.length === 0) await tryPortsOfGateway();
    process.stderr.write(`The ${name} has exited (exit code ${code}). Stopping.\n`);
    process.exitCode = 1;
  }
  stoppingSince ??= performance.now();
  children[0]?.kill('SIGINT');
  if (children.length === 0) process.exit();
}

/** If the core could not start, this also reports which gateway ports cannot be used. */
async function tryPortsOfGateway(): Promise<void> {
  const { HOST, PORT, ADMIN_HOST, ADMIN_PORT } = settings;
  const tries = [tryPort(HOST, PORT, 'PORT'), tryPort(ADMIN_HOST, ADMIN_PORT, 'ADMIN_PORT')];
  for (const fault of await Promise.all(tries.map((one) => one.then(() => undefined, explain)))) {
    if (fault !== undefined) process.stderr.write(`${fault}\n`);
  }
}

/** Stops the services one after the other, the last started first. */
function stop(): void {
  if (stoppingSince !== undefined) return;
  stoppingSince = performance.now();
  children[0]?.kill('SIGINT');
}

/**
 * Stops the services, or kills them if that takes long. A signal soon after the first is no second attempt: on Ctrl-C,
 * npm passes on the signal that the terminal has already sent.
 */
function stopOrKill(): void {
  const isFirst = stoppingSince === undefined || performance.now() - stoppingSince < AGAIN_AFTER_MS;
  if (isFirst) stop();
  else for (const child of children) child.kill('SIGKILL');
}

/** npm does not always pass signals on. A changed parent process id shows that the parent has exited. */
function stopWithParent(): void {
  const parent = process.ppid;
  const stopWatching = every(500, () => {
    if (process.ppid === parent) return;
    stopWatching();
    stop();
  });
}

function printWelcome(keys: Record<string, string>): void {
  const { ADMIN_TOKEN, secretFiles } = settings;
  const tokenPlace = secretFiles.ADMIN_TOKEN ?? (ADMIN_TOKEN === undefined ? tokenFile(DATA_DIR) : 'ADMIN_TOKEN');
  const lines = Object.entries(keys).map(([plan, key]) => `  ${plan.padEnd(11)}${key}`);
  process.stdout.write(`
The animal store is open.

  gateway    ${gateway.gateway}   for clients, with a key; /docs/ is the reference
  core       ${coreUrl}   for internal services
  admin      ${gateway.admin}/   the operators' console, with the token in ${tokenPlace}; or npm run -s ctl -- --help

Demo keys, one per plan:
${lines.join('\n')}

Try it:
  curl -i -H 'Authorization: Bearer ${keys.free}' ${gateway.gateway}/v1/pets

Ctrl-C stops ${hasOwnCore ? 'both' : 'the gateway'}.

`);
}
