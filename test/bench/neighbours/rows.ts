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
  /**
   * The number of requests that each core handles at once, in 20 ms each; the gateway has twice this CORE_CONCURRENCY.
   * Unset, a core is as fast as it can be.
   */
  readonly slots?: number;
  /** The client's requests per second, if the cores cannot answer the usual rate. */
  readonly rate?: number;
  /** The number of keys in operators' lists. */
  readonly listedKeys?: number;
  /** Set where a POST would certainly fail, because a POST to a core that does not answer is never retried. */
  readonly readsOnly?: boolean;
  /** Whether the gateway's standard output is a pipe that nothing reads. */
  readonly isLogUnread?: boolean;
  /** Set where the p99 cannot be low. Such a row passes if it has no errors and no local decisions. */
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

/** This core answers 200 requests a second. The client's rate leaves most of them to its neighbour. */
const BUSY = { slots: 4, rate: 20 };

/** Whether the row is a baseline. */
export const isAlone = ({ neighbour, disturb }: Row): boolean => neighbour === undefined && disturb === undefined;

/** A row with a hostile client of the same name. */
const beside = (neighbour: HostileName, title: string, about: Partial<Row> = {}): Row => ({
  name: neighbour,
  title,
  neighbour,
  ...about,
});

export const ROWS: readonly Row[] = [
  beside('slow-reads', 'reads of 2 s, one after the other'),
  beside('slow-bodies', '500 bodies sent byte by byte'),
  beside('endless-bodies', '32 endless bodies, 40 MB/s'),
  beside('sends-on', '32 connections without a key that keep sending after their 401'),
  beside('slow-readers', '10 more connections a second, each of which requests 50 × 100 kB and reads nothing'),
  beside('keyless', 'no key, 5,000/s on 256 connections'),
  beside('keyless-pipelined', 'no key, 5,000/s pipelined, 1,000 at a time'),
  beside('long-paths', 'no key, 10,000/s pipelined, paths of 1 kB'),
  beside('made-up-keys', 'made-up keys, 5,000/s on 10 connections, 64 at a time'),
  beside('over-limit', 'a key far over its limit, 5,000/s on 64 connections'),
  beside('banned', 'a banned key, 5,000/s on 512 connections'),
  beside('most-headers', 'headers, as many and as large as are accepted, 200/s'),
  beside('too-many-headers', 'more or larger headers than are accepted, 200/s'),
  beside('idle', '1,000 idle connections'),
  beside('huge-answers', 'a response of 100 MB a second'),
  beside('stuck-connection', 'one stuck connection to the core'),
  { name: 'silent-core', title: 'two cores, one falls silent (reads)', cores: 2, readsOnly: true, disturb: silence },
  { name: 'busy-core-alone', title: 'alone, at a core that answers 200 a second', ...BUSY },
  beside('busy-core', '200 reads at once at a core that answers 200 a second', BUSY),
  beside('operators-list', 'operators list keys: ten lists of 2,000 by use at once, repeatedly', { listedKeys: 2_000 }),
  beside('long-paths', 'the log is not read; no key, 10,000/s', { name: 'unread-log', isLogUnread: true }),
  { name: 'stalls', title: 'the gateway is paused for 70 ms each second', isLateByNature: true, disturb: stall },
];
