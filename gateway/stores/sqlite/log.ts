import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { canRepeat, LOOKED_BACK, REPEATED_MS } from '../audit.ts';
import type { Fields, LogEntry, LoggedEntry, LogName, TailQuery } from '../storage.ts';

interface Row {
  readonly place: number;
  readonly ms: number;
  readonly seq: number;
  readonly fields: string;
}

const NONE: Row = { place: 0, ms: 0, seq: 0, fields: '{}' };

/** The logs. Each new entry prunes its log to the length that it keeps. */
export class Log {
  readonly #lengths: Readonly<Record<LogName, number>>;
  readonly #add: StatementSync;
  readonly #prune: StatementSync;
  readonly #newest: StatementSync;
  readonly #behind: StatementSync;

  constructor(database: DatabaseSync, lengths: Readonly<Record<LogName, number>>) {
    this.#lengths = lengths;
    this.#add = database.prepare('INSERT INTO log (log, place, ms, seq, fields) VALUES (?, ?, ?, ?, ?)');
    this.#prune = database.prepare('DELETE FROM log WHERE log = ? AND place <= ?');
    this.#newest = database.prepare('SELECT * FROM log WHERE log = ? ORDER BY place DESC LIMIT ?');
    this.#behind = database.prepare(
      'SELECT * FROM log WHERE log = ? AND (ms, seq) < (?, ?) ORDER BY ms DESC, seq DESC LIMIT ?',
    );
  }

  /** Adds an entry, unless it soon repeats the newest one about its target. */
  add(entry: LogEntry): void {
    const { log, fields } = entry;
    if (canRepeat(entry) && this.#isRepeated(fields)) return;
    const [last = NONE] = this.#read(log, 1);
    const place = last.place + 1;
    const now = Date.now();
    const id = now > last.ms ? [now, 0] : [last.ms, last.seq + 1];
    this.#add.run(log, place, ...id, JSON.stringify(fields));
    this.#prune.run(log, place - this.#lengths[log]);
  }

  #isRepeated(fields: Fields): boolean {
    for (const { fields: text, ms } of this.#read('audit', LOOKED_BACK)) {
      const before: Fields = JSON.parse(text);
      if (before.target !== fields.target) continue;
      // A repetition may list no changes, because nothing was left to change.
      const { changes } = fields.changes === '[]' ? before : fields;
      return JSON.stringify({ ...fields, changes }) === text && Date.now() - ms <= REPEATED_MS;
    }
    return false;
  }

  tail(log: LogName, { after, count }: TailQuery): LoggedEntry[] {
    const rows =
      after === undefined ? this.#read(log, count) : this.#behind.all(log, ...after.split('-').map(Number), count);
    return (rows as unknown as Row[]).map(({ ms, seq, fields }) => [`${ms}-${seq}`, JSON.parse(fields)]);
  }

  #read(log: LogName, count: number): Row[] {
    return this.#newest.all(log, count) as unknown as Row[];
  }
}
