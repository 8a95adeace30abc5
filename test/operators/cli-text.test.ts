import { stripVTControlCharacters } from 'node:util';
import { expect, test } from 'vitest';
import { table } from '../../gateway/operators/cli/table.ts';
import { preciseTimeText, timeText } from '../../gateway/operators/cli/time-text.ts';
import { lengthText, seconds } from '../../gateway/operators/cli/values.ts';

/** How the command line reads and writes values. */

test.for([
  ['0', 0],
  ['90s', 90],
  ['15m', 900],
  ['24h', 86_400],
  ['7d', 604_800],
] as const)('the length %s is %i seconds', ([text, length]) => {
  expect(seconds(text)).toBe(length);
});

test.for([
  ['24', 'It needs a unit: 24s, 24m, 24h or 24d.'],
  ['1', 'It needs a unit: 1s, 1m, 1h or 1d.'],
  ['1.5h', 'It must be a length of time'],
  ['-1h', 'It must be a length of time'],
  ['1w', 'It must be a length of time'],
  ['', 'It must be a length of time'],
] as const)('the length "%s" is refused', ([text, message]) => {
  expect(() => seconds(text)).toThrow(message);
});

test.for([
  [1, '1 second'],
  [90, '90 seconds'],
  [900, '15 minutes'],
  [3_600, '1 hour'],
  [86_400, '1 day'],
  [604_800, '7 days'],
] as const)('%i seconds are told as %s', ([length, text]) => {
  expect(lengthText(length)).toBe(text);
});

test('times are local on a terminal, and unchanged in a pipe', () => {
  const time = new Date(2026, 10, 20, 22, 34, 6, 123).toISOString().replace('Z', '456Z');
  expect(timeText(time, { isTTY: true })).toBe('2026-11-20 22:34:06');
  expect(preciseTimeText(time, { isTTY: true })).toBe('2026-11-20 22:34:06.123');
  expect([timeText(time, {}), preciseTimeText(time, { isTTY: false })]).toEqual([time, time]);
});

test('wide characters take two columns', () => {
  const lines = table(
    ['name', 'plan'],
    [
      ['北京动物园', 'free'],
      ['ﾊﾝｶｸ', 'pro'],
      ['acme zoo', 'free'],
    ],
  ).split('\n');
  expect(lines.map(stripVTControlCharacters)).toEqual([
    'name        plan',
    '北京动物园  free',
    'ﾊﾝｶｸ        pro',
    'acme zoo    free',
  ]);
});
