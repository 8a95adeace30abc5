import { setImmediate as nextTurn } from 'node:timers/promises';
import { Unavailable } from '../../../shared/domain-errors.ts';
import { type Clock, systemClock } from '../../limiter/bucket.ts';
import type { KeySource, SavedState } from '../embedded-limiter.ts';
import {
  type Change,
  type FieldChanges,
  type Fields,
  keyIdOf,
  LOG_LENGTHS,
  NotMade,
  type RecordName,
  type Storage,
  withChanges,
} from '../storage.ts';
import { Commits } from './commits.ts';
import { FULL, whyOf } from './disk.ts';
import { type Opened, openFolder, startFault } from './open.ts';
import { Log, Records } from './records.ts';

const PROBE_MS = 3_000;
const SAVED_AT_ONCE = 100;

/**
 * The process that makes decisions. Each call resolves after the process has passed the results of its decisions to
 * `save`.
 */
export interface Owner {
  /** Saves and forgets a key. */
  release(id: string): Promise<unknown>;
  /** Saves all keys, and keeps deciding. */
  flush(): Promise<unknown>;
}

export interface SqliteOptions {
  /** The process that makes decisions, if it is not this one. If undefined, no other process holds unsaved results. */
  readonly owner?: Owner | undefined;
  readonly auditLength?: number | undefined;
  readonly clock?: Clock;
  /** How often a full disk is checked for room, in milliseconds. */
  readonly probeMs?: number;
}

/**
 * One SQLite file, which only this process has open. Changes made in one turn of the event loop share one commit. If
 * another process decides, its results are saved in a record before the record is read or changed (`owner`, `load`,
 * `save`).
 */
export class SqliteStorage implements Storage, KeySource {
  readonly #opened: Opened;
  readonly #clock: Clock;
  readonly #records: Records;
  readonly #log: Log;
  readonly #owner: Owner | undefined;
  /** The last change or load of each key. The next one waits for it. */
  readonly #turns = new Map<string, Promise<unknown>>();
  /** Changes by decisions that are not yet in the database, by key. */
  readonly #unsaved = new Map<string, FieldChanges>();
  readonly #commits: Commits;
  #lastPage: Promise<unknown> = Promise.resolve();

  /**
   * @param folder DATA_DIR, created if missing
   * @throws {Error} with a message for operators, if another gateway uses the folder, or if it can be neither written
   *   nor read
   */
  constructor(folder: string, options: SqliteOptions = {}) {
    const { owner, auditLength = LOG_LENGTHS.audit, clock = systemClock, probeMs = PROBE_MS } = options;
    this.#opened = openFolder(folder);
    const { database, room, why, unlock } = this.#opened;
    this.#clock = clock;
    try {
      this.#records = new Records(database, clock);
    } catch (fault) {
      database.close();
      unlock();
      throw startFault(folder, fault);
    }
    this.#log = new Log(database, { ...LOG_LENGTHS, audit: auditLength });
    this.#owner = owner;
    let saved: readonly string[] = [];
    this.#commits = new Commits(database, {
      room,
      probeMs,
      onUndone: () => this.#records.countAnew(),
      forgetEntries: () => this.#log.forgetOldest('audit'),
      saveStates: (ids) => {
        saved = ids === 'all' ? [...this.#unsaved.keys()] : ids;
        for (const id of saved) this.#records.addToKey(id, this.#unsaved.get(id));
      },
      onCommitted: () => saved.forEach((id) => void this.#unsaved.delete(id)),
    });
    if (why === undefined) this.#commits.begin();
    else this.#commits.failed(why);
  }

  now = async () => this.#clock();

  /** Why changes are currently refused, as a sentence; undefined if they are not. */
  fault = () => (this.isCopy ? this.#opened.why : this.#commits.fault);

  async read(record: RecordName): Promise<Fields | undefined> {
    if (keyIdOf(record) !== undefined) await this.#owner?.flush();
    return this.#read(record);
  }

  /**
   * Reads one page per turn of the event loop, however many operators read lists: in between, workers can load keys.
   */
  readMany(records: readonly RecordName[]): Promise<(Fields | undefined)[]> {
    const page = this.#lastPage.then(async () => {
      await this.#owner?.flush();
      return records.map((record) => this.#read(record));
    });
    const pause = () => nextTurn();
    this.#lastPage = page.then(pause, pause);
    return page;
  }

  isEmpty = async () => readable(() => this.#records.isEmpty());
  countKeys = async () => this.#records.keyCount;
  listKeys: Storage['listKeys'] = async (query) => readable(() => this.#records.listKeys(query));
  tail: Storage['tail'] = async (log, query) => readable(() => this.#log.tail(log, query));
  // Lists are read from the keys themselves, so no key can be missing.
  unlistedKeys = async () => [];
  relistKeys = async () => 0;

  async change({ parts, entries, urgency }: Change): Promise<boolean> {
    if (this.isCopy) throw new NotMade(this.fault() ?? '');
    this.#commits.refuse(urgency);
    const ids = [...new Set(parts.flatMap(({ record }) => keyIdOf(record) ?? []))];
    // The transaction has already saved the records' states.
    const run = () => {
      if (!parts.every((part) => this.#records.isAsRequired(part))) return false;
      for (const part of parts) this.#records.apply(part);
      for (const entry of entries) this.#log.add(entry);
      return true;
    };
    const make = () => this.#commits.make({ run, ids, urgency });
    const [id] = ids;
    if (id === undefined) return await make();
    return await this.#inTurn(id, async () => {
      await this.#release(id);
      return await make();
    });
  }

  /**
   * Loads a key for the deciding process, which owns the key's state from then on. Waits for earlier changes and loads
   * of the key. The caller must send the result to that process before it awaits anything else.
   * @param takeOver makes any other process release the key
   */
  load(id: string, takeOver = async (): Promise<unknown> => undefined): Promise<Fields | undefined> {
    return this.#inTurn(id, async () => {
      await takeOver();
      return this.#read(`key:${id}`);
    });
  }

  /**
   * Saves the changes that decisions made to existing keys. Changes that cannot be saved, for example on a full disk,
   * are kept and saved later.
   * @param mustBeDurable for changes that a client sees, such as a ban
   * @returns false if the changes must be durable but could not be written. This process keeps them in memory
   */
  async save(states: Iterable<SavedState>, mustBeDurable: boolean): Promise<boolean> {
    const ids: string[] = [];
    for (const [id, changes] of states) {
      this.#unsaved.set(id, { ...this.#unsaved.get(id), ...changes });
      ids.push(id);
    }
    const saved = this.#commits.fault === FULL ? this.#saveInNeed(ids) : this.#saveKeys(ids, mustBeDurable);
    return await saved.catch(() => !mustBeDurable);
  }

  #saveKeys = (ids: readonly string[], isUrgent: boolean): Promise<boolean> =>
    this.#commits.make({ run: () => true, ids, urgency: isUrgent ? 'ban' : undefined });

  /**
   * Saves a few keys at a time, which needs little disk space. If a full disk kept them from being saved, a crash would
   * refill their buckets.
   */
  async #saveInNeed(ids: readonly string[]): Promise<boolean> {
    for (let at = 0; at < ids.length; at += SAVED_AT_ONCE)
      await this.#saveKeys(ids.slice(at, at + SAVED_AT_ONCE), true);
    return true;
  }

  /** Runs the waiting changes, and releases the folder. */
  async close(): Promise<void> {
    const { database, unlock } = this.#opened;
    if (!database.isOpen) return;
    const unsaved = [...this.#unsaved.keys()];
    for (let at = 0; at < unsaved.length; at += SAVED_AT_ONCE)
      this.#saveKeys(unsaved.slice(at, at + SAVED_AT_ONCE), true).catch(() => undefined);
    this.#commits.close();
    database.close();
    unlock();
  }

  /** Whether DATA_DIR could not be written at the start. If so, no change is made until the next start. */
  get isCopy(): boolean {
    return this.#opened.room === undefined;
  }

  async #inTurn<T>(id: string, act: () => Promise<T>): Promise<T> {
    const turn = (this.#turns.get(id) ?? Promise.resolve()).then(act, act);
    this.#turns.set(id, turn);
    try {
      return await turn;
    } finally {
      if (this.#turns.get(id) === turn) this.#turns.delete(id);
    }
  }

  /** Waits a turn first, so that a key loaded in this turn reaches the owner before the request to release it. */
  async #release(id: string): Promise<void> {
    await nextTurn();
    await this.#owner?.release(id).catch((fault: unknown) => {
      throw new NotMade('The worker did not release the key.', fault);
    });
  }

  /** A record, including changes by decisions that are not saved yet. */
  #read(record: RecordName): Fields | undefined {
    const fields = readable(() => this.#records.read(record));
    const changes = this.#unsaved.get(keyIdOf(record) ?? '');
    return fields && changes ? withChanges(fields, changes) : fields;
  }
}

function readable<T>(read: () => T): T {
  try {
    return read();
  } catch (fault) {
    const why = whyOf(fault);
    throw why === undefined ? fault : new Unavailable(fault, why);
  }
}
