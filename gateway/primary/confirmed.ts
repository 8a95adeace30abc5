import { Plans } from '../stores/plans.ts';
import {
  type Change,
  type KeyListQuery,
  type LogName,
  NotMade,
  type RecordName,
  type Storage,
  Unknown,
} from '../stores/storage.ts';
import type { Changed } from './messages.ts';

export type Tell = (changed: Changed) => Promise<void>;

/**
 * The storage of operators: a change is acknowledged once every worker of this gateway acts on it.
 * @param tell resolves when no worker acts on older data
 */
export function confirmed(storage: Storage, tell: Tell): Storage {
  return new ConfirmedStorage(storage, tell);
}

/** Records that workers keep in memory. */
type Watched = 'plans' | `key:${string}`;

class ConfirmedStorage implements Storage {
  readonly #storage: Storage;
  readonly #tell: Tell;
  /** Records that may have been changed: who reads such a change back acknowledges it. */
  readonly #doubtful = new Set<RecordName>();
  #hasPlans = false;

  constructor(storage: Storage, tell: Tell) {
    this.#storage = storage;
    this.#tell = tell;
  }

  now = () => this.#storage.now();
  readMany = (records: readonly RecordName[]) => this.#storage.readMany(records);
  isEmpty = () => this.#storage.isEmpty();
  countKeys = () => this.#storage.countKeys();
  listKeys = (query: KeyListQuery) => this.#storage.listKeys(query);
  unlistedKeys = () => this.#storage.unlistedKeys();
  relistKeys = () => this.#storage.relistKeys();
  tail = (log: LogName, query: { readonly after?: string | undefined; readonly count: number }) =>
    this.#storage.tail(log, query);

  async read(record: RecordName) {
    const fields = await this.#storage.read(record);
    if (this.#doubtful.has(record)) {
      await this.#confirm([record as Watched]);
      this.#doubtful.delete(record);
    }
    return fields;
  }

  async change(change: Change): Promise<boolean> {
    const watched = watchedIn(change);
    // A store with a key in it is no longer empty, and gets no plans.
    if (!this.#hasPlans) await new Plans(this.#storage).begin();
    this.#hasPlans = true;
    try {
      const isMade = await this.#storage.change(change);
      if (isMade) await this.#confirm(watched);
      return isMade;
    } catch (fault) {
      if (!(fault instanceof NotMade)) {
        for (const record of watched) this.#doubtful.add(record);
        await this.#confirm(watched).catch(() => {});
      }
      throw fault;
    }
  }

  async #confirm(records: readonly Watched[]): Promise<void> {
    await Promise.all(
      records.map((record) =>
        record === 'plans' ? this.#tellPlans() : this.#tell({ key: record.slice('key:'.length) }),
      ),
    );
  }

  /** They are sent along: the connection of a worker may be slower than that of operators. */
  async #tellPlans(): Promise<void> {
    const plans = await this.#storage.read('plans').catch((cause) => Promise.reject(new Unknown(cause)));
    if (plans !== undefined) await this.#tell({ plans });
  }
}

/** A new key has an id that nobody has presented yet. One that was restored may have been refused lately. */
function watchedIn({ parts, entries }: Change): Watched[] {
  const isNew = entries.some(({ fields }) => fields.action === 'key.create');
  return parts.flatMap(({ record, exists }) => (isWatched(record) && !(isNew && exists === false) ? record : []));
}

const isWatched = (record: RecordName): record is Watched => record === 'plans' || record.startsWith('key:');
