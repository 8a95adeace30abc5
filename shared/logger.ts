import { type Level, type Logger, pino } from 'pino';

export type { Logger };

/**
 * The service's log: JSON lines on standard output, written in the background so that a slow reader never holds up a
 * request, and flushed when the process ends. Callers log named fields only, never a whole request: no header, no key.
 */
export function createLogger(service: string, level: Level | 'silent'): Logger {
  const destination = pino.destination({ fd: 1, sync: false });
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
