import { accessSync, closeSync, constants, existsSync, openSync, readSync, realpathSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { isBusy, isDamage } from './faults.ts';

/** Where SQLite stores `user_version` in a file: 4 bytes, the highest first. */
const USER_VERSION_AT = 60;

/** The locks of this process. Their files must not be opened: to close one would end its lock (fcntl(2)). */
const held = new Set<string>();

/**
 * Locks a folder for this process, until it is released or the process ends: a file of its own, on which SQLite holds an
 * exclusive transaction. Its `user_version` is the id of the process, for the message alone. Where the file cannot be
 * written, the lock is shared with others who cannot write either.
 * @returns releases it
 * @throws {Error} if another gateway uses the folder, or may use it
 */
export function lockFolder(folder: string): () => void {
  const path = join(realpathSync(folder), 'lock');
  if (held.has(path)) throw inUse(folder, process.pid);
  createForOwner(path);
  let database: DatabaseSync | undefined;
  try {
    database = lockFile(path);
  } catch (fault) {
    if (isBusy(fault)) throw inUse(folder, readHolder(path));
    if (existsSync(path) && !isReadable(path))
      throw new Error(
        `The lock of DATA_DIR ${folder} cannot be read, so another gateway may use the folder. Start this one as the ` +
          'user who owns it.',
        { cause: fault },
      );
    // Without the file, and without a way to create it, nobody else can have it. One that can be read shows its locks.
    return () => undefined;
  }
  held.add(path);
  return () => {
    held.delete(path);
    database.close();
  };
}

/** SQLite itself would let others read a new file. The system's error of an unwritable folder is left to SQLite. */
export function createForOwner(path: string): void {
  try {
    closeSync(openSync(path, 'wx', 0o600));
  } catch {}
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
    // A power cut left it half written. Its content does not matter; a lock on it stays.
    if (!isDamage(fault)) throw fault;
    truncateSync(path);
    return holdTransaction(path);
  }
}

function holdTransaction(path: string): DatabaseSync {
  const database = new DatabaseSync(path, { timeout: 0 });
  try {
    // In this mode the lock outlasts the commit of the process's id. No journal: nothing is ever rolled back.
    database.exec('PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE');
    try {
      database.exec(`PRAGMA user_version = ${process.pid}; COMMIT`);
    } catch {
      // A full or read-only disk: the lock counts without the id.
      if (database.isTransaction) database.exec('ROLLBACK');
    }
    database.exec('BEGIN EXCLUSIVE');
    return database;
  } catch (fault) {
    database.close();
    throw fault;
  }
}

/** The id of the process that has the lock; 0 if unknown. */
function readHolder(path: string): number {
  const file = openSync(path, 'r');
  try {
    const bytes = Buffer.alloc(4);
    return readSync(file, bytes, 0, 4, USER_VERSION_AT) === 4 ? bytes.readInt32BE() : 0;
  } finally {
    closeSync(file);
  }
}

/** @param pid 0 if unknown */
export function inUse(folder: string, pid: number): Error {
  const who = pid > 0 ? `process ${pid}` : 'another process';
  return new Error(
    `DATA_DIR ${folder} is in use by a gateway, ${who}. Gateways share keys through Redis: set REDIS_URL for each of ` +
      'them. Otherwise give this gateway a DATA_DIR of its own.',
  );
}
