import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from '../../shared/process/logger.ts';

/**
 * Workers whose primary died. They end by themselves, but for one that hangs: it might keep the port, and never ends. A
 * worker carries the process id of its primary in its environment, which the kernel keeps as it was at the start
 * (proc_pid_environ(5)); so nothing is written to disk, and no other process is taken for one.
 */

const MARK = 'GATEWAY_WORKER_OF';

/** The variable that marks a worker of this process. */
export const mark = () => ({ [MARK]: process.pid });

/** How long workers that do not hang may take to close the port after their primary died, and to end. */
const CLOSED_WITHIN_MS = 1_000;
const ENDED_WITHIN_MS = 10_000;
const LOOK_EVERY_MS = 50;

/** Kills the workers of earlier primaries that hang: now where they listen on this port, later where they only exist. */
export async function endLeftBehind(port: number, logger: Logger): Promise<void> {
  const found = leftBehind();
  if (found.length === 0) return;
  setTimeout(
    () =>
      kill(
        leftBehind().filter((pid) => found.includes(pid)),
        logger,
      ),
    ENDED_WITHIN_MS,
  ).unref();
  const listeners = () => leftBehind().filter((pid) => isListening(pid, port));
  for (let waitedMs = 0; waitedMs < CLOSED_WITHIN_MS; waitedMs += LOOK_EVERY_MS) {
    if (listeners().length === 0) return;
    await sleep(LOOK_EVERY_MS);
  }
  kill(listeners(), logger);
  while (listeners().length > 0) await sleep(LOOK_EVERY_MS);
}

function kill(pids: readonly number[], logger: Logger): void {
  const killed = pids.filter((pid) => attempt(() => process.kill(pid, 'SIGKILL'), false));
  if (killed.length > 0) logger.warn({ pids: killed }, 'workers of an earlier primary hung and were killed');
}

/** None where /proc is of another PID namespace: its process ids would not be ours. */
const leftBehind = (): number[] => (link('self') === String(process.pid) ? pidsIn('/proc').filter(isLeftBehind) : []);

/** It is a worker of a gateway, and the primary that started it is no longer its parent. */
function isLeftBehind(pid: number): boolean {
  const [, primary] = new RegExp(`(?:^|\0)${MARK}=(\\d+)\0`).exec(text(pid, 'environ')) ?? [];
  // In another PID namespace, its primary has another process id for us than for itself.
  if (primary === undefined || link(`${pid}/ns/pid`) !== link('self/ns/pid')) return false;
  // The fields behind the name of the program, which may hold anything: state, parent.
  const [, parent] = text(pid, 'stat').split(') ').at(-1)?.split(' ') ?? [];
  return parent !== primary;
}

function isListening(pid: number, port: number): boolean {
  const own = new Set(pidsIn(`/proc/${pid}/fd`).map((fd) => link(`${pid}/fd/${fd}`)));
  const sockets = `${text(pid, 'net/tcp')}${text(pid, 'net/tcp6')}`.split('\n').map((line) => line.trim().split(/\s+/));
  return sockets.some(
    ([, local, , state, , , , , , inode]) =>
      state === LISTENS && Number.parseInt(local?.split(':')[1] ?? '', 16) === port && own.has(`socket:[${inode}]`),
  );
}

/** TCP_LISTEN in the kernel's tcp_states.h. */
const LISTENS = '0A';

function pidsIn(folder: string): number[] {
  return attempt(() => readdirSync(folder), []).flatMap((name) => (/^\d+$/.test(name) ? Number(name) : []));
}

const text = (pid: number, file: string): string => attempt(() => readFileSync(`/proc/${pid}/${file}`, 'latin1'), '');
const link = (path: string): string => attempt(() => readlinkSync(`/proc/${path}`), '');

/** A process may end meanwhile, may be another user's, and not every system has /proc. */
function attempt<T>(act: () => T, otherwise: T): T {
  try {
    return act();
  } catch {
    return otherwise;
  }
}
