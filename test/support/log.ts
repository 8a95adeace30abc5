import { pino } from 'pino';
import type { Logger } from '../../shared/logger.ts';

export type LogLine = Record<string, unknown> & { level: number; msg: string };

/** A log that a test can read. */
export function readableLog(): { logger: Logger; lines: LogLine[]; text: () => string } {
  const lines: LogLine[] = [];
  const logger = pino({ level: 'trace' }, { write: (line: string) => void lines.push(JSON.parse(line)) });
  return { logger, lines, text: () => JSON.stringify(lines) };
}
