import { describe, expect, test } from 'vitest';
import { type Line, linesOf } from '../../gateway/operators/cli/commands/backup.ts';
import { activityOf } from '../support/activity.ts';
import { digestIn, idOf } from '../support/api-key.ts';
import { ctl, ctlReading } from '../support/ctl.ts';
import { everythingIn, expireRevoked } from '../support/embedded-database.ts';
import { get, hashOf, operatorsRedis, pagesOf, statusOf, viewOf } from '../support/operators.ts';
import { bothStacks, type Stack, startStack, temporaryFolder } from '../support/stack.ts';

/**
 * Restores of forged and of old backups. Only the valid entries of a forged backup are restored. No backup brings back
 * a revoked key unless the operator asks for it.
 */

const { url, redis, withRedis, fresh } = await operatorsRedis();
const shared = await startStack(withRedis);
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

const NOT_VALID = 'The body is not valid: ';

test.for([
  ['a list', [], `${NOT_VALID}a JSON object is expected.`],
  ['keys that are not a list', { keys: 'all' }, `${NOT_VALID}keys must be a list.`],
  ['too many keys', { keys: Array(101).fill(key('x')) }, `${NOT_VALID}keys must have at most 100 entries.`],
  ['plans that are not an object', { plans: 'free' }, `${NOT_VALID}plans must be an object.`],
  [
    'a field that no plan has',
    JSON.parse('{"plans": {"__proto__": "x"}}'),
    `${NOT_VALID}plans.__proto__ is not a field of a plan.`,
  ],
  ['an unknown member', { keys: [], drop: true }, `${NOT_VALID}"drop" is not known.`],
  [
    'keys with an invalid time',
    { at: '1970', keys: [key('x')] },
    `${NOT_VALID}at must be an RFC 3339 time like 2026-11-25T14:05:00Z.`,
  ],
  ['an empty object', {}, 'The body contains nothing to restore.'],
  ['keys without a time', { keys: [key('x')] }, 'at is required: the time at which the backup was made.'],
] as const)('%s is refused in the Error format', async ([, body, message]) => {
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

const SHAPE = 'It must be { id, createdAt, fields }, with a valid key id and string fields.';
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
  [key(freshId(), { ...GOOD, 'Plan ': 'free' }), 'Plan  is not a field of a key.'],
  [key(freshId(), { ...GOOD, [`n${'a'.repeat(100)}`]: '' }), `n${'a'.repeat(99)} is not a field of a key.`],
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
    'Two of its secrets have the same id.',
  ],
  [
    key(freshId(), Object.fromEntries(Array.from({ length: 1_001 }, (_, at) => [`f${at}`, '']))),
    'It has more than 1000 fields.',
  ],
];

test.for(stacks)('%s: each invalid key is rejected, and a valid one between them is restored', async ([, stack]) => {
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
  expect(await viewOf(stack, id)).toMatchObject({ id, name: 'good', plan: 'free' });
  expect(await get(stack, '/keys')).toMatchObject({ total: 1 });
  await stack.admin('DELETE', `/keys/${id}`);
});

test.for(stacks)('%s: nonsensical values in a restored key break neither lists nor other keys', async ([, stack]) => {
  const fields = 'left refusals banned_until bans usage_days ok_plan ok_secrets used usage_minutes __proto__'.split(
    ' ',
  );
  const nonsense = Object.fromEntries(fields.map((field) => [field, '-9e999 \u0000\ud800']));
  const given = [-1, 1e-7, 1e300, 0, 1].map((createdAt) => key(freshId(), { ...GOOD, ...nonsense }, createdAt));
  const { json } = await stack.admin('POST', '/restore', { at: AT, keys: given });
  expect(json).toMatchObject({ restored: 5, rejected: [] });
  const customer = await stack.issueKey();
  expect(await statusOf(stack, customer)).toBe(200);
  expect((await stack.admin('GET', '/keys')).status).toBe(200);
  const pages = await Promise.all(
    ['/backup', '/usage'].map((path) => pagesOf<{ keys?: object[]; next?: string }>(stack, `${path}?limit=1`)),
  );
  expect(pages.flat().flatMap(({ keys = [] }) => keys)).toHaveLength(6);
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
const NONE = 'error: This is not a backup of keys: `ctl backup` did not write its first line.';

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
      'Keys restored: 1. Plan fields restored: 0.',
      'Rejected: line 2: It is not in backup format.',
      'Rejected: line 3: It is not in backup format.',
      'Rejected: line 4: It is too long.',
      'Rejected: line 6: It is not in backup format.',
      'Rejected: line 9: It follows the last line of the backup.',
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

test('a repeated key in a file is rejected, and with --strict nothing is restored', async () => {
  const [id, other] = [freshId(), freshId()];
  const lines = [HEADER, JSON.stringify(key(id)), JSON.stringify(key(other)), JSON.stringify(key(id))];
  const file = [...lines, '{"end":true,"keys":3}'].join('\n');
  const strict = await ctlReading(shared, file, 'restore', '--strict');
  const line = `Rejected: ${id}: Line 4 repeats this key.`;
  expect([strict.code, strict.out]).toEqual([1, `${line}\nNothing was restored.\n`]);
  expect((await shared.admin('GET', `/keys/${other}`)).status).toBe(404);
  const { code, out } = await ctlReading(shared, file, 'restore');
  expect([code, out]).toEqual([1, `Keys restored: 2. Plan fields restored: 0.\n${line}\n`]);
  for (const one of [id, other]) await shared.admin('DELETE', `/keys/${one}`);
});

test('an endless line in a backup does not use up memory', async () => {
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

const DAY_MS = 86_400_000;

const pageOf = (stack: Stack) => get<{ at: string; keys: unknown[] }>(stack, '/backup');
const restore = async (stack: Stack, page: unknown, query = '') => await stack.admin('POST', `/restore${query}`, page);
const daysAgo = (days: number) => new Date(Date.now() - days * DAY_MS).toISOString();
/** The same backup, as if it had been made at this time. */
const asOf = (file: string, at: string) => file.replace(/"at":"[^"]*"/, `"at":"${at}"`);

/** Makes Redis look as it does 37 days after a key was revoked. */
async function forget(key: string): Promise<void> {
  const usage = `gateway:usage:{${idOf(key)}}`;
  expect(await redis.ttl(usage)).toBeLessThanOrEqual(36 * 86_400);
  await redis.del(usage);
}

test('a restore of a backup from 40 days ago brings back no revoked key unless the operator asks for it', async () => {
  const stack = await fresh();
  const key = await stack.issueKey();
  const file = asOf((await ctl(stack, 'backup')).out, daysAgo(40));
  await stack.admin('DELETE', `/keys/${idOf(key)}`);
  await forget(key);
  const { code, out, err } = await ctlReading(stack, file, 'restore');
  expect([code, out]).toEqual([4, '']);
  expect(err).toMatch(/^This backup was made at \S+, more than 35 days ago: .*ctl restore --any-age.*\.\n$/);
  expect(await statusOf(stack, key)).toBe(401);
  expect((await ctlReading(stack, file, 'restore', '--any-age')).out).toContain('Keys restored: 1.');
  expect(await statusOf(stack, key)).toBe(200);
  const [entry] = await activityOf(stack);
  expect(entry).toMatchObject({
    action: 'key.restore',
    changes: expect.arrayContaining([{ field: 'anyAge', to: 'true' }]),
  });
});

describe.for(bothStacks(url))('with %s', ([, environment]) => {
  test('a page of a backup contains its time and can be restored for 35 days', async () => {
    const stack = await fresh(environment);
    await stack.issueKey();
    const [begun, page, ended] = [Date.now(), await pageOf(stack), Date.now()];
    expect(Date.parse(page.at)).toBeGreaterThanOrEqual(begun - 1);
    expect(Date.parse(page.at)).toBeLessThanOrEqual(ended + 1);
    const statuses = async (at: string | undefined, query?: string) =>
      (await restore(stack, { ...page, at }, query)).status;
    expect([await statuses(daysAgo(34.99)), await statuses(daysAgo(-0.99))]).toEqual([200, 200]);
    expect([await statuses(daysAgo(35.01)), await statuses(daysAgo(-1.01))]).toEqual([409, 409]);
    expect([await statuses(undefined), await statuses('yesterday')]).toEqual([400, 400]);
    expect([await statuses(undefined, '?anyAge=true'), await statuses(daysAgo(400), '?anyAge=true')]).toEqual([
      200, 200,
    ]);
    expect([await statuses(daysAgo(400), '?anyAge=false'), await statuses(page.at, '?anyAge=yes')]).toEqual([409, 400]);
    // Plans alone cannot bring back a key, so a restore of only plans needs no time.
    expect((await restore(stack, { plans: {} })).status).toBe(200);
  });

  test('a recorded revocation holds, even with anyAge', async () => {
    const stack = await fresh(environment);
    const key = await stack.issueKey();
    const page = await pageOf(stack);
    await stack.admin('DELETE', `/keys/${idOf(key)}`);
    expect((await restore(stack, { ...page, at: daysAgo(40) }, '?anyAge=true')).json).toMatchObject({
      restored: 0,
      revoked: 1,
    });
    expect(await statusOf(stack, key)).toBe(401);
  });
});

test.for([
  ['a string', (name: string) => redis.set(name, 'text')],
  ['a hash without fields of a key', (name: string) => redis.hset(name, 'note', 'mine')],
] as const)('a key that is replaced by %s by hand and then revoked stays revoked', async ([, replace]) => {
  const stack = await fresh();
  const key = await stack.issueKey();
  const page = await pageOf(stack);
  const hash = hashOf(idOf(key));
  await redis.del(hash);
  await replace(hash);
  expect((await stack.admin('DELETE', `/keys/${idOf(key)}`)).status).toBe(204);
  expect((await restore(stack, page)).json).toMatchObject({ restored: 0, revoked: 1 });
  expect(await statusOf(stack, key)).toBe(401);
  expect((await stack.admin('GET', '/usage')).status).toBe(200);
});

test('an embedded gateway keeps ids of revoked keys for 36 days, across restarts, but no digests', async () => {
  const environment = { DATA_DIR: await temporaryFolder() };
  const first = await startStack(environment);
  const [kept, old, recent] = [await first.issueKey(), await first.issueKey(), await first.issueKey()];
  const page = await pageOf(first);
  for (const key of [old, recent]) expect((await first.admin('DELETE', `/keys/${idOf(key)}`)).status).toBe(204);
  await first.stop();
  for (const key of [old, recent]) expect(everythingIn(environment.DATA_DIR)).not.toContain(digestIn(key));
  expireRevoked(environment.DATA_DIR, idOf(old), 36 * 86_400);
  const second = await startStack(environment);
  const counts = { restored: 1, present: 1, revoked: 1 };
  expect((await restore(second, { ...page, at: daysAgo(40) }, '?anyAge=true')).json).toMatchObject(counts);
  expect(await Promise.all([kept, old, recent].map((key) => statusOf(second, key)))).toEqual([200, 200, 401]);
});
