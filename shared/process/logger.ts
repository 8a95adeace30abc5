import fs from 'node:fs';
import net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { type DestinationStream, type Level, type Logger, pino } from 'pino';
import type { Family } from './counts.ts';
import { logDescriptor } from './log-descriptor.ts';
import { every } from './repeat.ts';

export type { Logger };

const INFO = pino.levels.values.info;

let output: LogOutput | undefined;

/**
 * The service's log: JSON lines on standard output. A slow reader never blocks a request or process exit, and the
 * memory for waiting lines is limited. kill -9 loses the waiting lines: with a fast reader, the last half second.
 * Callers log named fields only. They never log a whole request, a header or a key.
 * @param worker the number of this process among several of the service
 */
export function createLogger(service: string, level: Level | 'silent', worker?: number): Logger {
  const destination = new LogOutput(logDescriptor, (lines) => logger.error({ lines }, 'log lines dropped'));
  const logger = loggerTo(destination, { service, worker }, level);
  process.once('exit', () => destination.flushSync());
  output = destination;
  return logger;
}

/** @param base the fields of every line */
export const loggerTo = (destination: DestinationStream, base: object, level: Level | 'silent'): Logger =>
  pino({ level, base, timestamp: isoTime }, destination);

/** The members of a pino logger under pino's symbols: its destination, and the parts that all its lines share. */
interface Parts {
  readonly [pino.symbols.streamSym]: DestinationStream;
  readonly [pino.symbols.timeSym]: () => string;
  readonly [pino.symbols.chindingsSym]: string;
}

/**
 * Writes the same line as pino at level info, for half to two thirds of the cost (`node test/bench/steps.ts`). Every
 * request has such a line.
 * @param fields plain values, but no errors
 */
export function logInfoLine(logger: Logger, fields: object, message: string): void {
  if (!logger.isLevelEnabled('info')) return;
  const {
    [pino.symbols.streamSym]: destination,
    [pino.symbols.timeSym]: time,
    [pino.symbols.chindingsSym]: base,
  } = logger as unknown as Parts;
  const text = JSON.stringify(fields).slice(1, -1);
  const separator = text === '' ? '' : ',';
  destination.write(`{"level":${INFO}${time()}${base}${separator}${text},"msg":${JSON.stringify(message)}}\n`);
}

/** The number of dropped lines of this process's log, as a metric. */
export const droppedLines = (service: 'gateway' | 'core'): Family => ({
  name: `${service}_log_lines_dropped_total`,
  help: 'Log lines lost because the reader of the log was too slow.',
  type: 'counter',
  values: [{ labels: {}, value: output?.dropped ?? 0 }],
});

let writtenAt = 0;
let written = '';

/** Formats like pino, but only once per millisecond. */
function isoTime(): string {
  const now = Date.now();
  if (now !== writtenAt) {
    writtenAt = now;
    written = `,"time":"${new Date(now).toISOString()}"`;
  }
  return written;
}

/**
 * Lines are collected, and written once they have this length, or after this time: one system call costs more than ten
 * lines.
 */
const TOGETHER_CHARACTERS = 32_768;
const FLUSH_EVERY_MS = 500;

/** The length of the lines that may wait for a slow reader: about 12,000 lines. */
const MAX_WAITING = 4_194_304;

/** Several processes may write to one pipe. Writes of up to PIPE_BUF = 4,096 bytes are atomic (pipe(7)). */
const PIPE_BUF = 4_096;

const FIRST_PAUSE_MS = 1;
const LONGEST_PAUSE_MS = 128;
const NEWLINE = 10;
const NOTHING = Buffer.alloc(0);

/** Files are written in the background, because a disk may be slow. */
const writeInBackground = promisify(fs.write);

/**
 * Writes lines of text to an open file, pipe or socket. A slow or stopped reader blocks nobody: lines wait up to a
 * limit, and further lines are dropped and counted. A partial write continues where it stopped, so no line is torn. A
 * failed write is retried, because disk space can be freed and a reader can return.
 */
class LogOutput {
  readonly #fd: number;
  /** Whether it is a file, which accepts a write of any size in one piece. */
  readonly #isFile: boolean;
  /** Called with the number of dropped lines once there is room again. */
  readonly #onDropped: (lines: number) => void;
  /** The lines that are written after #underWay. */
  #lines = '';
  #underWay: Buffer = NOTHING;
  #unreported = 0;
  #dropped = 0;
  #isReporting = false;
  #isWriting = false;
  #whenWritten: (() => void)[] = [];

  constructor(fd: number, onDropped: (lines: number) => void) {
    this.#isFile = fs.fstatSync(fd).isFile();
    this.#fd = this.#isFile ? fd : nonBlocking(fd);
    this.#onDropped = onDropped;
    every(FLUSH_EVERY_MS, () => this.flush());
  }

  get dropped(): number {
    return this.#dropped;
  }

  /** @param line ends with a line feed */
  write(line: string): void {
    const isOver = this.#underWay.length + this.#lines.length + line.length > MAX_WAITING;
    if (isOver && !this.#isReporting) {
      this.#dropped += 1;
      this.#unreported += 1;
      return;
    }
    this.#lines += line;
    if (this.#lines.length >= TOGETHER_CHARACTERS && !this.#isReporting) void this.#writeAll();
  }

  /** @param done called when all current lines have been written */
  flush(done?: () => void): void {
    if (done !== undefined) this.#whenWritten.push(done);
    void this.#writeAll();
  }

  /** Writes as much as possible without waiting, when the process exits. */
  flushSync(): void {
    // A write that a thread has begun completes before the process exits.
    if (this.#isWriting && this.#isFile) this.#underWay = NOTHING;
    try {
      while (this.#next()) this.#wrote(fs.writeSync(this.#fd, this.#piece()));
    } catch {
      // The reader is stuck or gone, so nobody can be informed.
    }
  }

  async #writeAll(): Promise<void> {
    if (this.#isWriting) return;
    this.#isWriting = true;
    let pauseMs = FIRST_PAUSE_MS;
    while (this.#next()) {
      try {
        const bytes = this.#piece();
        this.#wrote(
          this.#isFile ? (await writeInBackground(this.#fd, bytes)).bytesWritten : fs.writeSync(this.#fd, bytes),
        );
        pauseMs = FIRST_PAUSE_MS;
      } catch {
        await sleep(pauseMs, undefined, { ref: false });
        pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS);
      }
    }
    this.#isWriting = false;
    for (const done of this.#whenWritten.splice(0)) done();
  }

  /** Starts the next write unless one is in progress. Returns false if nothing is left. */
  #next(): boolean {
    if (this.#underWay.length > 0) return true;
    if (this.#unreported > 0) this.#reportDropped();
    this.#underWay = Buffer.from(this.#lines);
    this.#lines = '';
    return this.#underWay.length > 0;
  }

  /** Reports dropped lines after all lines before them. */
  #reportDropped(): void {
    const lines = this.#unreported;
    this.#unreported = 0;
    this.#isReporting = true;
    this.#onDropped(lines);
    this.#isReporting = false;
  }

  /**
   * The bytes of the next write: all for a file, otherwise whole lines of at most PIPE_BUF, because other processes may
   * write too.
   */
  #piece(): Buffer {
    const all = this.#underWay;
    if (this.#isFile || all.length <= PIPE_BUF) return all;
    const last = all.lastIndexOf(NEWLINE, PIPE_BUF - 1);
    return all.subarray(0, (last === -1 ? all.indexOf(NEWLINE) : last) + 1);
  }

  #wrote(bytes: number): void {
    this.#underWay = this.#underWay.subarray(bytes);
  }
}

const { O_WRONLY, O_NONBLOCK, O_NOCTTY } = fs.constants;

/**
 * Makes anything but a file non-blocking, because a thread that waits for a reader would keep the process alive. It
 * reopens the pipe or terminal, so that the descriptors of other processes stay blocking.
 */
function nonBlocking(fd: number): number {
  try {
    return fs.openSync(`/proc/self/fd/${fd}`, O_WRONLY | O_NONBLOCK | O_NOCTTY);
  } catch {
    // A socket cannot be reopened.
  }
  try {
    // node:net makes a pipe or socket non-blocking. A terminal that cannot be reopened stays blocking, as in Node.
    new net.Socket({ fd, readable: false, writable: true }).unref();
  } catch {
    // The target is neither a pipe nor a socket.
  }
  return fd;
}
