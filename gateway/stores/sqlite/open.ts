import {
  closeSync,
  copyFileSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  rmSync,
  statSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { FULL, isBusy, isDamage, sentenceOf, whyOf } from './faults.ts';
import { createForOwner, inUse, lockFolder } from './lock.ts';
import { Room } from './room.ts';

const FILE = 'gateway.db';
export const WAL = '-wal';

/**
 * `room` is empty: commits.ts uses it to make free pages. `created` is a key's place in lists. `created` and `expires`
 * are Unix seconds. `place` numbers the entries of a log without a gap.
 */
const SCHEMA = `
  CREATE TABLE IF NOT EXISTS records (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    created REAL,
    expires REAL,
    fields TEXT NOT NULL CHECK (json_valid(fields)),
    PRIMARY KEY (kind, name)
  ) STRICT;
  CREATE INDEX IF NOT EXISTS keys_by_creation ON records (created, name, kind, expires) WHERE created IS NOT NULL;
  CREATE INDEX IF NOT EXISTS records_by_end ON records (expires) WHERE expires IS NOT NULL;
  CREATE TABLE IF NOT EXISTS log (
    log TEXT NOT NULL,
    place INTEGER NOT NULL,
    ms INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    fields TEXT NOT NULL,
    PRIMARY KEY (log, place)
  ) STRICT, WITHOUT ROWID;
  CREATE UNIQUE INDEX IF NOT EXISTS log_ids ON log (log, ms, seq);
  CREATE TABLE IF NOT EXISTS room (bytes BLOB) STRICT;
`;

export interface Opened {
  readonly database: DatabaseSync;
  /** Undefined if the database is a copy. */
  readonly room: Room | undefined;
  /** Why changes are refused; undefined if they are not. */
  readonly why: string | undefined;
  unlock(): void;
}

/**
 * Opens the database of a folder, which is created if missing. If the database cannot be written, opens a copy, so that
 * the stored data is in force.
 * @throws {Error} if another gateway uses the folder, or if the database is damaged or can be neither written nor
 *   copied
 */
export function openFolder(folder: string): Opened {
  createFolder(folder);
  const unlock = lockFolder(folder);
  try {
    return { ...openOrCopy(folder), unlock };
  } catch (fault) {
    unlock();
    if (isDamage(fault)) throw new Error(`${join(folder, FILE)} is damaged. Restore a backup.`, { cause: fault });
    throw fault;
  }
}

function createFolder(folder: string): void {
  try {
    if (mkdirSync(folder, { recursive: true, mode: 0o700 }) === undefined) return;
    // SQLite syncs the folder that holds its files, but not the folder above.
    const above = openSync(dirname(folder), 'r');
    fsyncSync(above);
    closeSync(above);
  } catch {
    try {
      // On a read-only file system, `recursive` reports that a folder is missing instead of the reason.
      mkdirSync(folder, { mode: 0o700 });
    } catch (fault) {
      throw new Error(`DATA_DIR ${folder} cannot be created. ${sentenceOf(fault)}`, { cause: fault });
    }
  }
}

function openOrCopy(folder: string): Omit<Opened, 'unlock'> {
  const path = join(folder, FILE);
  const isStored = (statSync(path, { throwIfNoEntry: false })?.size ?? 0) > 0;
  const copied = (why: string) => {
    if (!isStored) throw new Error(`DATA_DIR ${folder} holds no database, and none can be created. ${why}`);
    return { database: openCopy(folder, why), room: undefined, why };
  };
  const room = new Room(join(folder, 'reserve'));
  const why = room.hold();
  if (why !== undefined && why !== FULL) return copied(why);
  if (why === FULL && isStored) room.becomeLog(path + WAL);
  try {
    return { database: openDatabase(path), room, why };
  } catch (fault) {
    // The database is locked although its lock file is free: somebody removed the lock file of a running gateway.
    if (isBusy(fault)) throw inUse(folder, 0);
    if (whyOf(fault) === undefined || isDamage(fault)) throw fault;
    return copied(why ?? sentenceOf(fault));
  } finally {
    if (why === FULL) room.hold();
  }
}

function openDatabase(path: string): DatabaseSync {
  createForOwner(path);
  const database = new DatabaseSync(path, { timeout: 0 });
  try {
    // FULL: a commit is on disk before it is acknowledged, so it survives a power cut as well as a crash. EXCLUSIVE:
    // the index of the log is in memory and needs no file. MEMORY: savepoints need no file either.
    database.exec(`
      PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
      PRAGMA temp_store = MEMORY;
      BEGIN IMMEDIATE; ${SCHEMA} COMMIT;
    `);
    return database;
  } catch (fault) {
    database.close();
    throw fault;
  }
}

/**
 * SQLite cannot open a database with a log where it cannot write, and opening it as immutable would leave the log out.
 * The copy is unlinked once it is open, so that none is left behind.
 */
function openCopy(folder: string, why: string): DatabaseSync {
  const faults: unknown[] = [];
  for (const parent of ['/dev/shm', tmpdir()]) {
    try {
      return openCopyIn(parent, folder);
    } catch (fault) {
      if (isDamage(fault)) throw fault;
      faults.push(fault);
    }
  }
  throw new Error(
    `DATA_DIR ${folder} cannot be written, and its database cannot be copied to ${tmpdir()}: ` +
      `${(faults.at(-1) as Error).message}. ${why}`,
  );
}

function openCopyIn(parent: string, folder: string): DatabaseSync {
  const copy = mkdtempSync(join(parent, `gateway-${process.pid}-`));
  try {
    for (const file of [FILE, FILE + WAL])
      if (existsSync(join(folder, file))) copyFileSync(join(folder, file), join(copy, file));
    return openDatabase(join(copy, FILE));
  } finally {
    rmSync(copy, { recursive: true, force: true });
  }
}
