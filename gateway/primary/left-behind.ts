import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from '../../shared/process/logger.ts';

/**
 * Workers whose primary died. They end by themselves, but for one that hangs: it would keep the port. A worker carries
 * the process id of its primary and the clients' address in its environment, which the kernel keeps as it was at the
 * start (proc_pid_environ(5)); so nothing is written to disk, and no other process is taken for one.
 */

const MARK = 'GATEWAY_WORKER_OF';

/** The variable that marks a worker of this process. @param address of clients, as in the settings */
export const mark = (address: string) => ({ [MARK]: `${process.pid} ${address}` });

/** How long workers that do not hang may take to close the port after their primary died. */
const CLOSED_WITHIN_MS = 1_000;
const LOOK_EVERY_MS = 50;

/** Kills the workers of an earlier primary at this address that still listen. */
export async function endLeftBehind(address: string, logger: Logger): Promise<void> {
  for (let waitedMs = 0; waitedMs < CLOSED_WITHIN_MS; waitedMs += LOOK_EVERY_MS) {
    if (listenersOf(address).length === 0) return;
    await sleep(LOOK_EVERY_MS);
  }
  const pids = listenersOf(address);
  for (const pid of pids) process.kill(pid, 'SIGKILL');
  if (pids.length > 0) logger.warn({ pids }, 'workers of an earlier primary hung and were killed');
  while (listenersOf(address).length > 0) await sleep(LOOK_EVERY_MS);
}

const listenersOf = (address: string): number[] =>
  pidsIn('/proc').filter((pid) => isLeftBehind(pid, address) && isListening(pid));

function pidsIn(folder: string): number[] {
  return readable(() => readdirSync(folder), []).flatMap((name) => (/^\d+$/.test(name) ? Number(name) : []));
}

/** It runs this program, has this address, and the primary that started it is no longer its parent. */
function isLeftBehind(pid: number, address: string): boolean {
  const [, primary, of] = new RegExp(`(?:^|\0)${MARK}=(\\d+) ([^\0]*)`).exec(text(pid, 'environ')) ?? [];
  if (of !== address || !text(pid, 'cmdline').includes(`\0${process.argv[1]}\0`)) return false;
  // The fields behind the name of the program, which may hold anything: state, parent.
  const [, parent] = text(pid, 'stat').split(') ').at(-1)?.split(' ') ?? [];
  return parent !== primary;
}

function isListening(pid: number): boolean {
  const own = new Set(pidsIn(`/proc/${pid}/fd`).map((fd) => readable(() => readlinkSync(`/proc/${pid}/fd/${fd}`), '')));
  const sockets = `${text(pid, 'net/tcp')}${text(pid, 'net/tcp6')}`.split('\n').map((line) => line.trim().split(/\s+/));
  return sockets.some(([, , , state, , , , , , inode]) => state === LISTENS && own.has(`socket:[${inode}]`));
}

/** TCP_LISTEN in the kernel's tcp_states.h. */
const LISTENS = '0A';

const text = (pid: number, file: string): string => readable(() => readFileSync(`/proc/${pid}/${file}`, 'latin1'), '');

/** A process may end meanwhile, may be another user's, and not every system has /proc. */
function readable<T>(read: () => T, otherwise: T): T {
  try {
    return read();
  } catch {
    return otherwise;
  }
}
