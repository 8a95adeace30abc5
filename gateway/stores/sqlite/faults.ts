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

/**
 * Whether a failed commit may still be found after a crash: its frames were written but not synced. If a frame was not
 * written, the log ends before the commit.
 */
export const mayBeMade = (fault: unknown): boolean => primaryCode(fault as Coded) === IOERR && !isFailedWrite(fault);
