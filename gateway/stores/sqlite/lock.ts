import { accessSync, closeSync, constants, existsSync, openSync, readSync, realpathSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { isBusy, isDamage } from './faults.ts';

/** Where SQLite stores `user_version` in a file: 4 bytes, the highest first. */
const USER_VERSION_AT = 60;

/** The locks of this process. It must not open their files otherwise: closing one would release its lock (fcntl(2)). */
const held = new Set<string>();

/**
 * Locks a folder until the lock is released or the process ends. The lock is a file on which SQLite holds an exclusive
 * transaction; its `user_version` is the id of the process, which the message names. Processes that cannot write the
 * file share the lock.
 * @returns a function that releases the lock
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
    // A lock would have shown: the file is readable, or it does not exist and nobody like this process can create it.
    return () => undefined;
  }
  held.add(path);
  return () => {
    held.delete(path);
    database.close();
  };
}

/** Creates the file itself, because SQLite would let others read it. SQLite reports a folder that cannot be written. */
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
    // A power cut damaged the file. Its content does not matter, and emptying it keeps the locks on it.
    if (!isDamage(fault)) throw fault;
    truncateSync(path);
    return holdTransaction(path);
  }
}

function holdTransaction(path: string): DatabaseSync {
  const database = new DatabaseSync(path, { timeout: 0 });
  try {
    // In this mode the lock outlasts the commit of the process's id. The journal can stay in memory, because nothing is
    // ever rolled back.
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

/** @param pid the process that uses the folder; 0 if unknown */
export function inUse(folder: string, pid: number): Error {
  const who = pid > 0 ? `process ${pid}` : 'another process';
  return new Error(
    `DATA_DIR ${folder} is in use by a gateway, ${who}. Gateways share keys through Redis: set REDIS_URL for each of ` +
      'them. Otherwise give this gateway a DATA_DIR of its own.',
  );
}
