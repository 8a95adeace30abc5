import { setImmediate as nextTurn } from 'node:timers/promises';
import { Unavailable } from '../../../shared/domain-errors.ts';
import { type Clock, systemClock } from '../../limiter/clock.ts';
import { ACTIVITY_LENGTH } from '../audit.ts';
import { HISTORY_LENGTH } from '../plans.ts';
import {
  type Change,
  type FieldChanges,
  type Fields,
  type KeyCursor,
  type KeyListQuery,
  keyIdOf,
  type LoggedEntry,
  type LogName,
  NotMade,
  type RecordName,
  type Storage,
  withChanges,
} from '../storage.ts';
import { Commits } from './commits.ts';
import { whyOf } from './faults.ts';
import { Log } from './log.ts';
import { type Opened, openFolder } from './open.ts';
import { Records } from './records.ts';
import { type Owner, States } from './states.ts';

/** Records that are read without a pause. */
const READ_AT_ONCE = 500;
const PROBE_MS = 3_000;

export interface SqliteOptions {
  /** The process that decides, if it is another. Without one, decisions change no record. */
  readonly owner?: Owner | undefined;
  /** Entries of the audit log that are kept. */
  readonly auditLength?: number | undefined;
  readonly clock?: Clock;
  /** How often a full disk is checked for room, in milliseconds. */
  readonly probeMs?: number;
}

/**
 * One SQLite file, which this process alone has open. Changes of one turn of the event loop share one commit.
 *
 * What another process decides reaches the records before anybody reads or changes them (`owner`, `load`, `saveStates`).
 */
export class SqliteStorage implements Storage {
  readonly #opened: Opened;
  readonly #clock: Clock;
  readonly #records: Records;
  readonly #log: Log;
  readonly #states: States;
  readonly #commits: Commits;

  /**
   * @param folder DATA_DIR, created if missing
   * @throws {Error} for operators: another gateway uses the folder, or nothing can be stored and nothing is
   */
  constructor(folder: string, options: SqliteOptions = {}) {
    const { owner, auditLength = ACTIVITY_LENGTH, clock = systemClock, probeMs = PROBE_MS } = options;
    this.#opened = openFolder(folder);
    const { database, room, why } = this.#opened;
    this.#clock = clock;
    this.#records = new Records(database, clock);
    this.#log = new Log(database, { audit: auditLength, 'plan history': HISTORY_LENGTH });
    this.#states = new States(owner);
    this.#commits = new Commits(database, {
      room,
      probeMs,
      onUndone: () => this.#records.countAnew(),
      ...this.#savingOfStates(),
    });
    if (why === undefined) this.#commits.begin();
    else this.#commits.failed(why);
  }

  async now(): Promise<number> {
    return this.#clock();
  }

  /** Why changes are refused at present, as a sentence; undefined if all is well. */
  fault(): string | undefined {
    return this.#refusal ?? this.#commits.fault;
  }

  async read(record: RecordName): Promise<Fields | undefined> {
    const [fields] = await this.readMany([record]);
    return fields;
  }

  async readMany(records: readonly RecordName[]): Promise<(Fields | undefined)[]> {
    if (records.some((record) => keyIdOf(record) !== undefined)) await this.#takeStates();
    const found: (Fields | undefined)[] = [];
    for (const record of records) {
      if (found.length > 0 && found.length % READ_AT_ONCE === 0) await nextTurn();
      found.push(this.#read(record));
    }
    return found;
  }

  async isEmpty(): Promise<boolean> {
    return readable(() => this.#records.isEmpty());
  }

  async countKeys(): Promise<number> {
    return readable(() => this.#records.countKeys());
  }

  async listKeys(query: KeyListQuery): Promise<KeyCursor[]> {
    return readable(() => this.#records.listKeys(query));
  }

  /** The order is read from the keys themselves. */
  async unlistedKeys(): Promise<readonly string[]> {
    return [];
  }

  async relistKeys(): Promise<number> {
    return 0;
  }

  async change(change: Change): Promise<boolean> {
    const { parts, isUrgent = false } = change;
    this.#refuse(isUrgent);
    const ids = [...new Set(parts.map(({ record }) => keyIdOf(record)).filter((id) => id !== undefined))];
    const run = () => this.#make(change);
    return await this.#states.whileHeld(ids, () => this.#commits.make({ run, ids, isUrgent }));
  }

  async tail(
    log: LogName,
    { after, count }: { readonly after?: string | undefined; readonly count: number },
  ): Promise<LoggedEntry[]> {
    return readable(() => this.#log.tail(log, after, count));
  }

  /**
   * A key for the process that decides, which owns the key's state from then on. It waits until a pending change of the
   * key is settled. The answer must be sent before anything else is waited for.
   */
  async load(id: string): Promise<Fields | undefined> {
    await this.#states.untilFree(id);
    return this.#read(`key:${id}`);
  }

  /**
   * Saves what decisions changed of keys, as far as the keys exist. What cannot be saved, for example on a full disk, is
   * kept and saved later.
   * @param mustBeDurable for what is reported to somebody, such as a ban: it may use the room that is reserved for a full
   * disk
   * @returns false if it must be durable and could not be written; it is known here all the same
   */
  async saveStates(
    states: Iterable<readonly [id: string, changes: FieldChanges]>,
    { mustBeDurable }: { readonly mustBeDurable: boolean },
  ): Promise<boolean> {
    const ids: string[] = [];
    for (const [id, changes] of states) {
      this.#states.keep(id, changes);
      ids.push(id);
    }
    const saved = this.#commits.make({ run: () => true, ids, isUrgent: mustBeDurable });
    return await saved.catch(() => !mustBeDurable);
  }

  /** Makes what waits, and releases the folder. */
  async close(): Promise<void> {
    const { database, unlock } = this.#opened;
    if (!database.isOpen) return;
    void this.saveStates([], { mustBeDurable: false });
    this.#commits.close();
    database.close();
    unlock();
  }

  /** Whether DATA_DIR could not be written at the start. Then no change is made until the next one. */
  get isCopy(): boolean {
    return this.#opened.room === undefined;
  }

  get #refusal(): string | undefined {
    return this.isCopy ? this.#opened.why : undefined;
  }

  #refuse(isUrgent: boolean): void {
    if (this.#refusal !== undefined) throw new NotMade(this.#refusal);
    this.#commits.refuse(isUrgent);
  }

  /** Runs in a transaction, where the records have their states. */
  #make({ parts, entries }: Change): boolean {
    if (!parts.every((part) => this.#records.isAsRequired(part))) return false;
    for (const part of parts) this.#records.apply(part);
    for (const entry of entries) this.#log.add(entry);
    return true;
  }

  /** A record, with what decisions changed of it since. */
  #read(record: RecordName): Fields | undefined {
    const fields = readable(() => this.#records.read(record));
    const changes = this.#states.of(keyIdOf(record) ?? '');
    return fields && changes ? withChanges(fields, changes) : fields;
  }

  async #takeStates(): Promise<void> {
    await this.#states.takeAll();
    if (this.#states.ids.length > 0) void this.saveStates([], { mustBeDurable: false });
  }

  #savingOfStates() {
    let saved: readonly string[] = [];
    return {
      saveStates: (ids: readonly string[] | 'all') => {
        saved = ids === 'all' ? this.#states.ids : ids;
        for (const id of saved) {
          const changes = this.#states.of(id);
          if (changes !== undefined) this.#records.addToKey(id, changes);
        }
      },
      onCommitted: () => this.#states.forget(saved),
    };
  }
}

function readable<T>(read: () => T): T {
  try {
    return read();
  } catch (fault) {
    throw whyOf(fault) === undefined ? fault : new Unavailable(fault);
  }
}
