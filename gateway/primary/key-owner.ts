import type { SqliteStorage } from '../stores/sqlite/storage.ts';
import { callFor } from './channel-storage.ts';
import type { CallAnswer, LoadedKey, SaveOrder, StorageCall } from './messages.ts';
import type { AnswersWithoutRedis, WorkerProcess } from './worker-process.ts';

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
