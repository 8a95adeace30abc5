import { type Level, type Logger, pino } from 'pino';

export type { Logger };

/**
 * Lines leave together: at so many bytes, and at the latest after so long. A write for each would cost as much as the line;
 * so would a larger buffer, whose length pino's destination counts anew with every line.
 */
const MIN_BYTES = 4_096;
const FLUSH_EVERY_MS = 500;

/**
 * The service's log: JSON lines on standard output, written in the background so that a slow reader never holds up a
 * request, and flushed when the process ends; kill -9 costs the last half second. Callers log named fields only, never a
 * whole request: no header, no key.
 */
export function createLogger(service: string, level: Level | 'silent'): Logger {
  const destination = pino.destination({ fd: 1, sync: false, minLength: MIN_BYTES });
  setInterval(() => destination.flush(), FLUSH_EVERY_MS).unref();
  process.once('exit', () => flush(destination));
  return pino({ level, base: { service }, timestamp: pino.stdTimeFunctions.isoTime }, destination);
}

function flush(destination: ReturnType<typeof pino.destination>): void {
  try {
    destination.flushSync();
  } catch {
    // The reader went away, or nothing was ever written: there is nobody left to tell.
  }
}
