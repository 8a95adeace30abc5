import type { DatabaseSync } from 'node:sqlite';
import { type Clock, SECOND } from '../../limiter/bucket.ts';
import { canRepeat, LOOKED_BACK, REPEATED_MS } from '../audit.ts';
import {
  type FieldChanges,
  type Fields,
  type KeyCursor,
  type KeyListQuery,
  keyIdOf,
  type LogEntry,
  type LoggedEntry,
  type LogLengths,
  type LogName,
  type Part,
  type RecordName,
  readTime,
  type TailQuery,
  withChanges,
} from '../storage.ts';

/** The number of expired records that one revocation removes. It adds fewer, so the table shrinks. */
const PURGED = 100;

interface Row {
  readonly created: number | null;
  readonly fields: string;
}

/** The records in the database. The fields of each are one JSON text, which is parsed when the record is read. */
export class Records {
  readonly #database: DatabaseSync;
  readonly #clock: Clock;
  readonly #sql: ReturnType<typeof recordStatements>;
  /** The number of keys. It is kept up to date, because counting is slow. */
  keyCount = 0;

  constructor(database: DatabaseSync, clock: Clock) {
    this.#database = database;
    this.#clock = clock;
    this.#sql = recordStatements(database);
    this.countAnew();
  }

  read(record: RecordName): Fields | undefined {
    const row = this.#row(record);
    return row && JSON.parse(row.fields);
  }

  isEmpty(): boolean {
    return this.#database.prepare('SELECT 1 FROM records LIMIT 1').get() === undefined;
  }

  /** Call this after a change was undone. */
  countAnew(): void {
    this.keyCount = Number(this.#sql.count.get()?.n);
  }

  /** SQLite visits each key that it skips, so a page in the second half is read from the end. */
  listKeys(query: KeyListQuery): KeyCursor[] {
    const { offset = 0, limit, newestFirst = false } = query;
    if (offset <= this.keyCount / 2) return this.#list(query);
    const behind = this.keyCount - offset - limit;
    const fromEnd = { offset: Math.max(0, behind), limit: Math.max(0, limit + Math.min(0, behind)) };
    return this.#list({ ...fromEnd, newestFirst: !newestFirst }).reverse();
  }

  #list({ after, offset = 0, limit, newestFirst = false, withRevoked = false }: KeyListQuery): KeyCursor[] {
    const [beyond, order] = newestFirst ? ['<', 'DESC'] : ['>', 'ASC'];
    const statement = this.#database.prepare(`
      SELECT created, name FROM records INDEXED BY keys_by_creation
      WHERE created IS NOT NULL AND (expires IS NULL OR expires > ?)
      ${withRevoked ? '' : `AND kind = 'key'`} ${after ? `AND (created, name) ${beyond} (?, ?)` : ''}
      ORDER BY created ${order}, name ${order} LIMIT ? OFFSET ?`);
    const place = after ? [after.createdAt, after.id] : [];
    const rows = statement.all(this.#now(), ...place, limit, offset) as { created: number; name: string }[];
    return rows.map(({ created, name }) => ({ createdAt: created, id: name }));
  }

  isAsRequired({ record, exists, expect = {} }: Part): boolean {
    const fields = this.read(record);
    if (exists !== undefined && exists !== (fields !== undefined)) return false;
    return Object.entries(expect).every(([field, value]) => fieldOf(fields, field) === value);
  }

  apply({ record, set, moveTo }: Part): void {
    const row = this.#row(record);
    if (set !== undefined) this.#merge(record, row, set);
    if (moveTo !== undefined) this.#move(record, row, moveTo);
  }

  addToKey(id: string, changes: FieldChanges | undefined): void {
    const row = this.#row(`key:${id}`);
    if (row && changes) this.#sql.update.run(JSON.stringify({ ...JSON.parse(row.fields), ...changes }), 'key', id);
  }

  #merge(record: RecordName, row: Row | undefined, changes: FieldChanges): void {
    const fields = withChanges(row && JSON.parse(row.fields), changes);
    const [kind, name] = placeOf(record);
    const isEmpty = Object.keys(fields).length === 0;
    const created = kind === '' ? null : (readTime(fields.created_at) ?? 0) / SECOND;
    if (kind === 'key') this.keyCount += Number(!isEmpty) - Number(row !== undefined);
    if (isEmpty) this.#sql.remove.run(kind, name);
    else if (row !== undefined) this.#sql.update.run(JSON.stringify(fields), kind, name);
    else this.#sql.put.run(kind, name, created, null, JSON.stringify(fields));
  }

  /** A revoked key keeps its place in lists. If there was no key, the record gets no place. */
  #move(record: RecordName, row: Row | undefined, moveTo: NonNullable<Part['moveTo']>): void {
    const { record: target, fields, seconds, mark = 'revoked' } = moveTo;
    const left = Object.entries(this.read(record) ?? {}).filter(([field]) => fields.includes(field));
    this.#sql.purge.run(this.#now());
    if (row !== undefined && keyIdOf(record) !== undefined) this.keyCount -= 1;
    this.#sql.remove.run(...placeOf(record));
    const kept = JSON.stringify({ ...Object.fromEntries(left), [mark]: '1' });
    this.#sql.put.run(...placeOf(target), row?.created ?? null, this.#now() + seconds, kept);
  }

  #row(record: RecordName): Row | undefined {
    return this.#sql.select.get(...placeOf(record), this.#now()) as Row | undefined;
  }

  #now(): number {
    return this.#clock() / SECOND;
  }
}

const recordStatements = (database: DatabaseSync) => ({
  select: database.prepare(
    'SELECT created, fields FROM records WHERE kind = ? AND name = ? AND (expires IS NULL OR expires > ?)',
  ),
  put: database.prepare('INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?)'),
  update: database.prepare('UPDATE records SET fields = ? WHERE kind = ? AND name = ?'),
  remove: database.prepare('DELETE FROM records WHERE kind = ? AND name = ?'),
  purge: database.prepare(
    `DELETE FROM records WHERE rowid IN (SELECT rowid FROM records WHERE expires <= ? LIMIT ${PURGED})`,
  ),
  count: database.prepare(
    `SELECT count(*) AS n FROM records INDEXED BY keys_by_creation WHERE created IS NOT NULL AND kind = 'key'`,
  ),
});

function placeOf(record: RecordName): [kind: string, name: string] {
  const [, kind = '', name = record] = /^(key|revoked):(.*)$/s.exec(record) ?? [];
  return [kind, name];
}

const fieldOf = (fields: Fields | undefined, field: string): string | undefined =>
  fields !== undefined && Object.hasOwn(fields, field) ? fields[field] : undefined;

const NONE = { place: 0, ms: 0, seq: 0, fields: '{}' };

/** The number of old entries that are removed at once, which is more than one transaction adds. */
const FORGOTTEN = 300;
const NEVER_FORGOTTEN = 1_000;

/** The logs. Each new entry prunes its log to a fixed length. */
export class Log {
  readonly #lengths: LogLengths;
  readonly #sql: ReturnType<typeof logStatements>;

  constructor(database: DatabaseSync, lengths: LogLengths) {
    this.#lengths = lengths;
    this.#sql = logStatements(database);
  }

  /** Adds an entry, unless it repeats the newest entry about its target and that entry is recent. */
  add(entry: LogEntry): void {
    const { log, fields } = entry;
    if (canRepeat(entry) && this.#isRepeated(fields)) return;
    const [last = NONE] = this.#read(log, 1);
    const place = last.place + 1;
    const now = Date.now();
    const id = now > last.ms ? [now, 0] : [last.ms, last.seq + 1];
    const own = now < last.ms && { at: String(now) };
    this.#sql.add.run(log, place, ...id, JSON.stringify({ ...fields, ...own }));
    this.#sql.prune.run(log, place - this.#lengths[log]);
  }

  /** Removes old entries, but none of the newest thousand. */
  forgetOldest(log: LogName): void {
    const [{ place } = NONE] = this.#read(log, 1);
    const { place: oldest = place } = this.#sql.oldest.get(log) ?? {};
    this.#sql.prune.run(log, Math.min(Number(oldest) + FORGOTTEN, place - NEVER_FORGOTTEN));
  }

  #isRepeated(fields: Fields): boolean {
    for (const { fields: text, ms } of this.#read('audit', LOOKED_BACK)) {
      const { at = String(ms), ...before }: Fields = JSON.parse(text);
      if (before.target !== fields.target) continue;
      // A repetition may list no changes, because nothing was left to change.
      const { changes } = fields.changes === '[]' ? before : fields;
      const isSame = JSON.stringify({ ...fields, changes }) === JSON.stringify(before);
      return isSame && Math.abs(Date.now() - Number(at)) <= REPEATED_MS;
    }
    return false;
  }

  tail(log: LogName, { after, count }: TailQuery): LoggedEntry[] {
    const rows =
      after === undefined ? this.#read(log, count) : this.#sql.behind.all(log, ...after.split('-').map(Number), count);
    return (rows as (typeof NONE)[]).map(({ ms, seq, fields }) => [`${ms}-${seq}`, JSON.parse(fields)]);
  }

  #read(log: LogName, count: number) {
    return this.#sql.newest.all(log, count) as (typeof NONE)[];
  }
}

const logStatements = (database: DatabaseSync) => ({
  add: database.prepare('INSERT INTO log (log, place, ms, seq, fields) VALUES (?, ?, ?, ?, ?)'),
  prune: database.prepare('DELETE FROM log WHERE log = ? AND place <= ?'),
  newest: database.prepare('SELECT * FROM log WHERE log = ? ORDER BY place DESC LIMIT ?'),
  oldest: database.prepare('SELECT place FROM log WHERE log = ? ORDER BY place LIMIT 1'),
  behind: database.prepare('SELECT * FROM log WHERE log = ? AND (ms, seq) < (?, ?) ORDER BY ms DESC, seq DESC LIMIT ?'),
});
