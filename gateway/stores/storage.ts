import { Unavailable } from '../../shared/domain-errors.ts';
import { SECOND } from '../limiter/bucket.ts';
import { isKeyId } from '../limiter/credential.ts';
import { StoreUnavailable } from '../limiter/limiter.ts';

/**
 * The narrow interface under all stores (keys, plans, audit log, tokens). It has two implementations: Redis, shared by
 * gateways, and one SQLite file. An acknowledged change is durable and visible to every later call.
 *
 * A record is a set of text fields. There are these records:
 * - `key:<id>`: an API key, and its state, which decisions write.
 * - `revoked:<id>`: what is left of a revoked key. It expires.
 * - `plans`: the plan table, which people edit. `plans:kept`: the table as a gateway last left it.
 * - `tokens`: operators' tokens, a field for each. `backup`: when the last backup was made.
 */
export type RecordName = 'plans' | 'plans:kept' | 'tokens' | 'backup' | `key:${string}` | `revoked:${string}`;

export type Fields = Readonly<Record<string, string>>;

/** Undefined removes a field or, in `expect`, requires that there is none. */
export type FieldChanges = Readonly<Record<string, string | undefined>>;

/** Fields after changes. */
export const withChanges = (fields: Fields, changes: FieldChanges): Fields =>
  Object.fromEntries(
    Object.entries({ ...fields, ...changes }).filter((field): field is [string, string] => field[1] !== undefined),
  );

/** The key's id in the name of its record; undefined for any other record. */
export const keyIdOf = (record: RecordName): string | undefined =>
  record.startsWith('key:') ? record.slice('key:'.length) : undefined;

/**
 * Streams of entries, and how many of its newest entries each keeps. For the audit log, this is the default. Only
 * gateways that share a Redis have a log of the bans that decisions set: it keeps more bans than all gateways together
 * set between two reads by any of them.
 */
export const LOG_LENGTHS = { audit: 10_000, 'plan history': 1_000, bans: 1_000 } as const;

/** The fewest entries that the audit log can be set to keep. */
export const SHORTEST_AUDIT_LOG = 100;

export type LogName = keyof typeof LOG_LENGTHS;
export type LogLengths = Readonly<Record<LogName, number>>;

export interface LogEntry {
  readonly log: LogName;
  readonly fields: Fields;
}

/**
 * A log entry. Its id is Unix time in milliseconds and a sequence number, as in a Redis stream. Ids always rise, so an
 * entry that was written after the clock was set back has its time as the field `at`.
 */
export type LoggedEntry = readonly [id: string, fields: Fields];

/** What a change requires of one record, and how it changes the record. */
export interface Part {
  readonly record: RecordName;
  /** Whether the record must exist; undefined if either will do. */
  readonly exists?: boolean;
  /** The required values of fields. Values that are not valid UTF-8 are not compared. */
  readonly expect?: FieldChanges;
  readonly set?: FieldChanges;
  /**
   * Removes the record of a key, and moves the named fields, as they are in this step, to another record. That record
   * also gets `mark: '1'` ('deleted_by_hand' for a key without data), replaces any earlier one, and expires after
   * `seconds`. The key loses its place among the existing ones.
   */
  readonly moveTo?: {
    readonly record: RecordName;
    readonly fields: readonly string[];
    readonly seconds: number;
    readonly mark?: 'revoked' | 'deleted_by_hand';
  };
}

/**
 * Which changes work on a full disk: those that take something away from a client. Bans, and rotations with a grace
 * period, work until half of the reserved space is left. Their number has no limit, and they must not keep a key from
 * being revoked.
 */
export type Urgency = 'ban' | 'revocation';

/**
 * One step, which is applied completely or not at all. All parts concern one key, or the plan table, or one other
 * record, because a Redis cluster cannot change several nodes in one step.
 */
export interface Change {
  /** Empty if the entries are about a past event. */
  readonly parts: readonly Part[];
  /**
   * The entries to add to their logs in the same step. The audit log omits an entry that repeats the newest entry about
   * its target, with the same request id and within a minute.
   */
  readonly entries: readonly LogEntry[];
  /** Set for a change that takes something away from a client, which must work on a full disk too. */
  readonly urgency?: Urgency | undefined;
  /** Called for an entry that could not be added because somebody put a value of another type in place of its log. */
  onLost?(entry: LogEntry, why: string): void;
}

/** A key's place in the order of keys: by time of creation in Unix seconds, then by id. */
export interface KeyCursor {
  readonly createdAt: number;
  readonly id: string;
}

export const compareCursors = (a: KeyCursor, b: KeyCursor): number =>
  a.createdAt - b.createdAt || (a.id < b.id ? -1 : a.id > b.id ? 1 : 0);

/** A cursor in its form for URLs. */
export const writeCursor = ({ createdAt, id }: KeyCursor): string => `${createdAt}-${id}`;

/** Undefined if the string is not a cursor. */
export function readCursor(text: string): KeyCursor | undefined {
  const [, seconds, id = ''] = /^(-?[\d.e+-]{1,30})-(\w+)$/.exec(text) ?? [];
  const createdAt = Number(seconds);
  return Number.isFinite(createdAt) && isKeyId(id) ? { createdAt, id } : undefined;
}

export interface KeyListQuery {
  /** List the keys after this one; undefined for the first page. */
  readonly after?: KeyCursor | undefined;
  /** Skip this many keys, instead of `after`. Cannot be combined with `withRevoked`. */
  readonly offset?: number | undefined;
  readonly limit: number;
  readonly newestFirst?: boolean;
  readonly withRevoked?: boolean;
}

/** Log entries after an id in the list, or the newest ones. */
export interface TailQuery {
  readonly after?: string | undefined;
  readonly count: number;
}

/** All calls throw {Unavailable} if the storage cannot be reached or written. */
export interface Storage {
  /** The clock of decisions: Unix time in microseconds. */
  now(): Promise<number>;
  /**
   * Undefined if there is no such record. U+FFFD replaces bytes that are not UTF-8.
   * @param isAcknowledgment whether the record is shown to operators as confirmed, which it then must be. By default, it is
   */
  read(record: RecordName, isAcknowledgment?: boolean): Promise<Fields | undefined>;
  /** Reads a page of records. The process does other work between two pages, so decisions stay fast. */
  readMany(records: readonly RecordName[]): Promise<readonly (Fields | undefined)[]>;
  /** Whether no gateway has ever stored anything here. */
  isEmpty(): Promise<boolean>;
  /** The number of existing keys. */
  countKeys(): Promise<number>;
  /** A page of keys in the order of creation. A key keeps its place when it is revoked. */
  listKeys(query: KeyListQuery): Promise<readonly KeyCursor[]>;
  /** Keys that work but have no place in the order of keys, so that lists and backups lack them. */
  unlistedKeys(): Promise<readonly string[]>;
  /** Gives those keys their places. @returns their number */
  relistKeys(): Promise<number>;
  /**
   * Compares and changes in one step.
   * @returns false if a record is not as required, in which case nothing was changed
   * @throws {NotMade} if the change was certainly not made, {Unknown} if it may have been made, {Unconfirmed} if it was
   *   made but not confirmed
   */
  change(change: Change): Promise<boolean>;
  /** The newest entries first. */
  tail(log: LogName, query: TailQuery): Promise<LoggedEntry[]>;
}

/** A storage with some methods replaced. */
export const withOwn = (storage: Storage, own: Partial<Storage>): Storage =>
  new Proxy(storage, {
    get(target, name: keyof Storage) {
      const method = own[name] ?? target[name];
      return typeof method === 'function' ? method.bind(target) : method;
    },
  });

/** A sentence for operators about a name in Redis. */
export const notTheRecord = (name: string): string =>
  `${name} in Redis holds a value of the wrong type. Check the value, then delete it.`;

/** The storage answers, but a record's place holds a value of another type. */
export class OtherValue extends StoreUnavailable {}

/**
 * The fields of a table, which is stored only with fields.
 * @throws {OtherValue} if the place of the table holds a value of another type
 */
export function fieldsOfTable(table: 'plans' | 'tokens', fields: Fields | undefined): Fields | undefined {
  if (fields === undefined || Object.keys(fields).length > 0) return fields;
  const why = notTheRecord(`gateway:${table}`);
  throw new OtherValue(why, why);
}

/** A change was not made, and will not be made later. */
export class NotMade extends Unavailable {
  /** @param why a sentence for operators */
  constructor(why: string, reason: unknown = why) {
    super(reason, `The change was not made. ${why}`);
  }
}

/** A change may or may not have been made. */
export class Unknown extends Unavailable {
  constructor(reason: unknown) {
    super(reason, 'It is not known whether the change was made. It is safe to repeat the change.');
  }
}

/**
 * A change was made, but is lost if its Redis node fails now, or is not in force on another gateway if that one loses
 * Redis now.
 */
export class Unconfirmed extends Unavailable {
  readonly missing: string;
  readonly why: string | undefined;

  /**
   * @param missing what is missing, as the end of a sentence
   * @param why a sentence for operators, if the reason is known
   */
  constructor(missing: string, why?: string) {
    const made = [`The change was made, but ${missing}.`, why].filter(Boolean).join(' ');
    super(made, `${made} It is safe to repeat the change.`);
    this.missing = missing;
    this.why = why;
  }
}

/** A time is stored as decimal Unix seconds, so that people can read it. */

export const writeTime = (time: number | undefined): string | undefined =>
  time === undefined ? undefined : (time / SECOND).toFixed(6);

/** Reads a time as decide.lua does. */
export function readTime(text: string | undefined): number | undefined {
  if (text === undefined || text.length > LONGEST_TIME || !/^\d+\.?\d*$/.test(text)) return undefined;
  return Number(text) < LATEST_TIME ? Math.round(Number(text) * SECOND) : undefined;
}

const LONGEST_TIME = 24;
const LATEST_TIME = 1e10;
