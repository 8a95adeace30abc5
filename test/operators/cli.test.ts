import { userInfo } from 'node:os';
import { stripVTControlCharacters } from 'node:util';
import { afterEach, expect, test, vi } from 'vitest';
import type { ActivityAnswer, HistoryAnswer } from '../../gateway/operators/api/answers.ts';
import { preciseTimeText, table, timeText } from '../../gateway/operators/cli/text.ts';
import { lengthText, seconds, time } from '../../gateway/operators/cli/values.ts';
import { idOf } from '../support/api-key.ts';
import { CLI, ctl, ctlWith, operatorOf } from '../support/ctl.ts';
import { bareCore } from '../support/faulty-core.ts';
import { ask, issueId, operatorsRedis, statusOf } from '../support/operators.ts';
import { startProcess } from '../support/process.ts';
import { startStack } from '../support/stack.ts';

/** The commands, their output, and input that they refuse. */

const { redis, fresh } = await operatorsRedis();
const stack = await startStack();
const run = (words: string) => ctl(stack, ...words.split(' '));

test('ctl issues, lists and revokes a key, with the generated token in the folder of its gateway', async () => {
  const stack = await startStack({ ADMIN_TOKEN: '' });
  const local = { ADMIN_PORT: new URL(stack.adminUrl).port, DATA_DIR: stack.directory };
  const run = (words: string) => ctlWith(local, ...words.split(' '));
  const created = await run('keys create --plan pro --name acme');
  expect(created).toMatchObject({ code: 0, err: '' });
  const key = /^as_\w+$/m.exec(created.out)?.[0] ?? '';
  const id = idOf(key);
  expect((await ask(stack, key)).headers['x-ratelimit-limit']).toBe('300');

  const listed = await run('keys list');
  expect(listed.out).toMatch(new RegExp(`^${id}  acme  pro  +active .* 1 +0 `, 'm'));
  expect(listed.out).not.toContain(key);

  expect(await run(`keys revoke ${id} --yes`)).toMatchObject({ code: 0, out: `Revoked ${id}.\n` });
  expect(await statusOf(stack, key)).toBe(401);
  const again = await run(`keys revoke ${id} --yes`);
  expect(again).toMatchObject({ code: 3, out: '', err: 'There is no such key.\n' });
});

test('ctl shows and changes plans', async () => {
  const set = await run('plans set business --minute 2000 --ban-after 5');
  expect(set).toMatchObject({ code: 0, err: expect.stringMatching(/^business\.minute +1000 -> 2000$/m) });
  expect((await run('plans show')).out).toMatch(/^business +2000 +100000 +5 +30 +300 .*enforce$/m);
  expect(JSON.parse((await run('--json plans show')).out)).toMatchObject({
    business: { minute: 2_000, day: 100_000, ban_after: 5 },
  });
  const back = await run('plans set business --minute 1000 --ban-after none');
  expect(back).toMatchObject({ code: 0, err: expect.stringMatching(/^business\.ban_after +5 -> none$/m) });
  expect((await run('plans show')).out).toMatch(/^business +1000 +100000 +5 × minute +30 +300 .*enforce$/m);
});

test('an enterprise key is created with its own limits', async () => {
  const created = await run('--json keys create --plan enterprise --name big --minute 5 --day 50');
  expect(JSON.parse(created.out)).toMatchObject({
    ...{ plan: 'enterprise', minute: 5, day: 50, state: 'active' },
    key: expect.stringMatching(/^as_\w+$/),
  });
});

test('ctl activity shows who did what to a key, and why', async () => {
  const stack = await startStack();
  const id = await issueId(stack, { name: 'acme' });
  expect((await ctl(stack, 'keys', 'set', id, '--plan', 'pro', '--reason', 'they have paid')).code).toBe(0);
  expect((await ctl(stack, 'keys', 'disable', id, '--reason', '=1+1')).code).toBe(0);
  await ctl(stack, 'plans', 'set', 'free', '--minute', '61', '--author', 'ada', '--reason', 'launch', '--yes');

  const { code, out } = await ctl(stack, 'activity', '--target', id, '--action', 'key.change');
  const [head, newest, oldest] = out.split('\n').map((line) => line.split(/ {2,}/).slice(1));
  expect([code, head]).toEqual([0, ['actor', 'action', 'target', 'via', 'changes', 'reason']]);
  expect(newest).toEqual([expect.any(String), 'key.change', `${id} (acme)`, 'cli', 'disabled true', '=1+1']);
  expect(oldest?.slice(1)).toEqual(['key.change', `${id} (acme)`, 'cli', 'plan free -> pro', 'they have paid']);
  expect(newest?.[0]).not.toBe('unknown');
  for (const [target, actions] of [
    ['ACME', ['key.change', 'key.change', 'key.create']],
    ['FREE', ['plan.change']],
  ] as const) {
    const found = JSON.parse((await ctl(stack, '--json', 'activity', '--target', target)).out) as ActivityAnswer;
    expect(found.activity.map(({ action }) => action)).toEqual(actions);
  }

  const asJson = await ctl(stack, '--json', 'activity', '--limit', '1');
  expect(JSON.parse(asJson.out)).toMatchObject({
    activity: [{ actor: 'ada', action: 'plan.change', reason: 'launch' }],
  });

  const lines = (await ctl(stack, 'activity', '--csv')).out.split('\r\n');
  expect(lines[0]).toBe('at,actor,action,target,via,changes,reason,requestId,token,id,targetName');
  expect(lines).toHaveLength(6);
  // A spreadsheet must not interpret a reason as a formula.
  expect(lines[2]).toContain(`,disabled true,'=1+1,`);
});

test('ctl activity exports all entries, across all pages', async () => {
  const stack = await fresh();
  await stack.issueKey();
  const [[, entry = []] = []] = await redis.xrange('gateway:activity', '-', '+');
  const more = redis.pipeline();
  for (let made = 1; made < 1_101; made++) more.xadd('gateway:activity', '*', ...entry);
  await more.exec();
  const { out } = await ctl(stack, 'activity', '--csv');
  expect(out.trim().split('\r\n')).toHaveLength(1 + 1_101);
  expect((await ctl(stack, 'activity')).out.trim().split('\n')).toHaveLength(1 + 50);
});

test('ctl tokens creates, lists and revokes tokens, and the name of a token is the actor', async () => {
  const made = await ctl(stack, 'tokens', 'create', '--name', 'ann', '--role', 'operator');
  const [, id = '', token = ''] = /^Token (\w+) of ann, operator[\s\S]*\n(op_\S+)\n$/.exec(made.out) ?? [];
  expect(token).toContain(`op_${id}_`);
  expect((await ctl(stack, 'tokens', 'list')).out).toMatch(new RegExp(`^${id}  ann   operator  \\d{4}-`, 'm'));

  const asAnn = { ...operatorOf(stack), ADMIN_TOKEN: token };
  expect((await ctlWith(asAnn, 'keys', 'create', '--plan', 'free', '--name', 'a')).code).toBe(0);
  expect((await ctl(stack, 'activity', '--actor', 'ann')).out).toContain('key.create');
  const beyond = await ctlWith(asAnn, 'tokens', 'revoke', id, '--yes');
  expect(beyond).toMatchObject({ code: 1, err: 'This needs the admin role; the token has the operator role.\n' });

  expect((await ctl(stack, 'tokens', 'revoke', id)).code).toBe(5);
  const revoked = await ctl(stack, 'tokens', 'revoke', id, '--yes');
  expect(revoked).toMatchObject({ code: 0, out: `Revoked the token ${id}.\n` });
  expect((await ctlWith(asAnn, 'plans', 'show')).code).toBe(1);
  expect((await ctl(stack, 'tokens', 'revoke', id, '--yes')).code).toBe(3);
  const { text } = await stack.admin('GET', '/plans', undefined, { key: undefined });
  expect(text).toContain('A token for this service is required.');
});

test('ctl doctor reports a hanging gateway within seconds', async () => {
  const adminUrl = await bareCore(() => {});
  const { code, err } = await ctl({ adminUrl }, 'doctor');
  expect([code, err]).toEqual([
    1,
    `The gateway at ${adminUrl} did not respond within 5 s: it or its machine is hung.\n`,
  ]);
});

test.for<[words: string, shown: Record<string, unknown>]>([
  ['keys list --name TES', { total: expect.any(Number), keys: expect.any(Array) }],
  ['keys list --state active --sort used --limit 1', { keys: [expect.anything()] }],
  ['keys find <id>', { keys: [{ foundBy: 'id' }] }],
  ['keys explain <id> --limit 3', { key: { state: 'active' }, decisions: [] }],
  ['bans list', { bans: expect.any(Array) }],
  ['plans set enterprise --mode enforce', { ban_grace_seconds: 30 }],
  ['plans try free --minute 1', { keys: expect.any(Number), affected: expect.any(Array) }],
  ['plans export', { free: { mode: 'enforce' }, enterprise: { ban_after: null, ban_grace_seconds: 30 } }],
  ['plans history', { history: expect.any(Array) }],
])('`ctl %s` prints JSON with --json', async ([words, shown]) => {
  const { code, out, err } = await run(`--json ${words.replace('<id>', await issueId(stack))}`);
  expect([code, err]).toEqual([0, '']);
  expect(JSON.parse(out)).toMatchObject(shown);
});

test("`none` removes one of the key's own limits and keeps the other", async () => {
  const id = idOf(await stack.issueKey({ minute: 77, day: 777 }));
  const { code, out } = await run(`--json keys set ${id} --minute none`);
  expect(code).toBe(0);
  expect(JSON.parse(out)).toMatchObject({ day: 777, buckets: { minute: { limit: 60 }, day: { limit: 777 } } });
});

test('keys and bans are printed in columns, without colours outside a terminal', async () => {
  const key = await stack.issueKey({ name: 'in words' });
  await ask(stack, key);
  await stack.admin('PUT', `/keys/${idOf(key)}/ban`, { seconds: 600, reason: 'told them' });
  const [shown, bans] = await Promise.all([run(`keys show ${idOf(key)}`), run('bans list')]);
  expect(shown.out).toMatch(/^state {13}banned$/m);
  expect(shown.out).toMatch(/^banned until {6}\S+Z \(in \d+ \w+\), refused 0 since\nban reason {8}told them$/m);
  expect(shown.out).toMatch(/^day {5}( +)1000 {5}1 {3}999 {2}\S+Z$/m);
  expect(bans.out).toMatch(
    new RegExp(`^${idOf(key)} {2}in words {2}free +\\S+Z \\(in \\d+ \\w+\\), refused 0 since {2}told them$`, 'm'),
  );
  for (const { out } of [shown, bans]) expect(out).toBe(stripVTControlCharacters(out));
});

test('the history shows changes and rollbacks with author and reason', async () => {
  expect((await ctl(stack, 'plans', 'set', 'pro', '--minute', '320', '--reason', 'more of it', '--json')).code).toBe(0);
  const back = await run('plans rollback --author ada --json');
  expect(back).toMatchObject({ code: 0, err: expect.stringMatching(/^pro\.minute {2}320 -> 300$/m) });
  expect(JSON.parse(back.out)).toMatchObject({ pro: { minute: 300 } });
  const { out } = await run('plans history');
  expect(out).toMatch(/^\S+Z {2}ada +rollback {2}pro\.minute 320 -> 300 +rolls back \d+-\d+$/m);
  expect(out).toMatch(new RegExp(`Z  ${userInfo().username} +set +pro\\.minute 300 -> 320 +more of it$`, 'm'));
});

test('a rollback describes only the change that it reverts, and one without effect says so', async () => {
  const stack = await startStack();
  for (const minute of ['61', '62']) await ctl(stack, 'plans', 'set', 'free', '--minute', minute);
  const history = async () =>
    (JSON.parse((await ctl(stack, '--json', 'plans', 'history')).out) as HistoryAnswer).history.map(({ id }) => id);
  const [last = '', first = ''] = await history();
  const changed = (from: number, to: number) => `free.minute  ${from} -> ${to}\n`;
  for (const [id, code, err] of [
    [first, 4, 'This is no longer the last change.\n'],
    ['1-1', 4, 'This is no longer the last change.\n'],
    [last, 0, changed(62, 61)],
    [
      last,
      0,
      expect.stringMatching(/^Note: The last change is itself a rollback\. To revert it, roll back \d+-\d+\n$/),
    ],
  ] as const)
    expect(await ctl(stack, 'plans', 'rollback', '--id', id)).toMatchObject({ code, err });
  const again = await ctl(stack, 'plans', 'rollback');
  expect(again).toMatchObject({ code: 0, err: expect.stringMatching(/^Note: The last change is itself a rollback\./) });
  const [rollback = ''] = await history();
  expect(await ctl(stack, 'plans', 'rollback', '--id', rollback)).toMatchObject({ code: 0, err: changed(61, 62) });
});

test('a change to unusual plan values prints a warning first', async () => {
  const [less, patient, strict] = await Promise.all([
    run('plans set business --day 999'),
    run('plans set free --ban-after 481'),
    run('plans set enterprise --ban-grace-seconds 0'),
  ]);
  expect(less.err).toContain('Note: the day limit of 999 requests is lower than the minute limit of 1000.');
  expect(patient.err).toContain('Note: ban_after is over eight times the minute limit');
  expect(strict.err).toContain(
    'Note: without a grace period, a key whose clients respect Retry-After is banned if enough of their requests',
  );
});

test('shadow mode is announced before it is set, and then shown in the plan table', async () => {
  const set = await run('plans set business --mode shadow');
  expect(set.err).toMatch(/^business\.mode {2}enforce -> shadow$/m);
  expect(set.err).toContain('Note: in shadow mode the plan refuses nothing');
  const shown = await run('plans show');
  expect(shown.out).toMatch(/^business .* shadow$/m);
  expect(shown.out).toMatch(/^free .* enforce$/m);
  expect((await run('plans history')).out).toContain('business.mode enforce -> shadow');
});

test('--help has examples and exit codes, and works for every command', async () => {
  const whole = await run('--help');
  expect([whole.code, whole.err]).toEqual([0, '']);
  expect(whole.out).toMatch(/Examples:.*keys create --plan pro.*Exit codes:.*3 {2}not found/s);
  for (const words of 'keys reset,keys rotate,bans set,plans set,plans try,usage,keys explain,requests'.split(',')) {
    const { code, out } = await run(`${words} --help`);
    expect([words, code, out]).toEqual([words, 0, expect.stringContaining('Example')]);
  }
  for (const [asked, words] of [
    ['help', ''],
    ['help keys', 'keys '],
    ['help keys set', 'keys set '],
    ['help keys secrets add', 'keys secrets add '],
    ['keys help secrets add', 'keys secrets add '],
  ] as const)
    expect([asked, await run(asked)]).toEqual([asked, await run(`${words}--help`)]);
});

test('a reader that closes the pipe without reading causes no error', async () => {
  const names = Array.from({ length: 50 }, (_, at) => `${'a long name '.repeat(15)}${at}`);
  for (const name of names) await stack.admin('POST', '/keys', { name, plan: 'free' });
  const command = `${process.execPath} ${CLI} --json keys list --limit 50 | true`;
  expect(await startProcess('bash', ['-o', 'pipefail', '-c', command], operatorOf(stack)).ended).toEqual({
    code: 0,
    out: '',
    err: '',
  });
});

/** Input that ctl refuses. refused-input.test.ts has input that the API refuses. */

const PLANS = 'Allowed choices are free, pro, business, enterprise.';
const NO_ID = '000000000000';

/** What operators have set, without what changes over time: buckets, and the wait in line. */
const everything = async () => {
  const [keys, ...others] = await Promise.all(
    ['/keys', '/plans', '/tokens', '/activity'].map((path) => stack.admin('GET', path)),
  );
  const unlessMoving = (field: string, value: unknown) =>
    ['buckets', 'waitSeconds'].includes(field) ? undefined : value;
  return [JSON.stringify(JSON.parse(keys?.text ?? ''), unlessMoving), ...others.map(({ text }) => text)];
};

test.for([
  [['plans', 'set', 'free', '--minute', 'nan'], 'It must be a whole number from 1 to 1000000000.'],
  [['plans', 'set', 'gold', '--minute', '5'], PLANS],
  [['plans', 'set', 'free'], 'The request contains no changes.'],
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
  [['bans', 'set', NO_ID, '--for', '1h', '--reason', ''], 'It must not be empty.'],
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
  [['help', 'keys', 'fly'], "unknown command 'fly'"],
] as const)('ctl %j is refused with a message: %s', async ([words, message]) => {
  const before = await everything();
  expect(await ctl(stack, ...words)).toMatchObject({ code: 2, out: '', err: expect.stringContaining(message) });
  expect(await everything()).toEqual(before);
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

test('a history without changes says so', async () => {
  expect((await ctl(await fresh(), 'plans', 'history')).out).toBe('No plan has been changed yet.\n');
});
