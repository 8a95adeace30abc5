import { Unavailable } from '../../shared/domain-errors.ts';
import type { Logger } from '../../shared/process/logger.ts';
import { every } from '../../shared/process/repeat.ts';
import type { KeySource } from '../stores/embedded-limiter.ts';
import type { Owner, SqliteStorage } from '../stores/sqlite/storage.ts';
import { NotMade, type Storage, Unknown } from '../stores/storage.ts';
import type { AskedOfPrimary, AskedOfWorker, Channel } from './channel.ts';
import type { WorkerProcess } from './worker-process.ts';

const LOOK_EVERY_MS = 1_000;
const NO_ANSWER = 'The primary process does not answer.';

/** The primary's faults by their names in messages. */
const FAULTS = { 'not made': NotMade, unknown: Unknown, unavailable: Unavailable };

const METHODS = ['now', 'read', 'readMany', 'isEmpty', 'countKeys', 'listKeys', 'unlistedKeys', 'relistKeys', 'tail'];

/** The storage for a worker without Redis. Only the primary has it open, so a call can wait for a commit there. */
export function storageOfPrimary(primary: Channel<AskedOfPrimary, AskedOfWorker>): Storage & KeySource {
  async function call(method: string, ...args: readonly unknown[]): Promise<unknown> {
    const answer = await primary.ask('call', { method: method as keyof Storage, args });
    if (answer === undefined) throw method === 'change' ? new Unknown(NO_ANSWER) : new Unavailable(NO_ANSWER);
    if ('value' in answer) return answer.value;
    const { fault, message, shown } = answer;
    throw Object.assign(new FAULTS[fault](message), { shown });
  }

  const methods = METHODS.map((method) => [method, (...args: unknown[]) => call(method, ...args)]);
  return {
    ...(Object.fromEntries(methods) as Storage),
    // `onLost` is a function and cannot be sent, so a lost entry is not reported.
    change: ({ onLost: _, ...change }) => call('change', change) as Promise<boolean>,
    async load(id) {
      const loaded = await primary.ask('load', id);
      if (loaded === undefined) throw new Unavailable(NO_ANSWER);
      return loaded.fields;
    },
    save: async (states, mustBeDurable) => (await primary.ask('save', { states, mustBeDurable })) ?? false,
  };
}

/**
 * The keys that workers hold without Redis. Only one process holds a key: before the key's record changes, and before
 * another worker loads it, the holder sends the state and forgets the key. There are two workers only during a restart.
 */
export function keyOwner(workers: () => readonly WorkerProcess[], open: (owner: Owner) => SqliteStorage) {
  let flush: Promise<unknown> | undefined;
  const storage = open({
    release: (id) => Promise.all(workers().map((worker) => worker.release({ id, isChanged: true }))),
    /** Calls in the same turn share one message. */
    flush() {
      if (flush === undefined) {
        setImmediate(() => {
          flush = undefined;
        });
        flush = Promise.all(workers().map((worker) => worker.flush()));
      }
      return flush;
    },
  });

  /** @returns the fields of a key; undefined if they cannot be read now */
  function load(worker: WorkerProcess, id: string) {
    // This `release` does not cancel another worker's pending load of the key: the storage runs loads of a key in turn,
    // so the pending load follows this one.
    const others = () => workers().filter((other) => other !== worker);
    const takeOver = () => Promise.all(others().map((other) => other.release({ id, isChanged: false })));
    return storage.load(id, takeOver).then(
      (fields) => ({ fields }),
      () => undefined,
    );
  }

  /** Calls the storage for a worker. Never throws. */
  async function call({ method, args }: AskedOfPrimary['call'][0]): Promise<AskedOfPrimary['call'][1]> {
    try {
      const called = storage[method] as (...given: readonly unknown[]) => Promise<unknown>;
      return { value: await called.call(storage, ...args) };
    } catch (cause) {
      const { message, shown } = cause as Unavailable;
      const fault = cause instanceof NotMade ? 'not made' : cause instanceof Unknown ? 'unknown' : 'unavailable';
      return { fault, message, shown };
    }
  }

  return { storage, load, call };
}

/**
 * Logs once when changes cannot be stored any longer, and once when they can again.
 * @returns a function that stops looking. Call it before the storage is closed, because its files then change
 */
export function logFaults(storage: SqliteStorage, logger: Logger): () => void {
  let isFaulty = false;
  return every(LOOK_EVERY_MS, () => {
    const reason = storage.fault();
    if (reason !== undefined && !isFaulty) logger.error({ reason }, 'changes cannot be stored');
    if (reason === undefined && isFaulty) logger.info('changes can be stored again');
    isFaulty = reason !== undefined;
  });
}
