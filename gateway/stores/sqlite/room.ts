import { randomBytes } from 'node:crypto';
import { closeSync, fstatSync, fsyncSync, ftruncateSync, openSync, rmSync, statfsSync, writeSync } from 'node:fs';
import { dirname } from 'node:path';
import { sentenceOf } from './faults.ts';

const RESERVED_BYTES = 1_048_576;
/** What must be free besides, for the disk to count as not full. */
const SPARE_BYTES = 262_144;
const CHUNK_BYTES = 65_536;

/**
 * Room on the disk for the changes that must be possible on a full one. It is held by a file of random bytes, which no
 * file system can compress or leave out.
 */
export class Room {
  readonly #path: string;

  constructor(path: string) {
    this.#path = path;
  }

  /**
   * Takes the room, or as much of it as there is.
   * @returns why not, if the disk is full or cannot be written; undefined if there is room to spare
   */
  hold(): string | undefined {
    try {
      const file = openSync(this.#path, 'a', 0o600);
      try {
        append(file, RESERVED_BYTES + SPARE_BYTES - fstatSync(file).size);
        // Some file systems find out only then that there is no room.
        fsyncSync(file);
      } finally {
        if (fstatSync(file).size > RESERVED_BYTES) ftruncateSync(file, RESERVED_BYTES);
        closeSync(file);
      }
      return undefined;
    } catch (fault) {
      return sentenceOf(fault);
    }
  }

  /** Free bytes of the disk. */
  available(): number {
    const { bavail, bsize } = statfsSync(dirname(this.#path));
    return bavail * bsize;
  }

  /** A file that cannot be removed leaves the disk full, and the next write says so. */
  giveBack(): void {
    try {
      rmSync(this.#path, { force: true });
    } catch {}
  }
}

function append(file: number, bytes: number): void {
  for (let left = bytes; left > 0; ) left -= writeSync(file, randomBytes(Math.min(left, CHUNK_BYTES)));
}
