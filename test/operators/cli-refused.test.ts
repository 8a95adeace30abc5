import { stripVTControlCharacters } from 'node:util';
import { afterEach, expect, test, vi } from 'vitest';
import { preciseTimeText, table, timeText } from '../../gateway/operators/cli/text.ts';
import { lengthText, seconds, time } from '../../gateway/operators/cli/values.ts';
import { ctl } from '../support/ctl.ts';
import { startStack } from '../support/stack.ts';

/** Input that ctl refuses with a message, without any change. refused-input.test.ts has input that the API refuses. */

const stack = await startStack();

const PLANS = 'Allowed choices are free, pro, business, enterprise.';
const NO_ID = '000000000000';

const everything = async () =>
  await Promise.all(['/keys', '/plans', '/tokens', '/activity'].map((path) => stack.admin('GET', path)));

test.for([
  [['plans', 'set', 'free', '--minute', 'nan'], 'It must be a whole number from 1 to 1000000000.'],
  [['plans', 'set', 'gold', '--minute', '5'], PLANS],
  [['plans', 'set', 'free'], 'The body contains no changes.'],
  [['keys', 'create', '--plan', 'gold', '--name', 'a'], PLANS],
  [['keys', 'create', '--plan', 'free', '--name', 'a', '--expires', 'soon'], 'It must be a time, such as 2030-12-31T'],
  [['keys', 'secrets', 'add', 'x', '--name', 'a', '--expires', 'soon'], 'It must be a time, such as 2030-12-31T'],
  [['keys', 'create', '--plan', 'enterprise', '--name', 'big'], 'an enterprise key carries its own limits'],
  [['keys', 'create', '--plan', 'free', '--name', 'x', '--tag', 'customer'], 'as customer=acme'],
  [['keys', 'create', '--plan', 'free', '--name', 'x', '--tag', 'a=b', '--tag', 'a=c'], 'The tag a is given twice.'],
  [['keys', 'set', 'x', '--tag', 'customer=a, env=b'], 'A value has 1 to 64 characters'],
  [['keys', 'set', 'x', '--untag', 'a=b'], 'the name of a tag'],
  [['keys', 'expire', NO_ID, '2020'], 'It must be a time, such as 2030-12-31T00:00:00Z.'],
  [['keys', 'rotate', NO_ID, '--grace', '24'], 'It needs a unit: 24s, 24m, 24h or 24d.'],
  [['keys', 'list', '--unused', '30'], 'It needs a unit'],
  [['keys', 'list', '--sort', 'used', '--offset', '5'], '--offset cannot be used with --sort'],
  [['keys', 'list', '--state', 'asleep'], 'Allowed choices are active, banned, disabled, expired, unreadable.'],
  [['keys', 'list', '--near', '500'], 'near must be a whole number from 1 to 100.'],
  [['keys', 'list', '--tag', '=acme'], 'as customer=acme'],
  [['keys', 'explain'], 'pass the id or the name of a key, or a request'],
  [['bans', 'set', NO_ID, '--for', 'ever', '--reason', 'a'], 'It must be a duration'],
  [['bans', 'set', NO_ID, '--for', '1h'], "required option '--reason <text>'"],
  [['bans', 'set', NO_ID, '--for', '90', '--reason', 'a'], 'It needs a unit: 90s, 90m, 90h or 90d.'],
  [['usage', '--from', '2200-01-01'], 'from must not be after to.'],
  [['usage', '--from', '2200-01-01', '--csv'], 'from must not be after to.'],
  [['usage', '--from', '2200-01-01', '--json'], 'from must not be after to.'],
  [['usage', '--by', 'customer'], 'as tag:customer'],
  [['activity', '--limit', '0'], 'It must be a whole number of at least 1.'],
  [['activity', '--action', 'key.steal'], 'Allowed choices are key.create'],
  [['tokens', 'create', '--name', 'a', '--role', 'root'], 'Allowed choices are viewer, operator, admin.'],
  [['tokens', 'create', '--role', 'viewer'], "required option '--name <name>'"],
  [
    ['requests', '--from', 'yesterday'],
    'It must be a time, such as 2030-12-31T00:00:00Z, or how long ago, such as 15m.',
  ],
  [['requests', '--limit', '0'], 'It must be a whole number of at least 1.'],
  [['requests', '--follow', '--to', '2199-01-01T00:00:00Z'], '--to cannot be used with --follow, which does not end.'],
  [['fly'], "unknown command 'fly'"],
] as const)('ctl %j is refused with a message: %s', async ([words, message]) => {
  const before = (await everything()).map(({ text }) => text);
  expect(await ctl(stack, ...words)).toMatchObject({ code: 2, out: '', err: expect.stringContaining(message) });
  expect((await everything()).map(({ text }) => text)).toEqual(before);
});

/** Tests how ctl reads and prints values. */

afterEach(() => vi.unstubAllEnvs());

test.for([
  ['1s', 1, '1 second'],
  ['90s', 90, '90 seconds'],
  ['15m', 900, '15 minutes'],
  ['60m', 3_600, '1 hour'],
  ['24h', 86_400, '1 day'],
  ['7d', 604_800, '7 days'],
] as const)('the duration %s is %i seconds, and is shown as %s', ([text, length, shown]) => {
  expect([seconds(text), lengthText(length)]).toEqual([length, shown]);
});

test.for(['1.5h', '-1h', '1w', ''])('the duration "%s" is refused', (text) => {
  expect(() => seconds(text)).toThrow('It must be a duration');
});

const TIME = '2026-11-20T22:34:06.123456Z';

test.for([
  ['UTC', '2026-11-20 22:34:06 +00:00', '2026-11-20 22:34:06.123 +00:00'],
  ['Europe/Berlin', '2026-11-20 23:34:06 +01:00', '2026-11-20 23:34:06.123 +01:00'],
  ['Asia/Kathmandu', '2026-11-21 04:19:06 +05:45', '2026-11-21 04:19:06.123 +05:45'],
  ['America/St_Johns', '2026-11-20 19:04:06 -03:30', '2026-11-20 19:04:06.123 -03:30'],
] as const)(
  'on a terminal in %s, times are printed with the local UTC offset, and commands accept them',
  ([zone, shown, precise]) => {
    vi.stubEnv('TZ', zone);
    expect([timeText(TIME, { isTTY: true }), preciseTimeText(TIME, { isTTY: true })]).toEqual([shown, precise]);
    expect([time(shown), time(precise)]).toEqual(['2026-11-20T22:34:06.000Z', '2026-11-20T22:34:06.123Z']);
  },
);

test('times are UTC in a pipe', () => {
  expect([timeText(TIME, {}), preciseTimeText(TIME, { isTTY: false })]).toEqual([TIME, TIME]);
});

test('wide characters take two columns', () => {
  const lines = table(
    [
      { name: '北京动物园', plan: 'free' },
      { name: 'ﾊﾝｶｸ', plan: 'pro' },
      { name: 'acme zoo', plan: 'free' },
    ],
    ['name', 'plan'],
  ).split('\n');
  expect(lines.map(stripVTControlCharacters)).toEqual([
    'name        plan',
    '北京动物园  free',
    'ﾊﾝｶｸ        pro',
    'acme zoo    free',
  ]);
});
