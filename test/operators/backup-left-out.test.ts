import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { KeyView } from '../../gateway/operators/api/answers.ts';
import { idOf } from '../support/api-key.ts';
import { ctl, ctlReading } from '../support/ctl.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { startStack, temporaryFolder } from '../support/stack.ts';

/** What people type by hand makes no backup silently smaller than what works. */

const { url, redis } = await emptyDatabase();
const environment = { REDIS_URL: url, REDIS_TIMEOUT_MS: '5000' };
const hashOf = (id: string) => `gateway:key:{${id}}`;

test('a key whose list entry was typed by hand is in the backup, and so are those after it', async () => {
  const stack = await startStack(environment);
  const ids = await Promise.all(Array.from({ length: 5 }, async () => idOf(await stack.issueKey())));
  const [first = '', second = '', third = ''] = ids;
  await redis.zadd('gateway:keys', 'inf', first, '-inf', second, '1e-7', third);
  const met: string[] = [];
  for (let after: string | undefined = ''; after !== undefined; ) {
    const { json } = await stack.admin('GET', `/backup?limit=1${after}`);
    const { keys, next } = json as { keys: { id: string; createdAt: number }[]; next?: string };
    expect(keys.every(({ createdAt }) => typeof createdAt === 'number')).toBe(true);
    met.push(...keys.map(({ id }) => id));
    after = next && `&after=${encodeURIComponent(next)}`;
  }
  expect(met.toSorted()).toEqual(ids.toSorted());
  await redis.zadd('gateway:keys', 'inf', first);
  const { code, out } = await ctl(stack, 'backup');
  await redis.flushdb();
  expect([code, (await ctlReading(stack, out, 'restore')).out]).toEqual([0, expect.stringContaining('restored: 5.')]);
});

test('a backup during which the list of keys was put in order is not complete', async () => {
  await redis.flushdb();
  const stack = await startStack(environment);
  const ids = await Promise.all(Array.from({ length: 3 }, async () => idOf(await stack.issueKey())));
  await redis.zadd('gateway:keys', '9999999999', ids[0] ?? '');
  const [header, first] = (await ctl(stack, 'backup')).out.split('\n');
  const begun = join(await temporaryFolder(), 'begun.jsonl');
  await writeFile(begun, `${header}\n${first}\n`);
  expect((await ctl(stack, 'keys', 'reindex')).code).toBe(0);
  const { code, out, err } = await ctl(stack, 'backup', '--resume', begun);
  expect([code, out.includes('"end"'), err]).toEqual([4, false, expect.stringContaining('was put in order')]);
  expect((await ctl(stack, 'backup')).out).toContain('{"end":true,"keys":3}');
});

test('plans whose values were damaged or deleted by hand are in the backup with the values in force', async () => {
  await redis.flushdb();
  const stack = await startStack(environment);
  await stack.issueKey();
  await stack.admin('PATCH', '/plans/pro', { minute: 444 });
  await stack.admin('PATCH', '/plans/free', { day: 555 });
  await redis.hset('gateway:plans', 'pro.minute', 'abc');
  await redis.hdel('gateway:plans', 'free.day');
  const { code, out } = await ctl(stack, 'backup');
  await redis.flushdb();
  const other = await startStack(environment);
  expect([code, (await ctlReading(other, out, 'restore', '--strict')).code]).toEqual([0, 0]);
  expect((await other.admin('GET', '/plans')).json).toMatchObject({ pro: { minute: 444 }, free: { day: 555 } });
});

test('a key that no restore would accept is listed as left out with the reason, and the command fails', async () => {
  await redis.flushdb();
  const stack = await startStack(environment);
  const ids = await Promise.all(Array.from({ length: 5 }, async () => idOf(await stack.issueKey())));
  const [long = '', wide = '', foreign = '', text = '', good = ''] = ids;
  await redis.hset(hashOf(long), `secret:${'a'.repeat(43)}`, `typed123 - read - 0 ${'x'.repeat(8_193)}`);
  await redis.hset(hashOf(wide), Object.fromEntries(Array.from({ length: 1_001 }, (_, at) => [`f${at}`, ''])));
  await redis.hset(hashOf(foreign), `secret:${'a'.repeat(43)}`, 'typed123 - read 9:zz/1 0 typed');
  await redis.set(hashOf(text), 'text');
  // These have no meaning, or something good is in force in their place.
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
  expect((await stack.admin('GET', '/activity?action=backup.make')).json).toMatchObject({ activity: [] });
  await redis.flushdb();
  expect((await ctlReading(stack, out, 'restore')).out).toContain('Keys restored: 1.');
});

test('a key and a secret with a name of 100 code points are good, in the backup, and restored', async () => {
  const name = `${'🦁'.repeat(98)}\u2028 `;
  await redis.flushdb();
  const stack = await startStack(environment);
  const id = idOf(await stack.issueKey({ name }));
  const path = `/keys/${id}`;
  expect((await stack.admin('POST', `${path}/secrets`, { name })).status).toBe(201);
  const names = async () => {
    const { json } = await stack.admin('GET', path);
    const view = json as KeyView;
    return [view.name, ...view.secrets.map((secret) => secret.name)];
  };
  expect(await names()).toEqual([name, 'first', name]);
  const { findings } = (await stack.admin('GET', '/doctor')).json as { findings: { about: string }[] };
  expect(findings.filter(({ about }) => about === 'keys')).toMatchObject([{ status: 'good' }]);
  const { code, out } = await ctl(stack, 'backup');
  await redis.flushdb();
  expect([code, (await ctlReading(stack, out, 'restore', '--strict')).code]).toEqual([0, 0]);
  expect(await names()).toEqual([name, 'first', name]);
});
