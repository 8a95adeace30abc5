import type { Logger } from '../../shared/process/logger.ts';
import { activityIn } from './audit.ts';
import { type Change, type KeyListQuery, type LogName, type RecordName, type Storage, Unconfirmed } from './storage.ts';

/**
 * The storage of operators, with a log line for each entry of the audit log. It is written as soon as the change is
 * made, whether it is acknowledged or not.
 */
export function logged(storage: Storage, logger: Logger): Storage {
  return new LoggedStorage(storage, logger);
}

class LoggedStorage implements Storage {
  readonly #storage: Storage;
  readonly #logger: Logger;

  constructor(storage: Storage, logger: Logger) {
    this.#storage = storage;
    this.#logger = logger;
  }

  now = () => this.#storage.now();
  read = (record: RecordName) => this.#storage.read(record);
  readMany = (records: readonly RecordName[]) => this.#storage.readMany(records);
  isEmpty = () => this.#storage.isEmpty();
  countKeys = () => this.#storage.countKeys();
  listKeys = (query: KeyListQuery) => this.#storage.listKeys(query);
  unlistedKeys = () => this.#storage.unlistedKeys();
  relistKeys = () => this.#storage.relistKeys();
  tail = (log: LogName, query: { readonly after?: string | undefined; readonly count: number }) =>
    this.#storage.tail(log, query);

  async change(change: Change): Promise<boolean> {
    try {
      const isMade = await this.#storage.change(change);
      if (isMade) this.#log(change);
      return isMade;
    } catch (fault) {
      if (fault instanceof Unconfirmed) this.#log(change);
      throw fault;
    }
  }

  /** A value that was typed by hand and is not valid is an alarm too. */
  #log({ entries }: Change): void {
    for (const { log, fields } of entries) {
      if (log !== 'audit') continue;
      const activity = activityIn(fields);
      const { target: keyId, reason, via } = activity;
      this.#logger.info({ activity }, 'activity');
      if (via === 'by hand' && reason.includes('is not valid'))
        this.#logger.error({ keyId, reason }, 'value of a key rejected');
    }
  }
}
