import { type Level, type Logger, pino } from 'pino';

export type { Logger };

/**
 * Lines leave together, at so many characters and at the latest after so long: a write wakes two threads, which costs more
 * than ten lines.
 */
const MIN_CHARACTERS = 32_768;
const FLUSH_EVERY_MS = 500;

/**
 * The service's log: JSON lines on standard output, written in the background so that a slow reader never holds up a
 * request, and flushed when the process ends; kill -9 costs the last half second. Callers log named fields only, never a
 * whole request: no header, no key.
 */
export function createLogger(service: string, level: Level | 'silent'): Logger {
  const lines = new JoinedLines();
  setInterval(() => lines.flush(), FLUSH_EVERY_MS).unref();
  process.once('exit', () => lines.flushSync());
  return pino({ level, base: { service }, timestamp: pino.stdTimeFunctions.isoTime }, lines);
}

/** Joins lines before they reach pino's destination, which would count its whole buffer anew with every one of them. */
class JoinedLines {
  readonly #destination = pino.destination({ fd: 1, sync: false });
  #waiting = '';

  write(line: string): void {
    this.#waiting += line;
    if (this.#waiting.length >= MIN_CHARACTERS) this.flush();
  }

  flush(): void {
    if (this.#waiting === '') return;
    this.#destination.write(this.#waiting);
    this.#waiting = '';
  }

  flushSync(): void {
    this.flush();
    try {
      this.#destination.flushSync();
    } catch {
      // The reader went away, or nothing was ever written: there is nobody left to tell.
    }
  }
}
