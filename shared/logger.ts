import { type Level, type Logger, pino } from 'pino';

export type { Logger };

/**
 * Lines leave together, at so many characters and at the latest after so long: a write wakes two threads, which costs more
 * than ten lines.
 */
const MIN_CHARACTERS = 32_768;
/** Where several processes write to one pipe: up to PIPE_BUF, which is 4,096 bytes, a write is one piece (pipe(7)). */
const SHARED_MIN_CHARACTERS = 3_072;
const PIPE_BUF = 4_096;
const FLUSH_EVERY_MS = 500;

/**
 * The service's log: JSON lines on standard output, written in the background so that a slow reader never holds up a
 * request, and flushed when the process ends; kill -9 costs the last half second. Callers log named fields only, never a
 * whole request: no header, no key.
 * @param worker which of several processes of the service this is
 * @param isShared whether those write to the same output
 */
export function createLogger(
  service: string,
  level: Level | 'silent',
  { worker, isShared = false }: { worker?: number | undefined; isShared?: boolean } = {},
): Logger {
  const destination = !isShared
    ? new JoinedLines()
    : pino.destination({ fd: 1, sync: false, minLength: SHARED_MIN_CHARACTERS, maxWrite: PIPE_BUF });
  setInterval(() => destination.flush(), FLUSH_EVERY_MS).unref();
  process.once('exit', () => flushAtExit(destination));
  return pino({ level, base: { service, worker }, timestamp: isoTime }, destination);
}

let writtenAt = 0;
let written = '';

/** As pino's own, made once for all lines of a millisecond. */
function isoTime(): string {
  const now = Date.now();
  if (now !== writtenAt) {
    writtenAt = now;
    written = `,"time":"${new Date(now).toISOString()}"`;
  }
  return written;
}

/** Joins lines before they reach pino's destination, which would count its whole buffer anew with every one of them. */
class JoinedLines {
  readonly #destination = pino.destination({ fd: 1, sync: false });
  #waiting = '';

  write(line: string): void {
    this.#waiting += line;
    if (this.#waiting.length >= MIN_CHARACTERS) this.#pass();
  }

  /** @param done called when all has been written */
  flush(done?: (fault?: Error | null) => void): void {
    this.#pass();
    this.#destination.flush(done);
  }

  flushSync(): void {
    this.#pass();
    this.#destination.flushSync();
  }

  #pass(): void {
    if (this.#waiting === '') return;
    this.#destination.write(this.#waiting);
    this.#waiting = '';
  }
}

function flushAtExit(destination: { flushSync(): void }): void {
  try {
    destination.flushSync();
  } catch {
    // The reader went away, or nothing was ever written: there is nobody left to tell.
  }
}
