import { userInfo } from 'node:os';
import { stripVTControlCharacters } from 'node:util';
import { expect, test } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { CLI, ctlWith, operatorOf } from '../support/ctl.ts';
import { send } from '../support/http.ts';
import { startProcess } from '../support/process.ts';
import { startStack } from '../support/stack.ts';

const stack = await startStack();

const ctl = (...words: string[]) => ctlWith(operatorOf(stack), ...words);

const COMMANDS: readonly [words: readonly string[], shown: Record<string, unknown>][] = [
  [['keys', 'create', '--plan', 'pro', '--name', 'made'], { name: 'made', plan: 'pro', key: expect.any(String) }],
  [['keys', 'list', '--name', 'TES'], { total: expect.any(Number), keys: expect.any(Array) }],
  [['keys', 'list', '--state', 'active', '--sort', 'used', '--limit', '1'], { keys: [expect.anything()] }],
  [['keys', 'top', '--minutes', '60'], { minutes: 60, keys: expect.any(Array) }],
  [['keys', 'find', '<id>'], { keys: [{ foundBy: 'id' }] }],
  [['keys', 'explain', '<id>', '--limit', '3'], { key: { state: 'active' }, decisions: [] }],
  [['keys', 'expire', '<id>'], { state: 'expired' }],
  [['bans', 'list'], { bans: expect.any(Array) }],
  [['plans', 'show'], { free: { minute: expect.any(Number) } }],
  [['plans', 'set', 'enterprise', '--mode', 'enforce'], { ban_grace_seconds: 30 }],
  [['plans', 'try', 'free', '--minute', '1'], { keys: expect.any(Number), affected: expect.any(Array) }],
  [['plans', 'export'], { free: { mode: 'enforce' }, enterprise: { ban_after: null, ban_grace_seconds: 30 } }],
  [['plans', 'history'], { history: expect.any(Array) }],
  [['requests', '--key', '<id>'], { requests: [], missing: [] }],
  [['usage', '--to', '2100-01-01'], { usage: expect.any(Array) }],
];

/** The JSON of commands for one key is tested in cli-find.test.ts. */
test('commands that list, search or change plans print JSON with --json', async () => {
  const answered = COMMANDS.map(async ([words, shown]) => {
    const id = idOf(await stack.issueKey());
    const { code, out, err } = await ctl('--json', ...words.map((word) => (word === '<id>' ? id : word)));
    expect([words, code, err]).toEqual([words, 0, '']);
    expect(JSON.parse(out)).toMatchObject(shown);
  });
  await Promise.all(answered);
});

test("`none` removes one of the key's own limits and keeps the other", async () => {
  const id = idOf(await stack.issueKey({ minute: 77, day: 777 }));
  const { code, out } = await ctl('--json', 'keys', 'set', id, '--minute', 'none');
  expect(code).toBe(0);
  expect(JSON.parse(out)).toMatchObject({ day: 777, buckets: { minute: { limit: 60 }, day: { limit: 777 } } });
});

test('keys and bans are printed in columns, without colours outside a terminal', async () => {
  const key = await stack.issueKey({ name: 'in words' });
  await send(`${stack.gateway}/v1/pets`, { key });
  await stack.admin('PUT', `/keys/${idOf(key)}/ban`, { seconds: 600, reason: 'told them' });
  const [shown, bans] = await Promise.all([ctl('keys', 'show', idOf(key)), ctl('bans', 'list')]);
  expect(shown.out).toMatch(/^state {13}banned$/m);
  expect(shown.out).toMatch(/^banned until {6}\S+Z \(in \d+ \w+\), refused 0 since\nban reason {8}told them$/m);
  expect(shown.out).toMatch(/^day {5}( +)1000 {5}1 {3}999 {2}\S+Z$/m);
  expect(bans.out).toMatch(
    new RegExp(`^${idOf(key)} {2}in words {2}free +\\S+Z \\(in \\d+ \\w+\\), refused 0 since {2}told them$`, 'm'),
  );
  for (const { out } of [shown, bans]) expect(out).toBe(stripVTControlCharacters(out));
});

test('the history shows changes and rollbacks with author and reason', async () => {
  expect((await ctl('plans', 'set', 'pro', '--minute', '320', '--reason', 'more of it', '--json')).code).toBe(0);
  const back = await ctl('plans', 'rollback', '--author', 'ada', '--json');
  expect(back).toMatchObject({ code: 0, err: expect.stringMatching(/^pro\.minute {2}320 -> 300$/m) });
  expect(JSON.parse(back.out)).toMatchObject({ pro: { minute: 300 } });
  const { out } = await ctl('plans', 'history');
  expect(out).toMatch(/^\S+Z {2}ada +rollback {2}pro\.minute 320 -> 300 {2}rolls back \d+-\d+$/m);
  expect(out).toMatch(new RegExp(`Z  ${userInfo().username} +set +pro\\.minute 300 -> 320  more of it$`, 'm'));
});

test('a change to unusual plan values prints a warning first', async () => {
  const [less, patient, strict] = await Promise.all([
    ctl('plans', 'set', 'business', '--day', '999'),
    ctl('plans', 'set', 'free', '--ban-after', '481'),
    ctl('plans', 'set', 'enterprise', '--ban-grace-seconds', '0'),
  ]);
  expect(less.err).toContain('Note: the day limit of 999 requests is lower than the minute limit of 1000.');
  expect(patient.err).toContain('Note: ban_after is over eight times the minute limit');
  expect(strict.err).toContain(
    'Note: without a grace period, a key whose clients respect Retry-After is banned if enough of their requests',
  );
});

test('shadow mode is announced before it is set, and then shown in the plan table', async () => {
  const set = await ctl('plans', 'set', 'business', '--mode', 'shadow');
  expect(set.err).toMatch(/^business\.mode {2}enforce -> shadow$/m);
  expect(set.err).toContain('Note: in shadow mode the plan refuses nothing');
  const shown = await ctl('plans', 'show');
  expect(shown.out).toMatch(/^business .* shadow$/m);
  expect(shown.out).toMatch(/^free .* enforce$/m);
  expect((await ctl('plans', 'history')).out).toContain('business.mode enforce -> shadow');
});

test('--help has examples and exit codes, and works for every command', async () => {
  const whole = await ctl('--help');
  expect([whole.code, whole.err]).toEqual([0, '']);
  expect(whole.out).toMatch(/Examples:.*keys create --plan pro.*Exit codes:.*3 {2}not found/s);
  const groups = await Promise.all(
    [
      ['keys', 'reset'],
      ['keys', 'rotate'],
      ['bans', 'set'],
      ['plans', 'set'],
      ['plans', 'try'],
      ['usage'],
      ['keys', 'explain'],
      ['requests'],
    ].map((words) => ctl(...words, '--help')),
  );
  for (const { code, out } of groups) expect([code, out]).toEqual([0, expect.stringContaining('Example')]);
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
