import { statSync } from 'node:fs';
import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { DatabaseFile, isFailedWrite, mayBeMade } from '../../../shared/database-file.ts';
import { NotMade, Unknown, type Urgency } from '../storage.ts';
import { FULL, GONE, type Room, sentenceOf, whyOf } from './disk.ts';

/**
 * The maximum number of steps in one transaction, and the length in pages at which the log is moved into the database.
 * On a full disk the reserved space must be enough to move the log, so both are small.
 */
const MOST_AT_ONCE = 250;
const LOG_PAGES = 200;
/**
 * The maximum number of urgent steps in one transaction on a full disk. It is so low that the pages that these steps
 * change fit into the existing log file.
 */
const MOST_IN_NEED = 25;

/**
 * Free space within the database's own files, which nothing else on the disk can use. It consists of free pages of this
 * many bytes, and a log file of four times this length. If too few pages are free, more are made.
 */
const ROOM_BYTES = 458_752;
const LEAST_FREE_PAGES = 64;
const PAGE_BYTES = 4_096;
/**
 * On a full disk, bans are written only while the free pages and the reserved space add up to this many bytes, so that
 * some are left for revocations.
 */
const FOR_REVOCATIONS_BYTES = 524_288;
const LOG_ROOMS = 4;

interface Step {
  run(): unknown;
  /** The keys whose states are saved with the step even on a full disk. */
  readonly ids: readonly string[];
  readonly urgency?: Urgency | undefined;
}

interface Waiting {
  readonly step: Step;
  resolve(result: unknown): void;
  reject(fault: unknown): void;
}

interface CommitOptions {
  readonly room: Room | undefined;
  /** Saves the states of these keys, or of all, in the current transaction. */
  readonly saveStates: (ids: readonly string[] | 'all') => void;
  readonly onCommitted: () => void;
  /** Removes old entries from the audit log. */
  readonly forgetEntries: () => void;
  /** Called after a step or a whole transaction was undone. */
  readonly onUndone: () => void;
  readonly probeMs: number;
}

/**
 * Runs steps in transactions. The steps in one turn of the event loop share one transaction and one fsync, after which
 * their promises resolve. If one step fails, only that step is undone. On a full disk, only urgent steps are run.
 */
export class Commits {
  readonly #database: DatabaseSync;
  readonly #options: CommitOptions;
  readonly #file: DatabaseFile;
  readonly #freePages: StatementSync;
  #waiting: Waiting[] = [];
  #fault: string | undefined;
  #probing: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(database: DatabaseSync, options: CommitOptions) {
    this.#database = database;
    this.#options = options;
    this.#file = new DatabaseFile(database.location());
    this.#moveLogAfter(LOG_PAGES);
    this.#freePages = database.prepare('PRAGMA freelist_count');
  }

  /** Makes free space within the files, if the disk has any. */
  begin(rooms = LOG_ROOMS): void {
    const { room } = this.#options;
    const why = room && this.#makeRoom(room, rooms);
    if (why !== undefined) this.failed(why);
  }

  /** Why steps currently fail; undefined if they do not. */
  get fault(): string | undefined {
    return this.#whyGone() ?? this.#fault;
  }

  /** Why the file can no longer be found under its name; undefined if it can. A copy in memory has no file. */
  #whyGone(): string | undefined {
    try {
      return this.#options.room !== undefined && this.#file.isGone ? GONE : undefined;
    } catch (fault) {
      return sentenceOf(fault);
    }
  }

  /**
   * Call this before any work for a step, because that work could itself use the reserved space.
   * @throws {NotMade} while the disk is full, if the step is not urgent
   */
  refuse(urgency: Urgency | undefined): void {
    if (this.#fault === FULL && !this.#mayWrite(urgency)) throw new NotMade(FULL);
  }

  /**
   * @throws {NotMade} if the step was certainly not committed
   * @throws {Unknown} if it may have been committed
   * @throws what `run` throws
   */
  make<T>(step: Step & { run(): T }): Promise<T> {
    if (this.#isClosed) return Promise.reject(new NotMade('The gateway is stopping.'));
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    if (this.#waiting.push({ step, resolve: resolve as (result: unknown) => void, reject }) === 1)
      setImmediate(() => this.#commitWaiting());
    return promise;
  }

  /**
   * Notes a fault, and probes for free space at intervals until the fault is over. On a full disk, only urgent steps
   * run.
   */
  failed(why: string): void {
    const { room, probeMs } = this.#options;
    if (room === undefined) return;
    this.#fault = why;
    this.#moveLogAfter(why === FULL ? 0 : LOG_PAGES);
    this.#probing ??= setInterval(() => this.#probe(room), probeMs).unref();
  }

  close(): void {
    while (this.#waiting.length > 0) this.#commitWaiting();
    this.#isClosed = true;
    clearInterval(this.#probing);
    if (this.#fault === FULL) this.#options.room?.keepLog();
  }

  #commitWaiting(): void {
    const group = this.#waiting.splice(0, MOST_AT_ONCE);
    if (group.length === 0) return;
    if (this.#waiting.length > 0) setImmediate(() => this.#commitWaiting());
    const gone = this.#whyGone();
    if (gone !== undefined) {
      for (const { reject } of group) reject(new NotMade(gone));
      return;
    }
    if (this.#fault === undefined) this.#watchRoom();
    const admitted = this.#admitted(group);
    if (admitted.length === 0) return;
    if (!this.#commit(admitted)) this.#commitInNeed(this.#admitted(admitted));
    if (this.#fault === FULL && this.#options.room !== undefined) this.#saveRoom(this.#options.room);
  }

  /** While the disk is full, refuses all steps but the urgent ones. */
  #admitted(group: readonly Waiting[]): Waiting[] {
    if (this.#fault !== FULL) return [...group];
    const admitted = group.filter(({ step }) => this.#mayWrite(step.urgency));
    for (const one of group) if (!admitted.includes(one)) one.reject(new NotMade(FULL));
    return admitted;
  }

  #mayWrite(urgency: Urgency | undefined): boolean {
    if (urgency !== 'ban') return urgency !== undefined;
    return this.#freePageCount() * PAGE_BYTES + (this.#options.room?.held() ?? 0) >= FOR_REVOCATIONS_BYTES;
  }

  /** Runs urgent steps a few at a time on a full disk: first within the files, then in the reserved space. */
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
   * Moves the log into the database, so that the next urgent step overwrites the log and needs no disk space. Releases
   * the reserved space only if moving the log needs it, and then reserves what is left before other programs use it.
   */
  #saveRoom(room: Room): void {
    try {
      const growth = growthOf(this.#database);
      if (growth > 0) room.giveBack();
      // Moving half of the log would take all the space and still leave the log in use.
      if (growth <= room.available()) this.#database.exec('PRAGMA wal_checkpoint(PASSIVE)');
    } catch {}
    room.hold();
  }

  /** Detects a full disk before the free pages run out. Unless it is full, adds free pages when few are left. */
  #watchRoom(): void {
    if (this.#options.room?.isDiskFull()) this.failed(FULL);
    else if (this.#freePageCount() < LEAST_FREE_PAGES) this.begin(1);
  }

  /** @returns why no free pages could be added; undefined if they were */
  #makeRoom(room: Room, rooms: number): string | undefined {
    // The new pages are written first to the log and then to the database. With less free space, that could use up the
    // reserved space.
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

  /** Only urgent steps may use up the free space within the files. */
  #checkRoom(): void {
    const { room } = this.#options;
    if (this.#fault === FULL || room === undefined || this.#freePageCount() >= LEAST_FREE_PAGES) return;
    if (room.isDiskFull()) throw Object.assign(new Error(FULL), { code: 'ENOSPC' });
  }

  #freePageCount(): number {
    return Number(this.#freePages.get()?.freelist_count);
  }

  /** On a full disk, revocations reuse the space of old audit entries, so that the file does not grow. */
  #forgetEntries(): void {
    if (this.#freePageCount() < LEAST_FREE_PAGES) this.#options.forgetEntries();
  }

  /** @returns false if the disk is full; the group is then not settled */
  #commit(group: readonly Waiting[]): boolean {
    let isCommitting = false;
    try {
      this.#database.exec('BEGIN IMMEDIATE');
      if (this.#fault === FULL && group.some(({ step }) => step.urgency === 'revocation')) this.#forgetEntries();
      this.#options.saveStates(this.#fault === FULL ? group.flatMap(({ step }) => step.ids) : 'all');
      const settlements = group.map((waiting) => this.#attempt(waiting));
      this.#checkRoom();
      isCommitting = true;
      this.#database.exec('COMMIT');
      this.#options.onCommitted();
      if (this.#fault !== FULL) this.#recovered();
      for (const settle of settlements) settle();
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

  /** Runs a step. If it fails, only this step is undone. @returns a function that settles its promise */
  #attempt({ step, resolve, reject }: Waiting): () => void {
    this.#database.exec('SAVEPOINT step');
    try {
      const result = step.run();
      this.#database.exec('RELEASE step');
      return () => resolve(result);
    } catch (fault) {
      // A disk fault affects all steps, and SQLite may have rolled back the whole transaction.
      if (whyOf(fault) !== undefined || !this.#database.isTransaction) throw fault;
      this.#database.exec('ROLLBACK TO step; RELEASE step');
      this.#options.onUndone();
      return () => reject(fault);
    }
  }

  /** Some disk faults have already ended the transaction. */
  #rollBack(): void {
    try {
      if (this.#database.isTransaction) this.#database.exec('ROLLBACK');
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

  /** @param pages 0 for never */
  #moveLogAfter(pages: number): void {
    this.#database.exec(`PRAGMA wal_autocheckpoint = ${pages}`);
  }

  /** Saves the states that did not fit on the full disk. */
  #recovered(): void {
    if (this.#fault === undefined) return;
    this.#fault = undefined;
    this.#moveLogAfter(LOG_PAGES);
    clearInterval(this.#probing);
    this.#probing = undefined;
    this.make({ run: () => undefined, ids: [] }).catch(() => undefined);
  }
}

/** By how many bytes the database file grows when the log is moved into it. */
function growthOf(database: DatabaseSync): number {
  const { page_count: pages } = database.prepare('PRAGMA page_count').get() as { page_count: number };
  return pages * PAGE_BYTES - statSync(database.location() ?? '').size;
}
