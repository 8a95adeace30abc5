import { closeSync, existsSync, mkdirSync, openSync, statSync } from 'node:fs';
import { dirname } from 'node:path';

/** What the name of a database's write-ahead log adds to that of its file (sqlite.org/wal.html). */
export const WAL = '-wal';

/**
 * Creates a folder and the missing folders above it. Node's own `recursive` never ends if the system reports that a
 * folder is missing although it is there, as in /proc.
 * @returns false if the folder was there
 */
export function createFolder(path: string, mode?: number): boolean {
  const above = dirname(path);
  if (above !== path && !existsSync(above)) createFolder(above, mode);
  try {
    mkdirSync(path, { mode });
    return true;
  } catch (fault) {
    if (statSync(path, { throwIfNoEntry: false })?.isDirectory()) return false;
    if ((fault as NodeJS.ErrnoException).code !== 'EEXIST') throw fault;
    throw new Error(`${path} is not a folder`, { cause: fault });
  }
}

/** Creates the file here, because SQLite would let others read it. SQLite later reports an unwritable folder. */
export function createForOwner(path: string): void {
  try {
    closeSync(openSync(path, 'wx', 0o600));
  } catch {}
}

/** The file of an open SQLite database, and its write-ahead log. */
export class DatabaseFile {
  readonly #path: string | null;
  readonly #inodes: string;

  /** @param path of a database that already has a log; null for one in memory */
  constructor(path: string | null) {
    this.#path = path;
    this.#inodes = this.#inodesNow();
  }

  /** Whether either was removed or replaced: changes would be written to a file that nobody can find again. */
  get isGone(): boolean {
    return this.#inodesNow() !== this.#inodes;
  }

  #inodesNow(): string {
    if (this.#path === null) return '';
    return [this.#path, this.#path + WAL].map((file) => statSync(file, { throwIfNoEntry: false })?.ino).join();
  }
}

interface Coded {
  readonly errcode?: number;
}

/** SQLite's result code. The low byte of an extended code is its primary code (sqlite.org/rescode.html). */
export const primaryCode = (fault: unknown): number => ((fault as Coded).errcode ?? 0) & 0xff;

const IOERR = 10;
const IOERR_WRITE = 778;

/** SQLite reports a full quota as a failed write. */
export const isFailedWrite = (fault: unknown): boolean => (fault as Coded).errcode === IOERR_WRITE;

/**
 * Whether a failed commit may take effect after a crash: its frames were written but not synced. An unwritten frame
 * ends the log.
 */
export const mayBeMade = (fault: unknown): boolean => primaryCode(fault) === IOERR && !isFailedWrite(fault);
