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

const RESERVED_BYTES = 1_048_576;
/** The disk counts as full if, apart from the reserved room, it has less free space than this. */
const SPARE_BYTES = 262_144;
const CHUNK_BYTES = 65_536;
/** The length of the header of SQLite's log. */
const HEADER_BYTES = 32;

/** Room for the changes that a full disk must allow: random bytes, which no file system compresses or leaves out. */
export class Room {
  readonly #path: string;

  constructor(path: string) {
    this.#path = path;
  }

  /**
   * Takes the room, or as much of it as is free.
   * @returns why not, if the disk is full or cannot be written; undefined if there is room to spare
   */
  hold(): string | undefined {
    try {
      const file = openSync(this.#path, 'a', 0o600);
      const { size } = fstatSync(file);
      // A kept log can be longer. The excess is given up only once there is room.
      let held = Math.max(size, RESERVED_BYTES);
      try {
        append(file, held + SPARE_BYTES - size);
        // Some file systems report only here that there is no room.
        fsyncSync(file);
        held = RESERVED_BYTES;
      } finally {
        if (fstatSync(file).size > held) ftruncateSync(file, held);
        closeSync(file);
      }
      return undefined;
    } catch (fault) {
      return sentenceOf(fault);
    }
  }

  /** The bytes of the room that are held at present. */
  held(): number {
    return statSync(this.#path, { throwIfNoEntry: false })?.size ?? 0;
  }

  /** Makes the room the log, if there is none: SQLite writes over it. Without a header, a log holds no frames. */
  becomeLog(log: string): void {
    try {
      if (existsSync(log)) return;
      const file = openSync(this.#path, 'r+');
      try {
        writeSync(file, Buffer.alloc(HEADER_BYTES), 0, HEADER_BYTES, 0);
        fsyncSync(file);
      } finally {
        closeSync(file);
      }
      renameSync(this.#path, log);
    } catch {}
  }

  /** Keeps a log as the room when SQLite removes the log, if the log is longer than what is left of the room. */
  keepLog(log: string): void {
    try {
      if (statSync(log).size < this.held()) return;
      rmSync(this.#path, { force: true });
      linkSync(log, this.#path);
    } catch {}
  }

  /** Free bytes of the disk; infinite if unknown. Some file systems reserve a part for root. */
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

/** Faults of a disk and of SQLite, as sentences for operators. */

export const FULL = 'The disk of DATA_DIR is full.';
const READ_ONLY = 'DATA_DIR is read-only.';
const DAMAGED = 'The database in DATA_DIR is damaged.';
const LOCKED = 'Another process has locked the database in DATA_DIR.';

/** Reasons by SQLite's result code (sqlite.org/rescode.html). */
const OF_SQLITE: Readonly<Record<number, string>> = {
  5: LOCKED,
  6: LOCKED,
  7: 'There is no memory left for the database in DATA_DIR.',
  8: READ_ONLY,
  10: 'The disk of DATA_DIR reports an error.',
  11: DAMAGED,
  13: FULL,
  14: 'The database in DATA_DIR cannot be opened.',
  26: DAMAGED,
};

const OF_THE_SYSTEM: Readonly<Record<string, string>> = {
  EROFS: READ_ONLY,
  EACCES: 'The gateway may not write to DATA_DIR.',
  EPERM: 'The gateway may not write to DATA_DIR.',
  ENOSPC: FULL,
  EDQUOT: FULL,
  EIO: 'The disk of DATA_DIR reports an error.',
};

interface Coded {
  readonly errcode?: number;
  readonly code?: string;
}

/** The low byte of an extended result code is its primary code. */
const primaryCode = ({ errcode = 0 }: Coded): number => errcode & 0xff;

/** Why the disk or SQLite refused; undefined for any other error. */
export function whyOf(fault: unknown): string | undefined {
  const coded = fault as Coded;
  return OF_SQLITE[primaryCode(coded)] ?? OF_THE_SYSTEM[coded.code ?? ''];
}

export const sentenceOf = (fault: unknown): string =>
  whyOf(fault) ?? `DATA_DIR cannot be written: ${(fault as Error).message}.`;

export const isBusy = (fault: unknown): boolean => [5, 6].includes(primaryCode(fault as Coded));

export const isDamage = (fault: unknown): boolean => whyOf(fault) === DAMAGED;

const IOERR = 10;
const IOERR_WRITE = 778;

/** SQLite reports a full quota as a failed write. */
export const isFailedWrite = (fault: unknown): boolean => (fault as Coded).errcode === IOERR_WRITE;

/** Whether a crash may leave a failed commit: its frames were written, not synced. An unwritten frame ends the log. */
export const mayBeMade = (fault: unknown): boolean => primaryCode(fault as Coded) === IOERR && !isFailedWrite(fault);
