import { randomBytes } from 'node:crypto';
import {
  closeSync,
  existsSync,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  linkSync,
  openSync,
  renameSync,
  rmSync,
  statfsSync,
  statSync,
  writeSync,
} from 'node:fs';
import { dirname } from 'node:path';
import { primaryCode } from '../../../shared/database-file.ts';

const RESERVED_BYTES = 1_048_576;
/** The disk counts as full if, apart from the reserved space, it has less free space than this. */
const SPARE_BYTES = 262_144;
const CHUNK_BYTES = 65_536;
/** The length of the header of SQLite's log. */
const HEADER_BYTES = 32;

/**
 * Disk space reserved for the changes that must work on a full disk: random bytes, which no file system compresses or
 * leaves out. When the gateway stops on a full disk, it also keeps the space of SQLite's log for the next start.
 */
export class Room {
  readonly #path: string;
  readonly #log: string;
  /** A second name (hard link) for a log, so that SQLite does not delete its contents. */
  readonly #kept: string;

  /** @param log the path of SQLite's log */
  constructor(path: string, log: string) {
    this.#path = path;
    this.#log = log;
    this.#kept = `${path}-log`;
  }

  /**
   * Reserves the space, or as much of it as is free.
   * @returns the fault, if the disk is full or cannot be written; undefined if there is space to spare
   */
  hold(): string | undefined {
    try {
      const file = openSync(this.#path, 'a', 0o600);
      try {
        append(file, RESERVED_BYTES + SPARE_BYTES - fstatSync(file).size);
        // Some file systems do not report a full disk until here.
        fsyncSync(file);
      } finally {
        if (fstatSync(file).size > RESERVED_BYTES) ftruncateSync(file, RESERVED_BYTES);
        closeSync(file);
      }
      return undefined;
    } catch (fault) {
      return sentenceOf(fault);
    }
  }

  /** The number of bytes that are currently reserved. */
  held(): number {
    return statSync(this.#path, { throwIfNoEntry: false })?.size ?? 0;
  }

  /**
   * If there is no log, gives its name to the kept log or, if none was kept, to the reserved file. SQLite then
   * overwrites that file.
   */
  becomeLog(): void {
    try {
      if (existsSync(this.#log)) return;
      const from = existsSync(this.#kept) ? this.#kept : this.#path;
      const file = openSync(from, 'r+');
      try {
        // Without a header, a log holds no frames.
        writeSync(file, Buffer.alloc(HEADER_BYTES), 0, HEADER_BYTES, 0);
        fsyncSync(file);
      } finally {
        closeSync(file);
      }
      renameSync(from, this.#log);
    } catch {}
  }

  /**
   * Gives the log a second name, under which it stays when SQLite removes the first. If SQLite cannot do so, both names
   * stay, and the next start drops the second one.
   */
  keepLog(): void {
    try {
      this.dropLog();
      linkSync(this.#log, this.#kept);
    } catch {}
  }

  dropLog(): void {
    rmSync(this.#kept, { force: true });
  }

  /** Free bytes on the disk; infinite if unknown. Some file systems reserve a part for root. */
  available(): number {
    try {
      const { bavail, bfree, bsize } = statfsSync(dirname(this.#path));
      return (process.getuid?.() === 0 ? bfree : bavail) * bsize;
    } catch {
      return Infinity;
    }
  }

  isDiskFull(): boolean {
    return this.available() < SPARE_BYTES;
  }

  /** If the file cannot be removed, the disk stays full and the next write reports it. */
  giveBack(): void {
    try {
      rmSync(this.#path, { force: true });
    } catch {}
  }
}

function append(file: number, bytes: number): void {
  for (let left = bytes; left > 0; ) left -= writeSync(file, randomBytes(Math.min(left, CHUNK_BYTES)));
}

/** Disk and SQLite faults, as sentences for operators. */

export const FULL = 'The disk that holds DATA_DIR is full.';
export const GONE =
  'The database file was removed or replaced. This gateway still has it open: make a backup with ctl backup, ' +
  'restart the gateway, and restore the backup.';
const READ_ONLY = 'DATA_DIR is read-only.';
const DAMAGED = 'The database in DATA_DIR is damaged.';
const LOCKED = 'Another process has locked the database in DATA_DIR.';

/** Reasons by SQLite's result code (sqlite.org/rescode.html). */
const OF_SQLITE: Readonly<Record<number, string>> = {
  5: LOCKED,
  6: LOCKED,
  7: 'The process ran out of memory (RAM) while using the database in DATA_DIR.',
  8: READ_ONLY,
  10: 'The disk that holds DATA_DIR reports an error.',
  11: DAMAGED,
  13: FULL,
  14: 'The database in DATA_DIR cannot be opened.',
  26: DAMAGED,
};

const OF_THE_SYSTEM: Readonly<Record<string, string>> = {
  EROFS: READ_ONLY,
  EACCES: 'The gateway has no permission to write to DATA_DIR.',
  EPERM: 'The gateway has no permission to write to DATA_DIR.',
  ENOSPC: FULL,
  EDQUOT: FULL,
  EIO: 'The disk that holds DATA_DIR reports an error.',
};

/** Why the disk or SQLite refused; undefined for any other error. */
export function whyOf(fault: unknown): string | undefined {
  return OF_SQLITE[primaryCode(fault)] ?? OF_THE_SYSTEM[(fault as NodeJS.ErrnoException).code ?? ''];
}

const ADVICE: Readonly<Record<string, string>> = {
  [GONE]: 'Run ctl backup before you restart this gateway.',
  [DAMAGED]: 'Stop this gateway, move gateway.db away, start it again, and restore a backup with ctl restore.',
};

/** What operators can do about a reason. */
export const adviceOn = (why: string): string => ADVICE[why] ?? 'Free some space for DATA_DIR, and make it writable.';

export const sentenceOf = (fault: unknown): string =>
  whyOf(fault) ?? `DATA_DIR cannot be written: ${(fault as Error).message}.`;

export const isBusy = (fault: unknown): boolean => [5, 6].includes(primaryCode(fault));

export const isDamage = (fault: unknown): boolean => whyOf(fault) === DAMAGED;
