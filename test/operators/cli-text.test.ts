import { stripVTControlCharacters } from 'node:util';
import { afterEach, expect, test, vi } from 'vitest';
import { preciseTimeText, table, timeText } from '../../gateway/operators/cli/text.ts';
import { lengthText, seconds, time } from '../../gateway/operators/cli/values.ts';

/** How the command line reads and writes values. */

afterEach(() => vi.unstubAllEnvs());

test.for([
  ['0', 0],
  ['90s', 90],
  ['15m', 900],
  ['24h', 86_400],
  ['7d', 604_800],
] as const)('the duration %s is %i seconds', ([text, length]) => {
  expect(seconds(text)).toBe(length);
});

test.for([
  ['24', 'It needs a unit: 24s, 24m, 24h or 24d.'],
  ['1', 'It needs a unit: 1s, 1m, 1h or 1d.'],
  ['1.5h', 'It must be a duration'],
  ['-1h', 'It must be a duration'],
  ['1w', 'It must be a duration'],
  ['', 'It must be a duration'],
] as const)('the duration "%s" is refused', ([text, message]) => {
  expect(() => seconds(text)).toThrow(message);
});

test.for([
  [1, '1 second'],
  [90, '90 seconds'],
  [900, '15 minutes'],
  [3_600, '1 hour'],
  [86_400, '1 day'],
  [604_800, '7 days'],
] as const)('%i seconds are shown as %s', ([length, text]) => {
  expect(lengthText(length)).toBe(text);
});

const TIME = '2026-11-20T22:34:06.123456Z';

test.for([
  ['UTC', '2026-11-20 22:34:06 +00:00', '2026-11-20 22:34:06.123 +00:00'],
  ['Europe/Berlin', '2026-11-20 23:34:06 +01:00', '2026-11-20 23:34:06.123 +01:00'],
  ['Asia/Kathmandu', '2026-11-21 04:19:06 +05:45', '2026-11-21 04:19:06.123 +05:45'],
  ['America/St_Johns', '2026-11-20 19:04:06 -03:30', '2026-11-20 19:04:06.123 -03:30'],
] as const)('on a terminal in %s, times have its offset, and commands read them back', ([zone, shown, precise]) => {
  vi.stubEnv('TZ', zone);
  expect([timeText(TIME, { isTTY: true }), preciseTimeText(TIME, { isTTY: true })]).toEqual([shown, precise]);
  expect([time(shown), time(precise)]).toEqual(['2026-11-20T22:34:06.000Z', '2026-11-20T22:34:06.123Z']);
});

test('times are UTC in a pipe', () => {
  expect([timeText(TIME, {}), preciseTimeText(TIME, { isTTY: false })]).toEqual([TIME, TIME]);
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
