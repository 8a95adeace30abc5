import { pino } from 'pino';
import type { Logger } from '../../shared/process/logger.ts';

export type LogLine = Record<string, unknown> & { level: number; msg: string };

/** A log that a test can read. */
export function readableLog(): { logger: Logger; lines: LogLine[]; text: () => string } {
  const lines: LogLine[] = [];
  const logger = pino({ level: 'trace' }, { write: (line: string) => void lines.push(JSON.parse(line)) });
  return { logger, lines, text: () => JSON.stringify(lines) };
}

/** Parses a growing log, except an incomplete last line. Fails if a line is invalid. */
export function parsedLines(out: () => string): () => LogLine[] {
  const lines: LogLine[] = [];
  let read = 0;
  return () => {
    const text = out();
    for (let end = text.indexOf('\n', read); end !== -1; end = text.indexOf('\n', read)) {
      lines.push(JSON.parse(text.slice(read, end)) as LogLine);
      read = end + 1;
    }
    return lines;
  };
}
