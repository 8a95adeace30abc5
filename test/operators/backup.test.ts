import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { DoctorAnswer } from '../../gateway/operators/api/answers.ts';
import { idOf } from '../support/api-key.ts';
import { ctl, ctlProcess, ctlReading, ctlWith, operatorOf } from '../support/ctl.ts';
import { inTurn } from '../support/in-turn.ts';
import { scrape } from '../support/metrics.ts';
import {
  ask,
  get,
  hashOf,
  issueId,
  operatorsRedis,
  pagesOf,
  statusOf,
  tokenFor,
  viewOf,
} from '../support/operators.ts';
import { ADMIN_TOKEN, bothStacks, type Stack, startStack, temporaryFolder } from '../support/stack.ts';
import { thoroughly } from '../support/thorough.ts';

const { url, redis, withRedis, fresh } = await operatorsRedis();
const started = () => startStack(withRedis);

/** Issues every kind of key that customers can have. `expected` maps each key to the status that it gets. */
async function issueAll(stack: Stack, plain: number) {
  const issue = (more: Record<string, unknown> = {}) => stack.issueKey({ plan: 'pro', ...more });
  const change = (method: string, key: string, path: string, body: unknown) =>
    stack.admin(method, `/keys/${idOf(key)}${path}`, body);
  const many = await inTurn(Array.from({ length: plain }, String), 8, () =>
    issue({ name: 'Zoë & sons, "Ltd" \u2028' }),
  );
  const own = await issue({ minute: 9_000, day: 7 });
  const big = await issue({ plan: 'enterprise', minute: 5_000, day: 70_000, expiresAt: '2100-01-01T00:00:00Z' });
  const usedUp = await issue({ minute: 1_000, day: 3 });
  const [disabled, banned, rotated] = [await issue(), await issue(), await issue()];
  for (let asked = 0; asked < 3; asked++) await ask(stack, usedUp);
  for (const key of many.slice(0, 20)) await ask(stack, key);
  await change('PATCH', disabled, '', { disabled: true });
  await change('PUT', banned, '/ban', { seconds: 7_200, reason: 'asks without end' });
  const { json } = await stack.admin('POST', `/keys/${idOf(rotated)}/rotate`, { graceSeconds: 3_600 });
  const expected = new Map<string, number>([...many, own, big, rotated].map((key) => [key, 200] as const));
  expected
    .set((json as { key: string }).key, 200)
    .set(usedUp, 429)
    .set(disabled, 401)
    .set(banned, 429);
  return { expected, own, big, usedUp, banned };
}

/** Everything that Redis stores about keys. */
async function contents() {
  const ids = await redis.zrangebyscore('gateway:keys', '-inf', '+inf', 'WITHSCORES');
  const names = (await redis.keys('gateway:key:*')).sort();
  return { ids, hashes: await Promise.all(names.map(async (name) => [name, await redis.hgetall(name)])) };
}

const answers = async (stack: Stack, keys: Iterable<string>) =>
  new Map(await inTurn([...keys], 8, async (key) => [key, await statusOf(stack, key)] as const));

async function backUp(stack: Stack): Promise<string> {
  const { code, out, err } = await ctl(stack, 'backup');
  expect([code, err]).toEqual([0, '']);
  return out;
}

const linesOf = (file: string): string[] => file.trimEnd().split('\n');

/** The lines after the header. */
const valuesIn = (file: string): unknown[] =>
  linesOf(file)
    .slice(1)
    .map((line) => JSON.parse(line));

test('many keys of every kind are restored unchanged, and a second restore changes nothing', async () => {
  const [stack, other] = [await fresh(), await started()];
  const plain = thoroughly(204, 114);
  const count = plain + 6;
  const { expected, own, big, usedUp, banned } = await issueAll(stack, plain);
  await stack.admin('PATCH', '/plans/pro', { minute: 250 });
  // If the plan table is lost, either gateway may write it back, so both must have the change.
  expect(await get(other, '/plans')).toMatchObject({ pro: { minute: 250 } });
  const file = await backUp(stack);
  const before = await contents();
  expect(before.hashes).toHaveLength(count);
  expect(linesOf(file)).toHaveLength(1 + count + 1);
  for (const key of expected.keys()) expect(file.includes(key.slice(16, 48))).toBe(false);
  const plans = await redis.hgetall('gateway:plans');
  const listed = await get(stack, '/keys?limit=50');

  await redis.flushdb();
  expect([...(await answers(other, [own, big, banned])).values()]).toEqual([401, 401, 401]);
  const restored = await ctlProcess(operatorOf(other), ['restore'], file).ended;
  expect(restored).toMatchObject({ code: 0, err: '' });
  expect(restored.out).toMatch(new RegExp(`^Keys restored: ${count}\\. Plan fields restored: \\d+\\.\n$`));
  expect(await contents()).toEqual(before);
  expect(await redis.hgetall('gateway:plans')).toEqual(plans);
  expect(await get(stack, '/keys?limit=50')).toMatchObject({
    total: count,
    keys: (listed as { keys: { id: string }[] }).keys.map(({ id }) => ({ id })),
  });

  // Requests after the restore are charged too.
  expect(await answers(stack, expected.keys())).toEqual(expected);
  const headersOf = async (key: string) => (await ask(other, key)).headers;
  expect(await headersOf(own)).toMatchObject({ 'x-ratelimit-limit': '7', 'x-ratelimit-remaining': '5' });
  expect(await headersOf(big)).toMatchObject({ 'x-ratelimit-limit': '5000' });
  expect(await headersOf(usedUp)).toMatchObject({ 'x-ratelimit-limit': '3', 'x-ratelimit-remaining': '0' });
  const ban = await ask(other, banned);
  expect(ban.json).toMatchObject({ code: 'key_banned' });
  expect(Number(ban.headers['retry-after'])).toBeGreaterThan(7_000);

  const used = await contents();
  const again = await ctlReading(stack, file, '--json', 'restore');
  expect(JSON.parse(again.out)).toMatchObject({ restored: 0, present: count, revoked: 0, rejected: 0, isWhole: true });
  expect(await contents()).toEqual(used);
});

test('a restore replaces unchanged built-in plans, and keeps and lists changed ones', async () => {
  const backup = (minute: number) => ({ 'free.minute': `${minute}`, 'free.day': '700', 'free.ban_seconds': '300' });
  const stack = await fresh();
  await stack.admin('PATCH', '/plans/pro', { minute: 250 });
  await redis.hset('gateway:plans', 'business.day', '5');
  const plans = { ...backup(61), 'pro.minute': '251', 'pro.day': '10000', 'business.day': '6' };
  const trial = (await stack.admin('POST', '/restore?dryRun=true', { plans })).json;
  const { json } = await stack.admin('POST', '/restore', { plans });
  expect(json).toMatchObject({
    plans: {
      restored: ['free.minute', 'free.day', 'free.ban_grace_seconds'],
      kept: [
        { field: 'pro.minute', value: '250', backup: '251' },
        { field: 'business.day', value: '5', backup: '6' },
      ],
      rejected: [],
    },
  });
  expect(trial).toEqual(json);
  expect(await get(stack, '/plans')).toMatchObject({
    free: { minute: 61, day: 700 },
    pro: { minute: 250 },
    business: { minute: 1_000, day: 5 },
  });
  expect((await stack.admin('POST', '/restore', { plans: backup(62) })).json).toMatchObject({
    plans: { restored: [], kept: [{ field: 'free.minute', value: '61', backup: '62' }] },
  });
});

test('a restore adds missing plan fields, and keeps and reports those that differ', async () => {
  const stack = await fresh();
  await stack.admin('PATCH', '/plans/free', { minute: 61, day: 1_001 });
  const file = await backUp(stack);
  await redis.hdel('gateway:plans', 'free.minute');
  await redis.hset('gateway:plans', 'free.day', '1002');
  const { code, out } = await ctlReading(stack, file, 'restore');
  expect([code, out]).toEqual([
    0,
    'Keys restored: 0. Plan fields restored: 1.\nNot changed: free.day is 1002, but was 1001 in the backup.\n',
  ]);
  expect(await get(stack, '/plans')).toMatchObject({ free: { minute: 61, day: 1_002 } });
});

test('while keys are issued and revoked, each remaining key is in a backup exactly once', async () => {
  const stack = await fresh();
  const keys: string[] = [];
  for (let number = 0; number < 12; number++) keys.push(await stack.issueKey());
  const met: string[] = [];
  for (let after: string | undefined = ''; after !== undefined; ) {
    const page: { plans?: unknown; keys: { id: string }[]; next?: string } = await get(
      stack,
      `/backup?limit=2${after}`,
    );
    expect('plans' in page).toBe(after === '');
    met.push(...page.keys.map(({ id }) => id));
    if (met.length === 4) for (const at of [0, 11]) await stack.admin('DELETE', `/keys/${idOf(keys[at] as string)}`);
    if (met.length === 4) keys.push(await stack.issueKey());
    after = page.next && `&after=${encodeURIComponent(page.next)}`;
  }
  expect(met).toEqual(keys.map(idOf).filter((_, at) => at !== 11));
});

test('an incomplete file can be restored, and a backup that was cut off anywhere can be resumed', async () => {
  const stack = await fresh();
  const { expected } = await issueAll(stack, 20);
  const file = await backUp(stack);
  const lines = linesOf(file);
  const folder = await temporaryFolder();
  const lineEnd = lines.slice(0, 10).join('\n').length + 1;
  const whole = async (length: number) => {
    const path = join(folder, `${length}.jsonl`);
    await writeFile(path, file.slice(0, length));
    return await ctl(stack, 'backup', '--resume', path);
  };
  const cuts = [(lines[0] as string).length + 1, lineEnd + 40, file.length];
  for (const { code, out } of await inTurn(cuts, 2, whole)) expect([code, out]).toEqual([0, file]);
  expect(await whole(20)).toMatchObject({ code: 2, out: '' });

  await redis.flushdb();
  const cut = await ctlReading(stack, file.slice(0, lineEnd + 40), 'restore');
  expect(cut).toMatchObject({
    code: 1,
    err: 'The backup was cut off: its last line is missing. The lines before it were restored.\n',
  });
  expect(cut.out).toContain('Keys restored: 9.');
  expect((await ctlReading(stack, file, 'restore')).out).toContain('Keys that already existed: 9.');
  expect(await answers(stack, expected.keys())).toEqual(expected);
  const short = [...lines.slice(0, 5), ...lines.slice(6)].join('\n');
  expect(await ctlReading(stack, short, 'restore')).toMatchObject({
    code: 1,
    err: 'The backup had 26 keys, but the file has 25.\n',
  });
});

test('a backup that could not begin suggests no continuation', async () => {
  const { code, out, err } = await ctlWith({ ADMIN_PORT: '1', ADMIN_TOKEN }, 'backup');
  expect([code, out, err]).toEqual([1, '', expect.not.stringContaining('--resume')]);
});

test('keys move with their bucket levels from an embedded gateway to Redis and back', async () => {
  const first = await startStack();
  const { expected, own } = await issueAll(first, 96);
  const odd = new Map([...expected].slice(90));
  const left = Number((await ask(first, own)).headers['x-ratelimit-remaining']);
  const file = await backUp(first);
  const shared = await fresh();
  const [second, third] = [await startStack(), await startStack()];
  expect((await ctlReading(second, file, 'restore')).out).toContain('Keys restored: 102.');
  expect((await ctlReading(shared, file, 'restore')).out).toContain('Keys restored: 102.');
  const [again, fromRedis] = [await backUp(second), await backUp(shared)];
  for (const copy of [again, fromRedis]) expect(valuesIn(copy)).toEqual(valuesIn(file));
  expect((await ctlReading(third, fromRedis, 'restore')).code).toBe(0);
  for (const stack of [second, shared, third]) {
    const { headers } = await ask(stack, own);
    expect(Number(headers['x-ratelimit-remaining'])).toBe(left - 1);
    expect(await answers(stack, odd.keys())).toEqual(odd);
  }
});

test('a key whose list entry was typed by hand is in the backup, and so are the keys after it', async () => {
  const stack = await fresh();
  const ids = await Promise.all(Array.from({ length: 5 }, () => issueId(stack)));
  const [first = '', second = '', third = ''] = ids;
  await redis.zadd('gateway:keys', 'inf', first, '-inf', second, '1e-7', third);
  const pages = await pagesOf<{ keys: { id: string; createdAt: unknown }[]; next?: string }>(stack, '/backup?limit=1');
  const met = pages.flatMap(({ keys }) => keys);
  expect(met.every(({ createdAt }) => typeof createdAt === 'number')).toBe(true);
  expect(met.map(({ id }) => id).toSorted()).toEqual(ids.toSorted());
  await redis.zadd('gateway:keys', 'inf', first);
  const { code, out } = await ctl(stack, 'backup');
  await redis.flushdb();
  expect([code, (await ctlReading(stack, out, 'restore')).out]).toEqual([0, expect.stringContaining('restored: 5.')]);
});

test('a backup is incomplete if the list of keys is reindexed during it', async () => {
  const stack = await fresh();
  const [moved] = [await issueId(stack), await issueId(stack), await issueId(stack)];
  await redis.zadd('gateway:keys', '9999999999', moved);
  const [header, first] = (await ctl(stack, 'backup')).out.split('\n');
  const begun = join(await temporaryFolder(), 'begun.jsonl');
  await writeFile(begun, `${header}\n${first}\n`);
  await ctl(stack, 'keys', 'reindex');
  const { code, out, err } = await ctl(stack, 'backup', '--resume', begun);
  expect([code, out.includes('"end"'), err]).toEqual([4, false, expect.stringContaining('was reindexed')]);
  expect((await ctl(stack, 'backup')).out).toContain('{"end":true,"keys":3}');
});

test('plans whose values were damaged or deleted by hand are backed up with the values in force', async () => {
  const stack = await fresh();
  await stack.issueKey();
  await stack.admin('PATCH', '/plans/pro', { minute: 444 });
  await stack.admin('PATCH', '/plans/free', { day: 555 });
  await redis.hset('gateway:plans', 'pro.minute', 'abc');
  await redis.hdel('gateway:plans', 'free.day');
  const { code, out } = await ctl(stack, 'backup');
  await redis.flushdb();
  const other = await started();
  expect([code, (await ctlReading(other, out, 'restore', '--strict')).code]).toEqual([0, 0]);
  expect(await get(other, '/plans')).toMatchObject({ pro: { minute: 444 }, free: { day: 555 } });
});

test('a key that no restore would accept is listed as left out, with the reason, and the command fails', async () => {
  const stack = await fresh();
  const ids = await Promise.all(Array.from({ length: 5 }, () => issueId(stack)));
  const [long = '', wide = '', foreign = '', text = '', good = ''] = ids;
  await redis.hset(hashOf(long), `secret:${'a'.repeat(43)}`, `typed123 - read - 0 ${'x'.repeat(8_193)}`);
  await redis.hset(hashOf(wide), Object.fromEntries(Array.from({ length: 1_001 }, (_, at) => [`f${at}`, ''])));
  await redis.hset(hashOf(foreign), `secret:${'a'.repeat(43)}`, 'typed123 - read 9:zz/1 0 typed');
  await redis.set(hashOf(text), 'text');
  // These fields are ignored: the first is unknown, and for the others, valid values stay in force.
  await redis.hset(hashOf(good), {
    'Not a field': 'x'.repeat(9_000),
    name: 'x'.repeat(9_000),
    created_at: '9999999999',
  });
  const { code, out, err } = await ctl(stack, 'backup');
  expect([code, out.trimEnd().split('\n').slice(1)]).toEqual([
    1,
    [expect.stringContaining(`"id":"${good}"`), '{"end":true,"keys":1}'],
  ]);
  const reasons = [
    [long, 'One of its secrets cannot be read.'],
    [wide, 'It has more than 1000 fields.'],
    [foreign, 'One of its secrets cannot be read.'],
    [text, 'plan is not valid: "".'],
  ];
  for (const [id, reason] of reasons) expect(err).toContain(`Left out: ${id}: ${reason}\n`);
  expect(await get(stack, '/activity?action=backup.make')).toMatchObject({ activity: [] });
  await redis.flushdb();
  expect((await ctlReading(stack, out, 'restore')).out).toContain('Keys restored: 1.');
});

test('a key and a secret with names of 100 code points are accepted, backed up and restored', async () => {
  const name = `${'🦁'.repeat(98)}\u2028 `;
  const stack = await fresh();
  const id = await issueId(stack, { name });
  expect((await stack.admin('POST', `/keys/${id}/secrets`, { name })).status).toBe(201);
  const names = async () => {
    const view = await viewOf(stack, id);
    return [view.name, ...view.secrets.map((secret) => secret.name)];
  };
  expect(await names()).toEqual([name, 'first', name]);
  const { findings } = await get<DoctorAnswer>(stack, '/doctor');
  expect(findings.filter(({ about }) => about === 'keys')).toMatchObject([{ status: 'good' }]);
  const { code, out } = await ctl(stack, 'backup');
  await redis.flushdb();
  expect([code, (await ctlReading(stack, out, 'restore', '--strict')).code]).toEqual([0, 0]);
  expect(await names()).toEqual([name, 'first', name]);
});

const madeAt = async (of: Stack) => (await scrape(of.adminUrl)).sum('gateway_backup_completed_timestamp_seconds');

const findingOf = async (stack: Stack) =>
  (await get<DoctorAnswer>(stack, '/doctor')).findings.find(({ about }) => about === 'backup');

test.for(bothStacks(url))(
  'with %s, the time of the last complete backup is exported, even by other gateways and after a restart',
  async ([, environment]) => {
    const settings = { DATA_DIR: await temporaryFolder(), ...environment };
    const stack = await fresh(settings);
    expect([await madeAt(stack), await findingOf(stack)]).toEqual([undefined, undefined]);
    await stack.issueKey();
    expect(await madeAt(stack)).toBe(0);
    expect(await findingOf(stack)).toMatchObject({ status: 'warning', found: 'the keys have never been backed up' });

    const begun = Math.floor(Date.now() / 1_000);
    expect(await ctl(stack, 'backup')).toMatchObject({ code: 0, err: '' });
    const at = (await madeAt(stack)) ?? 0;
    expect(at).toBeGreaterThanOrEqual(begun);
    expect(at).toBeLessThanOrEqual(Date.now() / 1_000);
    expect(await findingOf(stack)).toMatchObject({
      status: 'good',
      found: `the last complete one was made at ${new Date(at * 1_000).toISOString()}`,
    });
    await stack.stop();
    expect(await madeAt(await startStack(settings))).toBe(at);
  },
);

test('a backup that is incomplete or has no keys is not recorded', async () => {
  const stack = await startStack();
  await ctl(stack, 'backup');
  await stack.issueKey();
  await stack.issueKey();
  const { json } = await stack.admin('GET', '/backup?limit=1');
  expect(json).toMatchObject({ next: expect.any(String) });
  expect((await stack.admin('POST', '/backups', { keys: 0 })).status).toBe(400);
  expect((await stack.admin('POST', '/backups', {})).status).toBe(400);
  expect(await madeAt(stack)).toBe(0);
});

test('a viewer can make a backup and gets a note that it is not recorded', async () => {
  const stack = await startStack();
  await stack.issueKey();
  const { token } = await tokenFor(stack, 'viewer');
  const { code, out, err } = await ctlWith({ ...operatorOf(stack), ADMIN_TOKEN: token }, 'backup');
  expect([code, out.trimEnd().split('\n').at(-1)]).toEqual([0, '{"end":true,"keys":1}']);
  expect(err).toContain('The gateway could not record this backup: This needs the operator role');
  expect(await madeAt(stack)).toBe(0);
});

test('the doctor warns if the last backup is more than 26 hours old', async () => {
  const stack = await fresh();
  const hoursAgo = (hours: number) => Math.floor(Date.now() / 1_000) - hours * 3_600;
  await redis.hset('gateway:backup', 'completed_at', hoursAgo(25));
  expect(await findingOf(stack)).toMatchObject({ status: 'good' });
  await redis.hset('gateway:backup', 'completed_at', hoursAgo(27));
  expect(await findingOf(stack)).toMatchObject({ status: 'warning', advice: expect.stringContaining('ctl backup') });
});
