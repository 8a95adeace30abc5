import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, mkdirSync, openSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { childrenOf } from '../children.ts';
import { need, pathOf } from '../install.ts';
import { type Docker, dockerOn } from './docker.ts';

/**
 * The tests' own container engine, independent of any other: dockerd with its own folder, socket, mounts and processes.
 * It does not change the machine's packet filter or sysctls. Containers therefore reach each other, and published ports
 * work, but containers can reach nothing else.
 */

/** This folder is kept between runs, including the images in it. */
export const ENGINE_FOLDER = join(tmpdir(), 'animal-store-engine');
/** The mirror for every image pull. A test may start a registry here; otherwise nothing listens. */
export const REGISTRY = '127.0.30.50:5000';
const CGROUP = '/animal-store-engine';
/** As in the benchmarks, a higher priority than other processes have. */
const PRIORITY = -10;
/**
 * For each version of control groups: its folder, a file that only this version has, the file with the CPU share, and
 * the largest share.
 */
const SHARES = [
  ['/sys/fs/cgroup/cpu', 'cpu.shares', 'cpu.shares', '262144'],
  ['/sys/fs/cgroup', 'cgroup.controllers', 'cpu.weight', '10000'],
] as const;
const START_MS = 60_000;
const STOP_MS = 30_000;

/**
 * Starts the engine, and removes the containers and networks that a killed run has left behind.
 * @throws {Error} with the reason, if an engine cannot be started here
 */
export async function startEngine() {
  needPrograms();
  mkdirSync(ENGINE_FOLDER, { recursive: true });
  const [socket, log] = [join(ENGINE_FOLDER, 'docker.sock'), join(ENGINE_FOLDER, 'log')];
  rmSync(socket, { force: true });
  const docker = dockerOn(socket);
  setShare();
  const daemon = launch(socket, log);
  try {
    await answers(docker, daemon, log);
    await removeEverything(docker);
  } catch (fault) {
    daemon.kill('SIGKILL');
    throw fault;
  }
  return {
    socket,
    docker,
    /** Removes containers, networks and volumes, and stops the engine. Images stay for the next run. */
    async stop(): Promise<void> {
      await removeEverything(docker);
      await end(daemon);
      removeBridge();
      removeCgroups();
    },
  };
}

function needPrograms(): void {
  if (process.platform !== 'linux') throw new Error('the engine needs Linux');
  if (process.getuid?.() !== 0) throw new Error('the engine needs root');
  need('docker.io');
  const missing = ['dockerd', 'docker', 'flock', 'setpriv', 'unshare'].filter((name) => pathOf(name) === undefined);
  if (missing.length > 0) throw new Error(`there is no ${missing.join(', no ')}`);
}

/**
 * Starts dockerd with its mounts and processes in their own namespaces. They exit with the engine, and the engine exits
 * with this process. Only one run at a time can use the folder.
 */
function launch(socket: string, log: string): ChildProcess {
  rmSync(join(ENGINE_FOLDER, 'pid'), { force: true });
  const output = openSync(log, 'w');
  const daemon = spawn(
    'flock',
    [
      ...['--no-fork', '--nonblock', '--conflict-exit-code', String(LOCKED), join(ENGINE_FOLDER, 'lock')],
      ...['nice', '-n', String(PRIORITY), 'setpriv', '--pdeathsig', 'KILL'],
      ...['unshare', '--mount', '--pid', '--fork', '--kill-child=KILL', '--mount-proc'],
      ...['dockerd', '--data-root', join(ENGINE_FOLDER, 'data'), '--exec-root', join(ENGINE_FOLDER, 'exec')],
      ...['--host', `unix://${socket}`, '--pidfile', join(ENGINE_FOLDER, 'pid'), ...bridge()],
      ...['--cgroup-parent', CGROUP, '--registry-mirror', `http://${REGISTRY}`],
      ...['--iptables=false', '--ip6tables=false', '--ip-forward=false', '--ip-masq=false'],
    ],
    { stdio: ['ignore', output, output], detached: true },
  );
  closeSync(output);
  return daemon;
}

const LOCKED = 75;

/**
 * The bridge of the default network. It remains when an engine exits. The bridge of another engine must not be used.
 */
const BRIDGE = 'docker0';
const MARK = join(ENGINE_FOLDER, BRIDGE);

function bridge(): string[] {
  const isThere = existsSync(`/sys/class/net/${BRIDGE}`);
  if (isThere && !existsSync(MARK)) return ['--bridge=none'];
  writeFileSync(MARK, '');
  return [];
}

function removeBridge(): void {
  if (!existsSync(MARK)) return;
  spawnSync('ip', ['link', 'delete', BRIDGE]);
  rmSync(MARK);
}

async function answers(docker: Docker, daemon: ChildProcess, log: string): Promise<void> {
  const until = performance.now() + START_MS;
  while (performance.now() < until) {
    if (daemon.exitCode === LOCKED) throw new Error('another run uses the engine');
    if (daemon.exitCode !== null) break;
    const isUp = await docker(['version', '--format', '{{.Server.Version}}'], 5_000).then(Boolean, () => false);
    if (isUp) return;
    await sleep(100);
  }
  const [last = 'it printed nothing'] = readFileSync(log, 'utf8').trim().split('\n').slice(-1);
  throw new Error(`dockerd did not start: ${last}`);
}

/** Raises the CPU share of the engine, because all its containers together get as little as one other process. */
function setShare(): void {
  for (const [folder, mark, file, most] of SHARES) {
    if (!existsSync(join(folder, mark))) continue;
    mkdirSync(join(folder, CGROUP), { recursive: true });
    if (existsSync(join(folder, CGROUP, file))) writeFileSync(join(folder, CGROUP, file), most);
  }
}

/** Version 1 of control groups has a folder for each controller; version 2 has one for all of them. */
function removeCgroups(): void {
  const all = '/sys/fs/cgroup';
  for (const folder of [all, ...readdirSync(all).map((name) => join(all, name))])
    spawnSync('rmdir', [join(folder, CGROUP)], { stdio: 'ignore' });
}

async function removeEverything(docker: Docker): Promise<void> {
  const containers = (await docker(['ps', '--all', '--quiet'])).split('\n').filter(Boolean);
  if (containers.length > 0) await docker(['rm', '--force', '--volumes', ...containers], STOP_MS);
  await docker(['network', 'prune', '--force']);
  const volumes = (await docker(['volume', 'ls', '--quiet'])).split('\n').filter(Boolean);
  if (volumes.length > 0) await docker(['volume', 'rm', '--force', ...volumes]);
}

/** unshare does not forward signals, so its child dockerd gets the signal directly. */
async function end(daemon: ChildProcess): Promise<void> {
  if (daemon.exitCode !== null) return;
  const ended = once(daemon, 'exit');
  for (const pid of childrenOf(daemon.pid as number)) process.kill(pid, 'SIGTERM');
  const isLate = await Promise.race([ended, sleep(STOP_MS, 'late')]);
  if (isLate === 'late') daemon.kill('SIGKILL');
  await ended;
}
