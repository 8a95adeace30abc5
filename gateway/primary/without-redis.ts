import { Unavailable } from '../../shared/domain-errors.ts';
import type { KeySource, SavedState } from '../stores/embedded-limiter.ts';
import type { SqliteStorage } from '../stores/sqlite/storage.ts';
import {
  type Change,
  type Fields,
  type KeyCursor,
  type KeyListQuery,
  type LoggedEntry,
  type LogName,
  NotMade,
  type RecordName,
  type Storage,
  type TailQuery,
  Unknown,
} from '../stores/storage.ts';
import type {
  AskedOfPrimary,
  AskedOfWorker,
  CallAnswer,
  Channel,
  LoadedKey,
  SaveOrder,
  StorageCall,
} from './channel.ts';
import type { AnswersWithoutRedis, WorkerProcess } from './worker-process.ts';

const NO_ANSWER = 'The primary process does not answer.';

/** The primary's faults by their names in messages. */
const FAULTS = { 'not made': NotMade, unknown: Unknown, unavailable: Unavailable };

/** The storage of a worker without Redis. The worker's primary has it open, so a call can wait for a commit there. */
export class ChannelStorage implements Storage, KeySource {
  readonly #primary: Channel<AskedOfPrimary, AskedOfWorker>;

  constructor(primary: Channel<AskedOfPrimary, AskedOfWorker>) {
    this.#primary = primary;
  }

  async load(id: string): Promise<Fields | undefined> {
    const loaded = await this.#primary.ask('load', id);
    if (loaded === undefined) throw new Unavailable(NO_ANSWER);
    return loaded.fields;
  }

  async save(states: readonly SavedState[], mustBeDurable: boolean): Promise<boolean> {
    return (await this.#primary.ask('save', { states, mustBeDurable })) ?? false;
  }

  now = () => this.#call<number>('now');
  read = (record: RecordName) => this.#call<Fields | undefined>('read', record);
  readMany = (records: readonly RecordName[]) => this.#call<(Fields | undefined)[]>('readMany', records);
  isEmpty = () => this.#call<boolean>('isEmpty');
  countKeys = () => this.#call<number>('countKeys');
  listKeys = (query: KeyListQuery) => this.#call<KeyCursor[]>('listKeys', query);
  unlistedKeys = () => this.#call<string[]>('unlistedKeys');
  relistKeys = () => this.#call<number>('relistKeys');
  tail = (log: LogName, query: TailQuery) => this.#call<LoggedEntry[]>('tail', log, query);

  /** `onLost` is left out because a function cannot be sent, so a lost entry is not reported. */
  change = ({ onLost: _, ...change }: Change) => this.#call<boolean>('change', change);

  async #call<T>(method: StorageCall['method'], ...args: readonly unknown[]): Promise<T> {
    const answer = await this.#primary.ask('call', { method, args });
    if (answer === undefined) throw method === 'change' ? new Unknown(NO_ANSWER) : new Unavailable(NO_ANSWER);
    if ('value' in answer) return answer.value as T;
    const { fault, message, shown } = answer;
    throw Object.assign(new FAULTS[fault](message), { shown });
  }
}

/** Calls the storage for a worker. Never throws. */
async function callFor(storage: Storage, { method, args }: StorageCall): Promise<CallAnswer> {
  try {
    const call = storage[method] as (...given: readonly unknown[]) => Promise<unknown>;
    return { value: await call.call(storage, ...args) };
  } catch (cause) {
    const { message, shown } = cause as Unavailable;
    const fault = cause instanceof NotMade ? 'not made' : cause instanceof Unknown ? 'unknown' : 'unavailable';
    return { fault, message, shown };
  }
}

/**
 * The keys that workers hold without Redis. One process holds a key: before the key's record changes, and before
 * another worker loads it, the holder sends the state and forgets the key. There is one worker, or two during a
 * restart.
 */
export class KeyOwner implements AnswersWithoutRedis {
  readonly #workers: () => readonly WorkerProcess[];
  /** Only one worker loads a key at a time. */
  readonly #loads = new Map<string, Promise<unknown>>();
  #flush: Promise<readonly []> | undefined;
  #storage: SqliteStorage | undefined;

  constructor(workers: () => readonly WorkerProcess[]) {
    this.#workers = workers;
  }

  /** Starts to answer the workers from this storage. Until then they get no answer. */
  serve(storage: SqliteStorage): void {
    this.#storage = storage;
  }

  /** Resolves when no worker decides on the key, and the storage has its state. */
  async release(id: string): Promise<undefined> {
    await Promise.all(this.#workers().map((worker) => worker.release({ id, isChanged: true })));
  }

  /**
   * Resolves when the storage has all states, except those of workers that do not answer. Calls in the same turn of the
   * event loop share one message.
   */
  flush(): Promise<readonly []> {
    this.#flush ??= this.#flushAll();
    return this.#flush;
  }

  async load(worker: WorkerProcess, id: string): Promise<LoadedKey | undefined> {
    const loading = this.#takeOver(worker, id, this.#loads.get(id));
    this.#loads.set(id, loading);
    const loaded = await loading;
    if (this.#loads.get(id) === loading) this.#loads.delete(id);
    return loaded;
  }

  async save({ states, mustBeDurable }: SaveOrder): Promise<boolean> {
    try {
      return (await this.#storage?.saveStates(states, { mustBeDurable })) ?? false;
    } catch {
      return false;
    }
  }

  async call(call: StorageCall): Promise<CallAnswer> {
    if (this.#storage !== undefined) return await callFor(this.#storage, call);
    return { fault: 'unavailable', message: 'The storage is not open yet.', shown: undefined };
  }

  async #flushAll(): Promise<readonly []> {
    setImmediate(() => {
      this.#flush = undefined;
    });
    await Promise.all(this.#workers().map((worker) => worker.flush()));
    return [];
  }

  /** Makes the other workers give the key up. One that is loading it too goes on waiting, because its turn follows. */
  async #takeOver(
    worker: WorkerProcess,
    id: string,
    before: Promise<unknown> | undefined,
  ): Promise<LoadedKey | undefined> {
    await before;
    const others = this.#workers().filter((other) => other !== worker && other.hasKeys);
    await Promise.all(others.map((other) => other.release({ id, isChanged: false })));
    return await this.#read(id);
  }

  async #read(id: string): Promise<LoadedKey | undefined> {
    try {
      return this.#storage && { fields: await this.#storage.load(id) };
    } catch {
      return undefined;
    }
  }
}
