import { setTimeout as sleep } from 'node:timers/promises';
import type { HostileName } from './hostile.ts';

/** The neighbours of the healthy client, in the order of the table. */

/** The processes that a row may disturb by signals. */
export interface Disturbed {
  readonly gateway: readonly number[];
  readonly cores: readonly number[];
}

export interface Row {
  readonly name: string;
  readonly title: string;
  readonly neighbour?: HostileName;
  readonly cores?: number;
  /** The number of keys in operators' lists. */
  readonly listedKeys?: number;
  /** Set where a POST would certainly fail, because a POST to a core that does not answer is never retried. */
  readonly readsOnly?: boolean;
  /** Whether the gateway's standard output is a pipe that nothing reads. */
  readonly isLogUnread?: boolean;
  /** Set where the p99 cannot be short. Such a row passes if it has no errors and no local decisions. */
  readonly isLateByNature?: boolean;
  /** Runs during the measurement, until `isOver` returns true. */
  disturb?(processes: Disturbed, isOver: () => boolean): Promise<void>;
}

const STALL_MS = 70;
const STALL_EVERY_MS = 1_000;
const SILENT_AFTER_MS = 1_000;

/** Pauses the gateway repeatedly, like a container that has used up its CPU quota. */
async function stall({ gateway }: Disturbed, isOver: () => boolean): Promise<void> {
  while (!isOver()) {
    for (const pid of gateway) process.kill(pid, 'SIGSTOP');
    await sleep(STALL_MS);
    for (const pid of gateway) process.kill(pid, 'SIGCONT');
    await sleep(STALL_EVERY_MS - STALL_MS);
  }
}

/** One of the cores falls silent: its connections stay open, but it sends nothing. */
async function silence({ cores: [core = 0] }: Disturbed, isOver: () => boolean): Promise<void> {
  await sleep(SILENT_AFTER_MS);
  process.kill(core, 'SIGSTOP');
  while (!isOver()) await sleep(50);
  process.kill(core, 'SIGCONT');
}

export const ALONE: Row = { name: 'alone', title: 'alone' };

export const ROWS: readonly Row[] = [
  { name: 'slow-reads', title: 'reads of 2 s, one after the other', neighbour: 'slow-reads' },
  { name: 'slow-bodies', title: '500 bodies sent byte by byte', neighbour: 'slow-bodies' },
  { name: 'endless-bodies', title: '32 endless bodies, 40 MB/s', neighbour: 'endless-bodies' },
  { name: 'sends-on', title: '32 connections without a key that keep sending after their 401', neighbour: 'sends-on' },
  {
    name: 'slow-readers',
    title: '10 more connections a second, each of which requests 50 × 100 kB and reads nothing',
    neighbour: 'slow-readers',
  },
  { name: 'keyless', title: 'no key, 5,000/s on 256 connections', neighbour: 'keyless' },
  { name: 'keyless-pipelined', title: 'no key, 5,000/s pipelined, 1,000 at a time', neighbour: 'keyless-pipelined' },
  { name: 'long-paths', title: 'no key, 10,000/s pipelined, paths of 1 kB', neighbour: 'long-paths' },
  { name: 'made-up-keys', title: 'made-up keys, 5,000/s on 10 connections, 64 at a time', neighbour: 'made-up-keys' },
  { name: 'over-limit', title: 'a key far over its limit, 5,000/s on 64 connections', neighbour: 'over-limit' },
  { name: 'banned', title: 'a banned key, 5,000/s on 512 connections', neighbour: 'banned' },
  { name: 'most-headers', title: 'headers, as many and as large as are accepted, 200/s', neighbour: 'most-headers' },
  { name: 'too-many-headers', title: 'more or larger headers than are accepted, 200/s', neighbour: 'too-many-headers' },
  { name: 'idle', title: '1,000 idle connections', neighbour: 'idle' },
  { name: 'huge-answers', title: 'an answer of 100 MB a second', neighbour: 'huge-answers' },
  { name: 'stuck-connection', title: 'one stuck connection to the core', neighbour: 'stuck-connection' },
  { name: 'silent-core', title: 'two cores, one falls silent (reads)', cores: 2, readsOnly: true, disturb: silence },
  {
    name: 'operators-list',
    title: 'operators list keys: ten lists of 2,000 by use at once, repeatedly',
    neighbour: 'operators-list',
    listedKeys: 2_000,
  },
  { name: 'unread-log', title: 'the log is not read; no key, 10,000/s', neighbour: 'long-paths', isLogUnread: true },
  { name: 'stalls', title: 'the gateway is paused for 70 ms each second', isLateByNature: true, disturb: stall },
];
