import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { type AdminAddress, callAdmin, findAdmin } from '../gateway/admin/client.ts';
import { tokenFile } from '../gateway/admin/token.ts';

/**
 * `npm start`: core and gateway as two processes with their embedded defaults, a demo key per plan, and a curl line to
 * paste. Ends them both when it ends, however it ends: they watch the message channel to this process.
 */

const ROOT = dirname(import.meta.dirname);
const DATA_DIR = resolve(process.env.DATA_DIR ?? '.data');
const DEMO_KEYS_FILE = join(DATA_DIR, 'demo-keys.json');

const DEMO_KEYS = [
  { name: 'demo free', plan: 'free' },
  { name: 'demo pro', plan: 'pro' },
  { name: 'demo business', plan: 'business' },
  { name: 'demo enterprise', plan: 'enterprise', minute: 5_000, day: 500_000 },
];

/**
 * Each service reads its own PORT; here they share one environment, so the core's goes by another name. `node --watch` has
 * processes report their imports on the message channel, where services report their addresses; theirs stay silent.
 */
const {
  HOST,
  PORT,
  CORE_HOST = '127.0.0.1',
  CORE_PORT = '7001',
  WATCH_REPORT_DEPENDENCIES: _watch,
  ...given
} = process.env;
const shared = { DATABASE_URL: `sqlite:${join(DATA_DIR, 'store.db')}`, ...given, DATA_DIR };

/** The services that run, the one that was started last in front. */
const children: ChildProcess[] = [];
let stopping = false;
const forever = new Promise<never>(() => {});

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, stop);
stopWithParent();

const core = await launch('core', { HOST: CORE_HOST, PORT: CORE_PORT });
const gateway = await launch('gateway', { ...(HOST && { HOST }), ...(PORT && { PORT }), CORE_URL: core.core });
const admin: AdminAddress = { ...(await findAdmin({ ...process.env, DATA_DIR })), url: gateway.admin ?? '' };
printWelcome(await demoKeys(admin));

/**
 * Starts a service and waits until it tells where it listens. In a process group of its own: Ctrl-C reaches this process
 * alone, which then stops the gateway before the core that it still needs.
 */
async function launch(name: 'core' | 'gateway', own: NodeJS.ProcessEnv): Promise<Record<string, string>> {
  const child = spawn(process.execPath, [`${name}/main.ts`], {
    cwd: ROOT,
    env: { ...shared, ...own },
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    detached: true,
  });
  children.unshift(child);
  const ended = once(child, 'exit').then(([code]) => hasEnded(name, child, code));
  const [addresses] = (await Promise.race([once(child, 'message'), ended.then(() => forever)])) as [
    Record<string, string>,
  ];
  return addresses;
}

function hasEnded(name: string, child: ChildProcess, code: number | null): void {
  children.splice(children.indexOf(child), 1);
  if (!stopping) {
    process.stderr.write(`The ${name} has ended (exit code ${code}); so does the rest.\n`);
    process.exitCode = 1;
  }
  stopping = true;
  children[0]?.kill('SIGINT');
  if (children.length === 0) process.exit();
}

/** Ends the services one after the other, the one that was started last first; the second time, at once. */
function stop(): void {
  for (const child of stopping ? children : children.slice(0, 1)) child.kill(stopping ? 'SIGKILL' : 'SIGINT');
  stopping = true;
}

/** npm does not always pass a signal on. Whoever started this is gone when its process id changes. */
function stopWithParent(): void {
  const parent = process.ppid;
  const watch = setInterval(() => {
    if (process.ppid === parent) return;
    clearInterval(watch);
    stop();
  }, 500).unref();
}

/** One key per plan, made at the first start and kept, for the owner's eyes only, so that they stay the same. */
async function demoKeys(to: AdminAddress): Promise<Record<string, string>> {
  const kept = await readKept();
  for (const demo of DEMO_KEYS) {
    const id = kept[demo.plan]?.slice(3, 15) ?? '';
    const isThere = id !== '' && (await callAdmin(to, 'GET', `/keys/${id}`).then(Boolean, () => false));
    if (!isThere) kept[demo.plan] = ((await callAdmin(to, 'POST', '/keys', demo)) as { key: string }).key;
  }
  await mkdir(DATA_DIR, { recursive: true });
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

function printWelcome(keys: Record<string, string>): void {
  const tokenPlace = process.env.ADMIN_TOKEN ? 'ADMIN_TOKEN' : tokenFile(DATA_DIR);
  const lines = Object.entries(keys).map(([plan, key]) => `  ${plan.padEnd(11)}${key}`);
  process.stdout.write(`
The animal store is open.

  gateway    ${gateway.gateway}   for clients, with a key; /docs/ tells how, and tries it
  core       ${core.core}   for internal services
  admin      ${gateway.admin}/   the operators' console, with the token in ${tokenPlace}; or npm run -s ctl -- --help

Demo keys, one per plan:
${lines.join('\n')}

Try it:
  curl -i -H 'Authorization: Bearer ${keys.free}' ${gateway.gateway}/v1/pets

Ctrl-C stops both.

`);
}
