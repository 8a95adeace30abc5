import { type Level, type Logger, pino } from 'pino';
import type { Family } from './counts.ts';
import { LogOutput } from './log-output.ts';

export type { Logger };

const STANDARD_OUTPUT = 1;

let output: LogOutput | undefined;

/**
 * The service's log: JSON lines on standard output. A slow reader never holds up a request, nor the end of the process; what
 * it leaves waiting is bounded. kill -9 costs what waits: with a reader that keeps up, the last half second. Callers log named
 * fields only, never a whole request: no header, no key.
 * @param worker which of several processes of the service this is
 */
export function createLogger(service: string, level: Level | 'silent', worker?: number): Logger {
  const destination = new LogOutput(STANDARD_OUTPUT, (lines) => logger.error({ lines }, 'log lines dropped'));
  const logger = pino({ level, base: { service, worker }, timestamp: isoTime }, destination);
  process.once('exit', () => destination.flushSync());
  output = destination;
  return logger;
}

/** How many lines of this process's log were dropped, as a metric of the service. */
export const droppedLines = (service: 'gateway' | 'core'): Family => ({
  name: `${service}_log_lines_dropped_total`,
  help: 'Lines that the log has lost, because its reader was too slow.',
  type: 'counter',
  values: [{ labels: {}, value: output?.dropped ?? 0 }],
});

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
