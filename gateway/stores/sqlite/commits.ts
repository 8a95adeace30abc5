import { statSync } from 'node:fs';
import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { NotMade, Unknown } from '../storage.ts';
import { FULL, isFailedWrite, mayBeMade, sentenceOf, whyOf } from './faults.ts';
import { WAL } from './open.ts';
import type { Room } from './room.ts';

/**
 * Steps of one transaction, and pages after which the log is moved into the database. They are few, because on a full
 * disk the reserved room must do to move what is in the log.
 */
const MOST_AT_ONCE = 250;
const LOG_PAGES = 200;
/** Urgent steps of one transaction on a full disk: with the pages that they change, the log stays as long as it is. */
const MOST_IN_NEED = 25;

/**
 * Room within the files of the database, which nobody else on the disk can take: so many bytes of free pages, and a log
 * that has been four times as long already. Once there are fewer free pages, more are made.
 */
const ROOM_BYTES = 458_752;
const LEAST_FREE_PAGES = 64;
const LOG_ROOMS = 4;

/** Changes would be made in a file that nobody finds again. */
const GONE =
  'The file of the database was removed or replaced. This gateway still has it open: make a backup with ctl backup, ' +
  'restart the gateway, and restore the backup.';

export interface Step {
  run(): unknown;
  /** The keys whose states are saved in any case. */
  readonly ids: readonly string[];
  /** Whether it may use the reserved room. */
  readonly isUrgent: boolean;
}

interface Waiting {
  readonly step: Step;
  resolve(result: unknown): void;
  reject(fault: unknown): void;
}

type Outcome = { readonly result: unknown } | { readonly fault: unknown };

export interface CommitOptions {
  readonly room: Room | undefined;
  /** What is saved with a transaction: of all keys, or of these alone. */
  readonly saveStates: (ids: readonly string[] | 'all') => void;
  readonly onCommitted: () => void;
  /** After a step, or all of a transaction, was undone. */
  readonly onUndone: () => void;
  /** How often a full disk is checked for room. */
  readonly probeMs: number;
}

/**
 * The transactions. The steps of one turn of the event loop share one – one fsync for all – and are answered after it. A
 * failed step is undone alone. On a full disk only urgent steps are made.
 */
export class Commits {
  readonly #database: DatabaseSync;
  readonly #options: CommitOptions;
  /** The database's file, and its number in the file system. */
  readonly #path: string;
  readonly #inode: number | undefined;
  readonly #freePages: StatementSync;
  readonly #statements: Readonly<Record<'begin' | 'commit' | 'rollback' | 'save' | 'undo' | 'release', StatementSync>>;
  #waiting: Waiting[] = [];
  #fault: string | undefined;
  #probing: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(database: DatabaseSync, options: CommitOptions) {
    this.#database = database;
    this.#options = options;
    this.#path = database.location() ?? '';
    this.#inode = inodeOf(this.#path);
    this.#moveLogAfter(LOG_PAGES);
    this.#freePages = database.prepare('PRAGMA freelist_count');
    this.#statements = {
      begin: database.prepare('BEGIN IMMEDIATE'),
      commit: database.prepare('COMMIT'),
      rollback: database.prepare('ROLLBACK'),
      save: database.prepare('SAVEPOINT step'),
      undo: database.prepare('ROLLBACK TO step'),
      release: database.prepare('RELEASE step'),
    };
  }

  /** Makes room within the files, if the disk has any. */
  begin(rooms = LOG_ROOMS): void {
    const { room } = this.#options;
    const why = room && this.#makeRoom(room, rooms);
    if (why !== undefined) this.failed(why);
  }

  /** Why steps fail at present; undefined if all is well. */
  get fault(): string | undefined {
    return this.#isGone() ? GONE : this.#fault;
  }

  /** A copy has no file. */
  #isGone(): boolean {
    return this.#options.room !== undefined && inodeOf(this.#path) !== this.#inode;
  }

  /** @throws {NotMade} while the disk is full, if the step is not urgent */
  refuse(isUrgent: boolean): void {
    if (this.#fault === FULL && !isUrgent) throw new NotMade(FULL);
  }

  /**
   * @throws {NotMade} if it was certainly not made
   * @throws {Unknown} if nobody knows
   * @throws what `run` throws
   */
  make<T>(step: Step & { run(): T }): Promise<T> {
    if (this.#isClosed) return Promise.reject(new NotMade('The gateway stops.'));
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    if (this.#waiting.push({ step, resolve: resolve as (result: unknown) => void, reject }) === 1)
      setImmediate(() => this.#commitWaiting());
    return promise;
  }

  /** Steps fail from now on. On a full disk, room is looked for until there is some. */
  failed(why: string): void {
    const { room, probeMs } = this.#options;
    if (room === undefined) return;
    this.#fault = why;
    this.#moveLogAfter(why === FULL ? 0 : LOG_PAGES);
    this.#probing ??= setInterval(() => this.#probe(room), probeMs).unref();
  }

  /** Makes what waits. */
  close(): void {
    while (this.#waiting.length > 0) this.#commitWaiting();
    this.#isClosed = true;
    clearInterval(this.#probing);
    if (this.#fault === FULL) this.#options.room?.keepLog(this.#path + WAL);
  }

  #commitWaiting(): void {
    const group = this.#waiting.splice(0, MOST_AT_ONCE);
    if (group.length === 0) return;
    if (this.#waiting.length > 0) setImmediate(() => this.#commitWaiting());
    if (this.#isGone()) {
      for (const { reject } of group) reject(new NotMade(GONE));
      return;
    }
    if (this.#fault === undefined) this.#watchRoom();
    const admitted = this.#admitted(group);
    if (admitted.length === 0) return;
    if (!this.#commit(admitted)) this.#commitInNeed(this.#admitted(admitted));
    if (this.#fault === FULL && this.#options.room !== undefined) this.#saveRoom(this.#options.room);
  }

  /** While the disk is full, all but the urgent are refused. */
  #admitted(group: readonly Waiting[]): Waiting[] {
    if (this.#fault !== FULL) return [...group];
    for (const { step, reject } of group) if (!step.isUrgent) reject(new NotMade(FULL));
    return group.filter(({ step }) => step.isUrgent);
  }

  /** What the disk has no room for is made a few at a time, with the room in the files, or else with the reserved one. */
  #commitInNeed(urgent: readonly Waiting[]): void {
    const { room } = this.#options;
    for (let at = 0; at < urgent.length; at += MOST_IN_NEED) {
      const few = urgent.slice(at, at + MOST_IN_NEED);
      if (room !== undefined) this.#saveRoom(room);
      if (this.#commit(few)) continue;
      room?.giveBack();
      if (!this.#commit(few)) for (const { reject } of few) reject(new NotMade(FULL));
    }
  }

  /**
   * The log is moved into the database, so that the next urgent step writes over it and needs no room. The reserved room
   * is given back only if this needs it; what is left of it is taken again before others take it.
   */
  #saveRoom(room: Room): void {
    checkpoint(this.#database, room);
    room.hold();
  }

  /** A full disk is noticed before what is left of it is used. */
  #watchRoom(): void {
    if (this.#options.room?.isDiskFull()) this.failed(FULL);
    else if (this.#freePageCount() < LEAST_FREE_PAGES) this.begin(1);
  }

  /** @returns why not */
  #makeRoom(room: Room, rooms: number): string | undefined {
    // What the log had room for and the database has not would need the reserved room.
    if (room.available() < (rooms + 1) * ROOM_BYTES) return FULL;
    const make = `BEGIN IMMEDIATE; DELETE FROM room; INSERT INTO room VALUES (randomblob(${ROOM_BYTES})); COMMIT;`;
    try {
      this.#moveLogAfter(0);
      this.#database.exec(`${make.repeat(rooms)} DELETE FROM room; PRAGMA wal_checkpoint(PASSIVE)`);
      this.#moveLogAfter(LOG_PAGES);
      return undefined;
    } catch (fault) {
      this.#rollBack();
      return this.#whyOf(fault) ?? sentenceOf(fault);
    }
  }

  /** What is not urgent leaves the room within the files to what is. */
  #checkRoom(): void {
    const { room } = this.#options;
    if (this.#fault === FULL || room === undefined || this.#freePageCount() >= LEAST_FREE_PAGES) return;
    if (room.isDiskFull()) throw Object.assign(new Error(FULL), { code: 'ENOSPC' });
  }

  #freePageCount(): number {
    return Number(this.#freePages.get()?.freelist_count);
  }

  /** @returns false if the disk is full; then the group is not settled */
  #commit(group: readonly Waiting[]): boolean {
    let isCommitting = false;
    try {
      this.#statements.begin.run();
      this.#options.saveStates(this.#fault === FULL ? group.flatMap(({ step }) => step.ids) : 'all');
      const outcomes = group.map(({ step }) => this.#attempt(step));
      this.#checkRoom();
      isCommitting = true;
      this.#statements.commit.run();
      this.#options.onCommitted();
      if (this.#fault !== FULL) this.#recovered();
      for (const [at, outcome] of outcomes.entries()) settle(group[at] as Waiting, outcome);
      return true;
    } catch (fault) {
      this.#rollBack();
      const why = this.#whyOf(fault);
      if (why !== undefined) this.failed(why);
      if (why === FULL) return false;
      const failure =
        why === undefined ? fault : isCommitting && mayBeMade(fault) ? new Unknown(fault) : new NotMade(why, fault);
      for (const { reject } of group) reject(failure);
      return true;
    }
  }

  /** A step, undone alone when it fails. */
  #attempt(step: Step): Outcome {
    this.#statements.save.run();
    try {
      const result = step.run();
      this.#statements.release.run();
      return { result };
    } catch (fault) {
      // The disk's faults concern all, and SQLite may have rolled back the whole transaction.
      if (whyOf(fault) !== undefined || !this.#database.isTransaction) throw fault;
      this.#statements.undo.run();
      this.#options.onUndone();
      this.#statements.release.run();
      return { fault };
    }
  }

  /** Some faults of the disk end the transaction by themselves. */
  #rollBack(): void {
    try {
      if (this.#database.isTransaction) this.#statements.rollback.run();
      this.#options.onUndone();
    } catch {}
  }

  #whyOf(fault: unknown): string | undefined {
    return (isFailedWrite(fault) ? this.#options.room?.hold() : undefined) ?? whyOf(fault);
  }

  #probe(room: Room): void {
    const why = room.hold() ?? this.#makeRoom(room, LOG_ROOMS);
    if (why === undefined) this.#recovered();
    else this.failed(why);
  }

  /** @param pages 0: not by itself */
  #moveLogAfter(pages: number): void {
    this.#database.exec(`PRAGMA wal_autocheckpoint = ${pages}`);
  }

  /** States that had no room are saved now. */
  #recovered(): void {
    if (this.#fault === undefined) return;
    this.#fault = undefined;
    this.#moveLogAfter(LOG_PAGES);
    clearInterval(this.#probing);
    this.#probing = undefined;
    this.make({ run: () => undefined, ids: [], isUrgent: false }).catch(() => undefined);
  }
}

function settle({ resolve, reject }: Waiting, outcome: Outcome): void {
  if ('fault' in outcome) reject(outcome.fault);
  else resolve(outcome.result);
}

const inodeOf = (path: string): number | undefined => statSync(path, { throwIfNoEntry: false })?.ino;

/** By how many bytes the file of a database grows when the log is moved into it. */
function growthOf(database: DatabaseSync): number {
  const { page_count = 0 } = database.prepare('PRAGMA page_count').get() as { page_count?: number };
  const { page_size = 0 } = database.prepare('PRAGMA page_size').get() as { page_size?: number };
  return page_count * page_size - statSync(database.location() ?? '').size;
}

/** Half of the log would take all the room, and leave the log in use. */
function checkpoint(database: DatabaseSync, room: Room): void {
  try {
    const growth = growthOf(database);
    if (growth > 0) room.giveBack();
    if (growth <= room.available()) database.exec('PRAGMA wal_checkpoint(PASSIVE)');
  } catch {}
}
