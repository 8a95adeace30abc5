import { statSync } from 'node:fs';

/** What the name of a database's write-ahead log adds to that of its file (sqlite.org/wal.html). */
export const WAL = '-wal';

/** The file of an open SQLite database, and its write-ahead log. */
export class DatabaseFile {
  readonly #path: string | null;
  readonly #inodes: string;

  /** @param path of a database that already has a log; null for one in memory */
  constructor(path: string | null) {
    this.#path = path;
    this.#inodes = this.#inodesNow();
  }

  /** Whether either was removed or replaced: changes would be written to a file that nobody can find again. */
  get isGone(): boolean {
    return this.#inodesNow() !== this.#inodes;
  }

  #inodesNow(): string {
    if (this.#path === null) return '';
    return [this.#path, this.#path + WAL].map((file) => statSync(file, { throwIfNoEntry: false })?.ino).join();
  }
}
