import { Unavailable } from '../../shared/domain-errors.ts';
import type { KeySource, SavedState } from '../stores/embedded-limiter.ts';
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
import type { Channel } from './channel.ts';
import type { AskedOfPrimary, AskedOfWorker, CallAnswer, StorageCall } from './messages.ts';

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
export async function callFor(storage: Storage, { method, args }: StorageCall): Promise<CallAnswer> {
  try {
    const call = storage[method] as (...given: readonly unknown[]) => Promise<unknown>;
    return { value: await call.call(storage, ...args) };
  } catch (cause) {
    const { message, shown } = cause as Unavailable;
    const fault = cause instanceof NotMade ? 'not made' : cause instanceof Unknown ? 'unknown' : 'unavailable';
    return { fault, message, shown };
  }
}
