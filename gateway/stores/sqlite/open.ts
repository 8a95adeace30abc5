import {
  accessSync,
  chmodSync,
  closeSync,
  constants,
  copyFileSync,
  existsSync,
  fsyncSync,
  mkdtempSync,
  openSync,
  readSync,
  rmSync,
  statSync,
  truncateSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { createFolder, createForOwner, WAL } from '../../../shared/database-file.ts';
import { isRunning } from '../../../shared/process/running.ts';
import { FULL, isBusy, isDamage, Room, sentenceOf, whyOf } from './disk.ts';

const FILE = 'gateway.db';

/**
 * `room` is empty: commits.ts uses it to make free pages. `created` is a key's place in lists. `created` and `expires`
 * are Unix seconds. `place` numbers the entries of a log without gaps.
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
 * Opens the database in a folder. Creates the folder and the database if they are missing. If the database cannot be
 * written, opens a copy of it, so that its keys still work.
 * @throws {Error} if another gateway uses the folder, or the database is damaged or can be neither written nor copied
 */
export function openFolder(folder: string): Opened {
  createDataDir(folder);
  const unlock = lockFolder(folder);
  try {
    return { ...openOrCopy(folder), unlock };
  } catch (fault) {
    unlock();
    throw startFault(folder, fault);
  }
}

/** A fault of a start, with the reason for operators if it is a fault of the disk or of SQLite. */
export function startFault(folder: string, cause: unknown): unknown {
  const why = whyOf(cause);
  if (why === undefined) return cause;
  const said = isDamage(cause)
    ? `${join(folder, FILE)} is damaged. Restore a backup.`
    : `DATA_DIR ${folder} cannot be used. ${why}`;
  return new Error(said, { cause });
}

function createDataDir(folder: string): void {
  try {
    if (!createFolder(folder, 0o700)) return;
    // SQLite syncs the folder that holds its files, but not the folder above.
    const above = openSync(dirname(folder), 'r');
    fsyncSync(above);
    closeSync(above);
  } catch (fault) {
    throw new Error(`DATA_DIR ${folder} cannot be created. ${sentenceOf(fault)}`, { cause: fault });
  }
}

function openOrCopy(folder: string): Omit<Opened, 'unlock'> {
  const path = join(folder, FILE);
  const isStored = (statSync(path, { throwIfNoEntry: false })?.size ?? 0) > 0;
  const copied = (why: string) => {
    if (!isStored) throw new Error(`DATA_DIR ${folder} holds no database, and none can be created. ${why}`);
    return { database: openCopy(folder, why), room: undefined, why };
  };
  const room = new Room(join(folder, 'reserve'), path + WAL);
  const why = room.hold();
  if (why !== undefined && why !== FULL) return copied(why);
  if (why === FULL && isStored) room.becomeLog();
  room.dropLog();
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
 * SQLite cannot open a database and its log in a folder that is not writable, and in immutable mode it would ignore the
 * log. The copy is unlinked once it is open, so that none is left behind.
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
    for (const file of [FILE, FILE + WAL]) {
      if (!existsSync(join(folder, file))) continue;
      copyFileSync(join(folder, file), join(copy, file));
      // The original may be read-only.
      chmodSync(join(copy, file), 0o600);
    }
    return openDatabase(join(copy, FILE));
  } finally {
    rmSync(copy, { recursive: true, force: true });
  }
}

/** Where SQLite stores `user_version` in a file: 4 bytes, big-endian. */
const USER_VERSION_AT = 60;

const LOCKABLE_EVERY_MS = 1_000;

/**
 * Locks a folder. While the folder is not writable, keeps trying: it may become writable later. If another gateway
 * locks it first, this process exits, because its copy of the data lacks the changes made by that gateway.
 * @returns a function that releases the lock
 * @throws {Error} if another gateway uses the folder, or may use it
 */
function lockFolder(folder: string): () => void {
  let unlock = takeLock(folder);
  if (unlock !== undefined) return unlock;
  const trying = setInterval(() => {
    unlock = takeLock(folder);
    if (unlock !== undefined) clearInterval(trying);
  }, LOCKABLE_EVERY_MS).unref();
  return () => {
    clearInterval(trying);
    unlock?.();
  };
}

/**
 * Locks a folder until the lock is released or the process exits. The lock is a file on which SQLite holds an exclusive
 * transaction; its `user_version` is the process id for the error message. Processes that cannot write the file share
 * the lock.
 * @returns a function that releases the lock; undefined while the folder is not writable
 * @throws {Error} if another gateway uses the folder, or may use it
 */
function takeLock(folder: string): (() => void) | undefined {
  const path = join(folder, 'lock');
  createForOwner(path);
  try {
    const database = lockFile(path);
    return () => database.close();
  } catch (fault) {
    if (isBusy(fault)) throw inUse(folder, readHolder(path));
    if (existsSync(path) && !isReadable(path))
      throw new Error(
        `The lock file in DATA_DIR ${folder} cannot be read, so another gateway may be using the folder. Start this ` +
          'gateway as the owner of the lock file.',
        { cause: fault },
      );
    // Nobody holds the lock: if the file were locked, SQLite would have reported it as busy, and if it is missing, this
    // process lacks permission to create it.
    return undefined;
  }
}

function isReadable(path: string): boolean {
  try {
    accessSync(path, constants.R_OK);
    return true;
  } catch {
    return false;
  }
}

function lockFile(path: string): DatabaseSync {
  try {
    return holdTransaction(path);
  } catch (fault) {
    // A power cut damaged the file. Its content does not matter, and emptying it keeps the locks on it.
    if (!isDamage(fault)) throw fault;
    truncateSync(path);
    return holdTransaction(path);
  }
}

function holdTransaction(path: string): DatabaseSync {
  const database = new DatabaseSync(path, { timeout: 0 });
  try {
    // In this mode the lock outlasts the commit that writes the process id. The journal can stay in memory, because
    // nothing is ever rolled back.
    database.exec('PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE');
    try {
      database.exec(`PRAGMA user_version = ${process.pid}; COMMIT`);
    } catch {
      // On a full or read-only disk, the lock holds without the id.
      if (database.isTransaction) database.exec('ROLLBACK');
    }
    database.exec('BEGIN EXCLUSIVE');
    return database;
  } catch (fault) {
    database.close();
    throw fault;
  }
}

/**
 * The id of the process that has the lock; 0 if unknown. If it could not write the file, the id is that of an earlier
 * process.
 */
function readHolder(path: string): number {
  const file = openSync(path, 'r');
  try {
    const bytes = Buffer.alloc(4);
    const pid = readSync(file, bytes, 0, 4, USER_VERSION_AT) === 4 ? bytes.readInt32BE() : 0;
    return pid > 0 && isRunning(pid) ? pid : 0;
  } finally {
    closeSync(file);
  }
}

/** @param pid the process that uses the folder; 0 if unknown */
function inUse(folder: string, pid: number): Error {
  const who = pid > 0 ? `, process ${pid}` : '';
  return new Error(
    `DATA_DIR ${folder} is in use by another gateway${who}. Gateways share keys through Redis: set REDIS_URL for ` +
      'each of them. Otherwise give this gateway its own DATA_DIR.',
  );
}
