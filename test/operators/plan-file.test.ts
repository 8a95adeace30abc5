import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { DEFAULT_PLANS } from '../../gateway/limiter/plans.ts';
import { driftOf, parsePlanFile, toYaml } from '../../gateway/operators/cli/plan-file.ts';
import { ctl, ctlReading } from '../support/ctl.ts';
import { type Stack, startStack, temporaryFolder } from '../support/stack.ts';

/** The plan table as a file in git. */

const minuteOf = async (stack: Stack, plan: string) =>
  ((await stack.admin('GET', '/plans')).json as Record<string, { minute: number }>)[plan]?.minute;

test('an exported plan table has no drift, in YAML and in JSON', () => {
  const yaml = toYaml(DEFAULT_PLANS);
  expect(yaml).toContain('free:\n  minute: 60\n  day: 1000\n');
  expect(yaml).toContain('  ban_after: null\n');
  expect(yaml).toContain('  mode: enforce\n');
  expect(driftOf(DEFAULT_PLANS, parsePlanFile(yaml))).toEqual([]);
  expect(driftOf(DEFAULT_PLANS, parsePlanFile(JSON.stringify(parsePlanFile(yaml))))).toEqual([]);
});

test('a plan file marks an absent number with null', () => {
  const table = { ...DEFAULT_PLANS, free: { ...DEFAULT_PLANS.free, ban_after: 20 } };
  expect(driftOf(table, parsePlanFile(toYaml(DEFAULT_PLANS)))).toMatchObject([
    { field: 'free.ban_after', from: '20', to: undefined },
  ]);
  expect(driftOf(DEFAULT_PLANS, parsePlanFile('free: { ban_after: 7, ban_grace_seconds: 0 }'))).toMatchObject([
    { field: 'free.ban_after', from: undefined, to: '7' },
    { field: 'free.ban_grace_seconds', from: '30', to: '0' },
  ]);
});

test('drift is every difference from the file, including choices left at their default', () => {
  const file = parsePlanFile('free: { minute: 61, mode: enforce }\npro:\n  mode: shadow # to be seen\n');
  expect(driftOf(DEFAULT_PLANS, file)).toMatchObject([
    { field: 'free.minute', from: '60', to: '61' },
    { field: 'pro.mode', from: 'enforce', to: 'shadow' },
  ]);
});

test.for([
  ['', 'It has no plans'],
  ['3', 'It has no plans'],
  ['[]', 'It has no plans'],
  ['free: 3', 'free has no fields.'],
  ['gold: { minute: 5 }', 'gold is not a plan; the plans are free, pro, business, enterprise.'],
  ['free: { minutes: 5 }', 'free has no minutes; it has minute, day'],
  ['enterprise: { minute: 5 }', 'enterprise has no minute; it has ban_after'],
  ['free: { minute: "60" }', 'free.minute must be a whole number from 1 to 1000000000.'],
  ['free: { minute: 0 }', 'free.minute must be a whole number'],
  ['free: { minute: 1.5 }', 'free.minute must be a whole number'],
  ['free: { minute: }', 'free.minute must be a whole number'],
  ['free: { ban_after: 0 }', 'free.ban_after must be a whole number from 1 to 1000000000, or null for 5 × minute.'],
  ['free: { ban_within_seconds: 60 }', 'free has no ban_within_seconds; it has minute, day, ban_after'],
  ['free: { minute: [60] }', 'free.minute must be a whole number'],
  ['free: { mode: off }', 'free.mode must be one of enforce, shadow.'],
  ['free: { minute: 5, minute: 6 }', 'Map keys must be unique'],
  ['free:\n  minute: 5\n minute: 6', 'at line 3'],
  [`free: { minute: ${'6'.repeat(70_000)} }`, 'It has more than 65536 characters.'],
  ['free: { minute: 0, day: 0 }\ngold: { }', 'free.minute must be a whole number from 1 to 1000000000.\nfree.day must'],
] as const)('the plan file %j is refused with a message', ([content, message]) => {
  expect(() => parsePlanFile(content)).toThrow(message);
});

test('a plan file is compared, applied in one step, and rolled back', async () => {
  const stack = await startStack();
  const file = join(await temporaryFolder(), 'plans.yaml');
  const exported = await ctl(stack, 'plans', 'export');
  expect(exported).toMatchObject({ code: 0, err: '' });
  await writeFile(file, exported.out);
  expect(await ctl(stack, 'plans', 'diff', '-f', file)).toEqual({
    code: 0,
    out: 'The plans are the same as in the file.\n',
    err: '',
  });

  await writeFile(file, exported.out.replace('minute: 60', 'minute: 75').replace('day: 10000', 'day: 12000'));
  expect(await ctl(stack, 'plans', 'diff', '-f', file)).toEqual({
    code: 4,
    out: 'free.minute  60 -> 75\npro.day      10000 -> 12000\n',
    err: '',
  });
  expect(await minuteOf(stack, 'free')).toBe(60);
  const applied = await ctl(stack, 'plans', 'apply', '-f', file, '--author', 'ada', '--reason', 'as in git');
  expect(applied).toMatchObject({
    code: 0,
    err: expect.stringContaining('free.minute  60 -> 75\npro.day      10000 -> 12000\n'),
  });
  const { history } = (await stack.admin('GET', '/plans/history')).json as { history: unknown[] };
  expect(history).toMatchObject([
    { author: 'ada', reason: 'as in git', changes: [{ field: 'free.minute' }, { field: 'pro.day' }] },
  ]);
  expect(await ctl(stack, 'plans', 'apply', '-f', file)).toMatchObject({
    code: 0,
    out: 'The plans are the same as in the file.\n',
  });
  expect(((await stack.admin('GET', '/plans/history')).json as { history: unknown[] }).history).toHaveLength(1);
  expect((await ctl(stack, 'plans', 'rollback')).code).toBe(0);
  expect(await minuteOf(stack, 'free')).toBe(60);
});

test('plans that the file does not name are reported and unchanged, also from standard input', async () => {
  const stack = await startStack();
  const { code, err } = await ctlReading(stack, '{"free": {"minute": 66}}', 'plans', 'apply', '-f', '-', '--json');
  expect([code, await minuteOf(stack, 'free'), await minuteOf(stack, 'pro')]).toEqual([0, 66, 300]);
  expect(err).toContain('Note: the file does not contain free.day, free.ban_after');
  expect(err).toContain('pro, business, enterprise.');
  const diff = await ctlReading(stack, 'free: { minute: 60 }', '--json', 'plans', 'diff', '-f', '-');
  expect([diff.code, JSON.parse(diff.out)]).toEqual([4, { drift: [{ field: 'free.minute', from: '66', to: '60' }] }]);
});

test('an invalid plan file is refused and changes nothing', async () => {
  const stack = await startStack();
  const bad = await ctlReading(stack, 'free: { minute: 61 }\ngold: { minute: 5 }', 'plans', 'apply', '-f', '-');
  expect(bad).toMatchObject({ code: 2, out: '', err: expect.stringContaining('gold is not a plan') });
  expect(await minuteOf(stack, 'free')).toBe(60);
  const missing = await ctl(stack, '--json', 'plans', 'diff', '-f', '/no/such/file');
  expect([missing.code, JSON.parse(missing.err)]).toEqual([
    2,
    { code: 'usage', message: expect.stringContaining('/no/such/file cannot be used:\n  ENOENT') },
  ]);
});
