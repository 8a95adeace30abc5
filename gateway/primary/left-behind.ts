import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from '../../shared/process/logger.ts';

/**
 * Finds workers whose primary died. They end by themselves unless they hang; a worker that hangs might keep the port
 * for ever. A worker carries the process id of its primary in its environment. The kernel keeps the environment as it
 * was at the start (proc_pid_environ(5)), so nothing is written to disk, and no other process is mistaken for a worker.
 */

const MARK = 'GATEWAY_WORKER_OF';

/** The variable that marks workers of this process. */
export const mark = () => ({ [MARK]: process.pid });

/** How long workers that do not hang may take, after their primary died, to close the port and end. */
const CLOSED_WITHIN_MS = 1_000;
const ENDED_WITHIN_MS = 10_000;
const LOOK_EVERY_MS = 50;

/** Kills hanging workers of earlier primaries: first those that listen on this port, later any others. */
export async function endLeftBehind(port: number, logger: Logger): Promise<void> {
  const found = leftBehind();
  const left = () => leftBehind().filter((pid) => found.includes(pid));
  const listeners = () => left().filter((pid) => isListening(pid, port));
  if (found.length === 0) return;
  setTimeout(() => kill(left(), logger), ENDED_WITHIN_MS).unref();
  for (const start = performance.now(); performance.now() - start < CLOSED_WITHIN_MS; await sleep(LOOK_EVERY_MS)) {
    if (listeners().length === 0) break;
  }
  kill(listeners(), logger);
  // The socket may be on its way to a worker that hung at its start. No process has it then, and it closes when that
  // worker ends.
  while (left().length > 0 && socketsAt(port, 'self').length > 0) await sleep(LOOK_EVERY_MS);
}

function kill(pids: readonly number[], logger: Logger): void {
  const killed = pids.filter((pid) => attempt(() => process.kill(pid, 'SIGKILL'), false));
  if (killed.length > 0) logger.warn({ pids: killed }, 'workers of an earlier primary hung and were killed');
}

/** Empty if /proc belongs to another PID namespace: its process ids differ from those seen here. */
const leftBehind = (): number[] => (link('self') === String(process.pid) ? pidsIn('/proc').filter(isLeftBehind) : []);

/** Whether a process is a worker of a gateway and no longer the child of the primary that started it. */
function isLeftBehind(pid: number): boolean {
  const [, primary] = new RegExp(`(?:^|\0)${MARK}=(\\d+)\0`).exec(text(pid, 'environ')) ?? [];
  // In another PID namespace, the primary would have a different process id here.
  if (primary === undefined || link(`${pid}/ns/pid`) !== link('self/ns/pid')) return false;
  // The fields after the program's name, which may contain anything: state, parent.
  const [, parent] = text(pid, 'stat').split(') ').at(-1)?.split(' ') ?? [];
  return parent !== primary;
}

function isListening(pid: number, port: number): boolean {
  const own = new Set(pidsIn(`/proc/${pid}/fd`).map((fd) => link(`${pid}/fd/${fd}`)));
  return socketsAt(port, pid).some((inode) => own.has(`socket:[${inode}]`));
}

/** The inodes of the sockets that listen on this port, in the network of a process. */
function socketsAt(port: number, pid: number | 'self'): string[] {
  const at = `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  // The tables can have tens of thousands of lines.
  const lines = `${text(pid, 'net/tcp')}${text(pid, 'net/tcp6')}`.split('\n').filter((line) => line.includes(at));
  const sockets = lines.map((line) => line.trim().split(/\s+/));
  return sockets.flatMap(([, local, , state, , , , , , inode = '']) =>
    local?.endsWith(at) && state === LISTENS ? inode : [],
  );
}

/** TCP_LISTEN in the kernel's tcp_states.h. */
const LISTENS = '0A';

function pidsIn(folder: string): number[] {
  return attempt(() => readdirSync(folder), []).flatMap((name) => (/^\d+$/.test(name) ? Number(name) : []));
}

const text = (pid: number | 'self', file: string): string =>
  attempt(() => readFileSync(`/proc/${pid}/${file}`, 'latin1'), '');
const link = (path: string): string => attempt(() => readlinkSync(`/proc/${path}`), '');

/** The process may end meanwhile or belong to another user, and not every system has /proc. */
function attempt<T>(act: () => T, otherwise: T): T {
  try {
    return act();
  } catch {
    return otherwise;
  }
}
