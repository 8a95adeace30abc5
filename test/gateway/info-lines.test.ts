import { expect, test } from 'vitest';
import { type Logger, loggerTo, logInfoLine } from '../../shared/process/logger.ts';

/** Lines of requests are written past pino. They must be the lines that pino writes. */

const FIELDS: readonly [what: string, fields: object][] = [
  ['a usual request', { requestId: 'a-b', status: 200, code: undefined, path: '/v1/pets', durationMs: 1.5 }],
  ['no fields', {}],
  ['quotes and line ends', { path: '/v1/"pets"\\\n\r\t\u0000\u001f\u007f\u2028' }],
  ['what is not ASCII', { path: '/ä/猫/🐈' }],
  ['numbers that JSON does not have', { durationMs: Number.NaN, bytes: Number.POSITIVE_INFINITY }],
  ['null and booleans', { code: null, isLate: false }],
];

function written(write: (logger: Logger) => void, level: 'info' | 'warn'): string[] {
  const lines: string[] = [];
  const logger = loggerTo({ write: (line) => void lines.push(line) }, { service: 'gateway', worker: undefined }, level);
  write(logger);
  return lines.map((line) => line.replace(/"time":"[^"]+"/, '"time":""'));
}

test.for(FIELDS)('the log line of %s is the one that pino writes', ([, fields]) => {
  const own = written((logger) => logInfoLine(logger, fields, 'request'), 'info');
  expect(own).toEqual(written((logger) => logger.info(fields, 'request'), 'info'));
  expect(own).toHaveLength(1);
});

test('no info line is written at a higher level', () => {
  expect(written((logger) => logInfoLine(logger, {}, 'request'), 'warn')).toEqual([]);
});
