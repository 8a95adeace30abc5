import fs from 'node:fs';
import net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/** Lines leave together, at so many characters and at the latest after so long: a system call costs more than ten lines. */
const TOGETHER_CHARACTERS = 32_768;
const FLUSH_EVERY_MS = 500;

/** What may wait for a slow reader, in bytes: some 12,000 lines. */
const MAX_WAITING_BYTES = 4_194_304;

/** Several processes may write to one pipe: up to PIPE_BUF, which is 4,096 bytes, a write is one piece (pipe(7)). */
const PIPE_BUF = 4_096;

const FIRST_PAUSE_MS = 1;
const LONGEST_PAUSE_MS = 128;
const NEWLINE = 10;
const NOTHING = Buffer.alloc(0);

/**
 * Lines of text to a file, pipe or socket that is open already. A reader that is slow, or stands still, holds up nobody: lines
 * wait up to a bound, and beyond it they are dropped and counted. Writing goes on where it stopped, so no line is torn; a
 * write that fails is tried again, since disks are emptied and readers come back.
 */
export class LogOutput {
  readonly #target: Target;
  /** Told how many lines were dropped, once there is room again. */
  readonly #onDropped: (lines: number) => void;
  /** Lines that are not bytes yet. */
  #lines = '';
  /** Behind those under way; whole lines. */
  #chunks: Buffer[] = [];
  #underWay: Buffer = NOTHING;
  /** Of the chunks and of what is under way. */
  #bytes = 0;
  #untold = 0;
  #dropped = 0;
  #isTelling = false;
  #isWriting = false;
  #whenWritten: (() => void)[] = [];

  constructor(fd: number, onDropped: (lines: number) => void) {
    this.#target = targetOf(fd);
    this.#onDropped = onDropped;
    setInterval(() => this.flush(), FLUSH_EVERY_MS).unref();
  }

  /** How many lines were dropped so far. */
  get dropped(): number {
    return this.#dropped;
  }

  /** @param line with its line end */
  write(line: string): void {
    const isOver = this.#bytes + this.#lines.length + line.length > MAX_WAITING_BYTES;
    if (isOver && !this.#isTelling) {
      this.#dropped += 1;
      this.#untold += 1;
      return;
    }
    this.#lines += line;
    if (this.#lines.length < TOGETHER_CHARACTERS) return;
    this.#seal();
    void this.#writeAll();
  }

  /** @param done called when all that was there has been written */
  flush(done?: () => void): void {
    this.#seal();
    if (done !== undefined) this.#whenWritten.push(done);
    void this.#writeAll();
  }

  /** Writes what can be written at once: for the end of the process. */
  flushSync(): void {
    this.#seal();
    // What a thread is writing already is written before the process ends.
    if (this.#isWriting && this.#target.isFile) this.#underWay = NOTHING;
    try {
      while (this.#next()) this.#wrote(fs.writeSync(this.#target.fd, this.#piece()));
    } catch {
      // The reader stands still or went away: there is nobody left to tell.
    }
  }

  async #writeAll(): Promise<void> {
    if (this.#isWriting) return;
    this.#isWriting = true;
    let pauseMs = FIRST_PAUSE_MS;
    while (this.#next()) {
      try {
        const written = this.#target.write(this.#piece());
        this.#wrote(typeof written === 'number' ? written : await written);
        pauseMs = FIRST_PAUSE_MS;
      } catch {
        await sleep(pauseMs, undefined, { ref: false });
        pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS);
      }
    }
    this.#isWriting = false;
    for (const done of this.#whenWritten.splice(0)) done();
  }

  /** Sees to it that there is something under way; false where nothing is left. */
  #next(): boolean {
    if (this.#underWay.length > 0) return true;
    if (this.#untold > 0) this.#tell();
    const [only = NOTHING, ...more] = this.#chunks;
    this.#underWay = more.length === 0 ? only : Buffer.concat(this.#chunks);
    this.#chunks = [];
    return this.#underWay.length > 0;
  }

  /** Behind all that was there before lines were dropped. */
  #tell(): void {
    const lines = this.#untold;
    this.#untold = 0;
    this.#isTelling = true;
    this.#onDropped(lines);
    this.#isTelling = false;
    this.#seal();
  }

  /** What the next write takes: everything, but whole lines of PIPE_BUF at the most where others may write too. */
  #piece(): Buffer {
    const all = this.#underWay;
    if (this.#target.isFile || all.length <= PIPE_BUF) return all;
    const last = all.lastIndexOf(NEWLINE, PIPE_BUF - 1);
    return all.subarray(0, (last === -1 ? all.indexOf(NEWLINE) : last) + 1);
  }

  #wrote(bytes: number): void {
    this.#underWay = this.#underWay.subarray(bytes);
    this.#bytes -= bytes;
  }

  #seal(): void {
    if (this.#lines === '') return;
    const chunk = Buffer.from(this.#lines);
    this.#lines = '';
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
  }
}

interface Target {
  readonly fd: number;
  /** A file takes a write of any size in one piece. */
  readonly isFile: boolean;
  /** How many bytes it has taken. @throws when it takes none now */
  write(bytes: Buffer): number | Promise<number>;
}

/**
 * A file is written in the background, as a disk may take its time. Anything else must refuse at once what it cannot take: a
 * thread that waits for a reader would keep the process from ending.
 */
function targetOf(fd: number): Target {
  if (fs.fstatSync(fd).isFile()) return { fd, isFile: true, write: (bytes) => writeFile(fd, bytes) };
  const own = nonBlocking(fd);
  return { fd: own, isFile: false, write: (bytes) => fs.writeSync(own, bytes) };
}

function writeFile(fd: number, bytes: Buffer): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  fs.write(fd, bytes, (fault, written) => (fault === null ? resolve(written) : reject(fault)));
  return promise;
}

const { O_WRONLY, O_NONBLOCK, O_NOCTTY } = fs.constants;

/** The same pipe or terminal opened anew, since others that have it open must not notice; a socket cannot be. */
function nonBlocking(fd: number): number {
  try {
    return fs.openSync(`/proc/self/fd/${fd}`, O_WRONLY | O_NONBLOCK | O_NOCTTY);
  } catch {
    return madeNonBlocking(fd);
  }
}

/** As node:net makes it. A terminal of somebody else's stays as it is, as it does for Node. */
function madeNonBlocking(fd: number): number {
  try {
    new net.Socket({ fd, readable: false, writable: true }).unref();
  } catch {
    // Neither a pipe nor a socket.
  }
  return fd;
}
