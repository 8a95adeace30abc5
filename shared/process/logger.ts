import { type DestinationStream, type Level, type Logger, pino } from 'pino';
import type { Family } from './counts.ts';
import { LogOutput } from './log-output.ts';

export type { Logger };

const STANDARD_OUTPUT = 1;
const INFO = pino.levels.values.info;

let output: LogOutput | undefined;

/**
 * The service's log: JSON lines on standard output. A slow reader never blocks a request or the end of the process, and
 * the waiting lines are limited. kill -9 loses the waiting lines, which with a fast reader are those of the last half
 * second. Callers log named fields only. They never log a whole request, a header or a key.
 * @param worker the number of this process among several of the service
 */
export function createLogger(service: string, level: Level | 'silent', worker?: number): Logger {
  const destination = new LogOutput(STANDARD_OUTPUT, (lines) => logger.error({ lines }, 'log lines dropped'));
  const logger = loggerTo(destination, { service, worker }, level);
  process.once('exit', () => destination.flushSync());
  output = destination;
  return logger;
}

type InfoLine = (fields: object, message: string) => void;

const infoLines = new WeakMap<Logger, InfoLine>();

/** @param base fields of every line */
export function loggerTo(destination: DestinationStream, base: object, level: Level | 'silent'): Logger {
  const logger = pino({ level, base, timestamp: isoTime }, destination);
  const baseText = JSON.stringify(base).slice(1, -1);
  infoLines.set(logger, (fields, message) => {
    if (!logger.isLevelEnabled('info')) return;
    const text = JSON.stringify(fields).slice(1, -1);
    const separator = text === '' ? '' : ',';
    destination.write(
      `{"level":${INFO}${isoTime()},${baseText}${separator}${text},"msg":${JSON.stringify(message)}}\n`,
    );
  });
  return logger;
}

/**
 * Writes the same line as pino at level info, for half to two thirds of the cost (`node test/bench/steps.ts`). Every
 * request has such a line.
 * @param fields plain values, but no errors
 */
export function logInfoLine(logger: Logger, fields: object, message: string): void {
  const write = infoLines.get(logger);
  if (write === undefined) logger.info(fields, message);
  else write(fields, message);
}

/** The number of dropped lines of this process's log, as a metric. */
export const droppedLines = (service: 'gateway' | 'core'): Family => ({
  name: `${service}_log_lines_dropped_total`,
  help: 'Lines that the log has lost, because its reader was too slow.',
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
