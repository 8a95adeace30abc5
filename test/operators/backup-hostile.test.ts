import { expect, test } from 'vitest';
import { type Line, linesOf } from '../../gateway/operators/cli/commands/backup.ts';
import { ctlReading } from '../support/ctl.ts';
import { send } from '../support/http.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { startStack } from '../support/stack.ts';

/** Forged backups: nothing from them is accepted, nothing breaks, and valid entries beside them are restored. */

const { url, redis } = await emptyDatabase();
const shared = await startStack({ REDIS_URL: url, REDIS_TIMEOUT_MS: '5000' });
const embedded = await startStack();
const stacks = [
  ['Redis', shared],
  ['embedded', embedded],
] as const;

const AT = new Date().toISOString();
const SECRET = { [`secret:${'a'.repeat(43)}`]: 'k3JtQz81 - read,write - 1795132800.123457 first' };
const GOOD = { plan: 'free', name: 'good', created_at: '1795132800.123457', ...SECRET };
const key = (id: unknown, fields: unknown = GOOD, createdAt: unknown = 1_795_132_800.123_457) => ({
  id,
  createdAt,
  fields,
});
let made = 0;
const freshId = () => `Hostile${String(++made).padStart(5, '0')}`;

test.for([
  ['an empty object', {}, 'There is nothing to restore in the body.'],
  ['a list', [], 'The body is not valid: a JSON object is expected.'],
  ['keys that are no list', { keys: 'all' }, 'The body is not valid: keys must be a list.'],
  [
    'too many keys',
    { keys: Array.from({ length: 101 }, () => key('x')) },
    'The body is not valid: keys must have at most 100 entries.',
  ],
  ['plans that are no object', { plans: 'free' }, 'The body is not valid: plans must be an object.'],
  [
    'a plan field that is no name',
    JSON.parse('{"plans": {"__proto__": "x"}}'),
    'The body is not valid: plans.__proto__ is not a field of a plan.',
  ],
  ['what is not known', { keys: [], drop: true }, 'The body is not valid: "drop" is not known.'],
  ['keys of an unknown time', { keys: [key('x')] }, 'at is required: the time at which the backup was made.'],
  [
    'keys of a bad time',
    { at: '1970', keys: [key('x')] },
    'The body is not valid: at must be an RFC 3339 time like 2026-11-25T14:05:00Z.',
  ],
] as const)('%s is refused in the Error shape', async ([, body, message]) => {
  for (const [, stack] of stacks) {
    const { status, json } = await stack.admin('POST', '/restore', body);
    expect([status, json]).toEqual([400, { code: 'invalid_request', message, status: 400 }]);
  }
});

test('a restore with a body that is too large is refused', async () => {
  const fields = Object.fromEntries(Array.from({ length: 200 }, (_, at) => [`f${at}`, 'x'.repeat(6_000)]));
  const { status, json } = await shared.admin('POST', '/restore', { at: AT, keys: [key(freshId(), fields)] });
  expect([status, json]).toEqual([413, expect.objectContaining({ code: 'payload_too_large', status: 413 })]);
});

const SHAPE = 'It is not { id, createdAt, fields } with the id of a key and fields of text.';
const UNREADABLE = 'One of its secrets cannot be read.';
const BAD: readonly (readonly [unknown, string])[] = [
  [null, SHAPE],
  ['key', SHAPE],
  [[], SHAPE],
  [key(7), SHAPE],
  [key('short'), SHAPE],
  [key('../../plans!'), SHAPE],
  [key('gateway:plans'), SHAPE],
  [key('aaaaaaaaaaa\n'), SHAPE],
  [key('x'.repeat(100_000)), SHAPE],
  [key(freshId(), 'fields'), SHAPE],
  [key(freshId(), { plan: 7 }), SHAPE],
  [key(freshId(), { plan: null }), SHAPE],
  [key(freshId(), GOOD, 'now'), SHAPE],
  [{ ...key(freshId()), more: 1 }, SHAPE],
  [key(freshId(), {}), 'It has no fields.'],
  [key(freshId(), { ...GOOD, 'Plan ': 'free' }), 'Plan  is no field of a key.'],
  [key(freshId(), { ...GOOD, [`n${'a'.repeat(100)}`]: '' }), `n${'a'.repeat(99)} is no field of a key.`],
  [key(freshId(), { ...GOOD, ban_reason: 'x'.repeat(200_000) }), 'It has more than 200000 bytes.'],
  [
    key(freshId(), { ...GOOD, plan: 'enterprise' }),
    'minute and day are missing: an enterprise key carries its own limits.',
  ],
  ...[
    'k3JtQz81 - root - 1795132800.123457 first',
    'k3JtQz81 - read,root - 1795132800.123457 first',
    'k3JtQz81 - read 9:zz/1 1795132800.123457 first',
    'k3JtQz81 - read 4:0a000001ff/40 1795132800.123457 first',
    'k3JtQz81 - read 4:0f/6 1795132800.123457 first',
    `k3JtQz81 - read ${Array(21).fill('4:0a/8').join(',')} 1795132800.123457 first`,
    'k3JtQz81 - read - 1795132800.123457/never first',
    `k3JtQz81 - read - 1795132800.123457 ${'x'.repeat(101)}`,
    'k3JtQz81 - read - 1795132800.123457 fir\nst',
  ].map((text) => [key(freshId(), { ...GOOD, [Object.keys(SECRET)[0] as string]: text }), UNREADABLE] as const),
  [key(freshId(), { ...GOOD, plan: 'gold' }), 'plan is not valid: "gold".'],
  [key(freshId(), { ...GOOD, minute: '1e3' }), 'minute is not valid: "1e3".'],
  [key(freshId(), { ...GOOD, expires_at: 'never' }), 'expires_at is not valid: "never".'],
  [key(freshId(), { ...GOOD, created_at: 'x' }), 'created_at is not a time in Unix seconds.'],
  [key(freshId(), { plan: 'free', name: 'none', created_at: '1' }), 'It has no secret.'],
  [key(freshId(), { ...GOOD, [`secret:${'b'.repeat(43)}`]: 'x' }), UNREADABLE],
  [
    key(freshId(), { ...GOOD, [`secret:${'b'.repeat(43)}`]: Object.values(SECRET)[0] ?? '' }),
    'Two of its secrets have one id.',
  ],
  [
    key(freshId(), Object.fromEntries(Array.from({ length: 1_001 }, (_, at) => [`f${at}`, '']))),
    'It has more than 1000 fields.',
  ],
];

test.for(stacks)(
  '%s: invalid keys are rejected one by one, and a valid one between them is restored',
  async ([, stack]) => {
    const id = freshId();
    const keys = [...BAD.map(([given]) => given), key(id), key(id, { ...GOOD, plan: 'pro' })];
    const { status, json } = await stack.admin('POST', '/restore', { at: AT, keys });
    expect(status).toBe(200);
    const { rejected, ...counts } = json as { rejected: { id: string; reason: string }[] };
    expect(counts).toEqual({ restored: 1, present: 0, revoked: 0 });
    expect(rejected.map(({ reason }) => reason)).toEqual([
      ...BAD.map(([, reason]) => reason),
      'The page has this key twice.',
    ]);
    expect(rejected.every((one) => one.id.length <= 100)).toBe(true);
    expect((await stack.admin('GET', `/keys/${id}`)).json).toMatchObject({ id, name: 'good', plan: 'free' });
    expect((await stack.admin('GET', '/keys')).json).toMatchObject({ total: 1 });
    await stack.admin('DELETE', `/keys/${id}`);
  },
);

test.for(stacks)('%s: nonsensical values block neither lists nor other keys', async ([, stack]) => {
  const nonsense = Object.fromEntries(
    [
      'left',
      'refusals',
      'banned_until',
      'bans',
      'usage_days',
      'ok_plan',
      'ok_secrets',
      'used',
      'usage_minutes',
      '__proto__',
    ].map((field) => [field, '-9e999 \u0000\ud800']),
  );
  const given = [-1, 1e-7, 1e300, 0, 1].map((createdAt) => key(freshId(), { ...GOOD, ...nonsense }, createdAt));
  const { json } = await stack.admin('POST', '/restore', { at: AT, keys: given });
  expect(json).toMatchObject({ restored: 5, rejected: [] });
  const customer = await stack.issueKey();
  expect((await send(`${stack.gateway}/v1/pets`, { key: customer })).status).toBe(200);
  expect((await stack.admin('GET', '/keys')).status).toBe(200);
  const met: string[] = [];
  for (const path of ['/backup', '/usage']) {
    for (let after: string | undefined = ''; after !== undefined; ) {
      const answer: { status: number; json: unknown } = await stack.admin('GET', `${path}?limit=1${after}`);
      expect(answer.status).toBe(200);
      const { keys = [], next } = answer.json as { keys?: { id: string }[]; next?: string };
      met.push(...keys.map(({ id }) => id));
      after = next && `&after=${encodeURIComponent(next)}`;
    }
  }
  expect(met).toHaveLength(6);
  for (const { id } of given) await stack.admin('DELETE', `/keys/${id}`);
});

test('invalid plan fields of a backup are rejected', async () => {
  const plans = {
    'free.minute': '0',
    'gold.minute': '60',
    'free.day': 7,
    nonsense: '1',
    __proto__x: '1',
    'pro.day': '9',
  };
  await redis.hdel('gateway:plans', 'free.minute');
  const { json } = await shared.admin('POST', '/restore', { plans });
  expect(json).toMatchObject({
    plans: {
      restored: [],
      kept: [{ field: 'pro.day', value: '10000', backup: '9' }],
      rejected: ['free.minute', 'gold.minute', 'free.day', 'nonsense', '__proto__x'],
    },
  });
  await shared.admin('PATCH', '/plans/free', { minute: 60 });
});

const HEADER = JSON.stringify({ format: 'animal-store-backup', version: 1, at: AT, plans: {} });
const NONE = 'error: This is not a backup of keys: its first line is not from `ctl backup`.';

test('the command line rejects a file that is not a backup, and skips invalid lines', async () => {
  const refused = async (input: string | Buffer, message: string) => {
    const { code, out, err } = await ctlReading(shared, input, 'restore');
    expect([code, out, err.split('\n')[0]]).toEqual([2, '', message]);
  };
  const goesOn = async () => {
    const id = freshId();
    const lines = [
      HEADER,
      'nonsense \u001b[31m',
      '[]',
      `"${'x'.repeat(400_000)}"`,
      JSON.stringify(key('short')),
      JSON.stringify(key(freshId(), { deep: { er: 1 } })),
      JSON.stringify(key(id)),
      '{"end":true,"keys":2}',
      JSON.stringify(key(freshId())),
    ];
    const { code, out, err } = await ctlReading(shared, lines.join('\n'), 'restore');
    expect([code, err]).toEqual([1, '']);
    expect(out.split('\n')).toEqual([
      'Keys restored: 1. Fields of plans restored: 0.',
      'Rejected: line 2: It is not a line of a backup.',
      'Rejected: line 3: It is not a line of a backup.',
      'Rejected: line 4: It is too long.',
      'Rejected: line 6: It is not a line of a backup.',
      'Rejected: line 9: It comes after the last line of the backup.',
      `Rejected: short: ${SHAPE}`,
      '',
    ]);
  };
  await Promise.all([
    refused('', NONE),
    refused(Buffer.from([0x1f, 0x8b, 0x08, 0x00]), NONE),
    refused(
      HEADER.replace('"version":1', '"version":2'),
      'error: This is a backup of version 2; this program reads version 1.',
    ),
    goesOn(),
  ]);
});

test('a key that is twice in a file is listed, and --strict restores nothing', async () => {
  const [id, other] = [freshId(), freshId()];
  const lines = [HEADER, JSON.stringify(key(id)), JSON.stringify(key(other)), JSON.stringify(key(id))];
  const file = [...lines, '{"end":true,"keys":3}'].join('\n');
  const strict = await ctlReading(shared, file, 'restore', '--strict');
  const line = `Rejected: ${id}: Line 4 repeats this key.`;
  expect([strict.code, strict.out]).toEqual([1, `${line}\nNothing was restored.\n`]);
  expect((await shared.admin('GET', `/keys/${other}`)).status).toBe(404);
  const { code, out } = await ctlReading(shared, file, 'restore');
  expect([code, out]).toEqual([1, `Keys restored: 2. Fields of plans restored: 0.\n${line}\n`]);
  for (const one of [id, other]) await shared.admin('DELETE', `/keys/${one}`);
});

test('an endless line of a backup uses no memory', async () => {
  const chunk = Buffer.alloc(65_536, 'x');
  let most = 0;
  async function* endless() {
    for (let sent = 0; sent < 8_000; sent++) {
      yield chunk;
      most = Math.max(most, process.memoryUsage().arrayBuffers);
    }
    yield Buffer.from('\nshort\n');
  }
  const before = process.memoryUsage().arrayBuffers;
  const lines: Line[] = [];
  for await (const line of linesOf(endless())) lines.push(line);
  expect(lines.map(({ text, isTooLong }) => [text, isTooLong])).toEqual([
    ['', true],
    ['short', false],
  ]);
  expect(most - before).toBeLessThan(50_000_000);
});
