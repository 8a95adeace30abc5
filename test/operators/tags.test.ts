import { describe, expect, test } from 'vitest';
import type {
  DoctorAnswer,
  KeysAnswer,
  RequestsAnswer,
  UsageOfKey,
  UsageSum,
} from '../../gateway/operators/api/answers.ts';
import { activityOf } from '../support/activity.ts';
import { idOf } from '../support/api-key.ts';
import { ctl, ctlProcess, operatorOf } from '../support/ctl.ts';
import { inTurn } from '../support/in-turn.ts';
import { alarmsOf, ask, get, hashOf, operatorsRedis, statusOf, viewOf } from '../support/operators.ts';
import { bothStacks, type Stack, startStack } from '../support/stack.ts';
import { thoroughly } from '../support/thorough.ts';

const { url: REDIS_URL, redis, withRedis } = await operatorsRedis();

const tagsOf = async (stack: Stack, key: string) => (await viewOf(stack, idOf(key))).tags;
/** The newest audit log entry about a key. */
const newestOf = async (stack: Stack, key: string) => (await activityOf(stack, `?target=${idOf(key)}`))[0];
const change = (stack: Stack, key: string, changes: unknown) => stack.admin('PATCH', `/keys/${idOf(key)}`, changes);

const ACME = { customer: 'acme', env: 'prod' };

describe.for(bothStacks(REDIS_URL))('with %s', async ([, environment]) => {
  const stack = await startStack(environment);

  test('a key has the tags it was issued with; PATCH replaces all of them, and null or {} removes them', async () => {
    const key = await stack.issueKey({ tags: ACME });
    expect(await tagsOf(stack, key)).toEqual(ACME);
    expect((await change(stack, key, { name: 'renamed' })).json).toMatchObject({ name: 'renamed', tags: ACME });
    const others = { team: 'Zoë & Sons, Inc. (“the” 50 %)', 'cost.center': 'eu:west/1 @home=+x' };
    expect((await change(stack, key, { tags: others })).json).toMatchObject({ tags: others });
    expect(await tagsOf(stack, key)).toEqual(others);
    const filter = Object.entries(others).map(([name, value]) => `tag=${encodeURIComponent(`${name}:${value}`)}`);
    const { keys } = await get<KeysAnswer>(stack, `/keys?${filter.join('&')}`);
    expect(keys.map(({ id }) => id)).toEqual([idOf(key)]);
    for (const none of [null, {}]) {
      await change(stack, key, { tags: ACME });
      expect((await change(stack, key, { tags: none })).json).not.toHaveProperty('tags');
      expect(await tagsOf(stack, key)).toBeUndefined();
    }
    expect(await tagsOf(stack, await stack.issueKey({ tags: {} }))).toBeUndefined();
  });

  test('single tags are added, changed and removed, and concurrent changes keep the tags of all', async () => {
    const key = await stack.issueKey({ tags: ACME });
    const changed = await change(stack, key, { name: 'renamed', tagChanges: { env: 'test', customer: null, of: 'x' } });
    expect(changed.json).toMatchObject({ name: 'renamed', tags: { env: 'test', of: 'x' } });
    expect((await newestOf(stack, key))?.changes).toContainEqual({
      field: 'tags',
      from: 'customer=acme, env=prod',
      to: 'env=test, of=x',
    });
    expect((await change(stack, key, { tagChanges: { env: null, of: null, gone: null } })).status).toBe(200);
    expect(await tagsOf(stack, key)).toBeUndefined();
    const names = Array.from({ length: 8 }, (_, at) => `tag${at}`);
    const made = await Promise.all(names.map((name) => change(stack, key, { tagChanges: { [name]: 'x' } })));
    expect(made.map(({ status }) => status)).toEqual(Array(8).fill(200));
    expect(Object.keys((await tagsOf(stack, key)) ?? {}).sort()).toEqual(names);
  });

  test('the audit log has each change to tags with old and new values, but omits updates without effect', async () => {
    const key = await stack.issueKey({ tags: { env: 'prod', customer: 'acme' } });
    await change(stack, key, { tags: { customer: 'acme', env: 'test' } });
    await change(stack, key, { tags: { env: 'test', customer: 'acme' } });
    await change(stack, key, { tags: null });
    const activity = await activityOf(stack, `?target=${idOf(key)}`);
    expect(activity.map(({ action, changes }) => [action, changes.filter(({ field }) => field === 'tags')])).toEqual([
      ['key.change', [{ field: 'tags', from: 'customer=acme, env=test' }]],
      ['key.change', [{ field: 'tags', from: 'customer=acme, env=prod', to: 'customer=acme, env=test' }]],
      ['key.create', [{ field: 'tags', to: 'customer=acme, env=prod' }]],
    ]);
  });

  test('?tag= finds the keys that have all given tags', async () => {
    const [prod, test] = [
      await stack.issueKey({ tags: { of: 'list', env: 'prod' } }),
      await stack.issueKey({ tags: { of: 'list', env: 'test' } }),
    ];
    const found = async (query: string) =>
      (await get<KeysAnswer>(stack, `/keys?${query}`)).keys.map(({ id, tags }) => [id, tags?.env]);
    expect(await found('tag=of:list')).toEqual([
      [idOf(test), 'test'],
      [idOf(prod), 'prod'],
    ]);
    expect(await found('tag=of:list&tag=env:prod')).toEqual([[idOf(prod), 'prod']]);
    expect(await found('tag=of:list&tag=env:prod&sort=name')).toEqual([[idOf(prod), 'prod']]);
    expect(await found('tag=of:list&tag=env:prod&tag=env:test')).toEqual([]);
    expect(await found('tag=constructor:list')).toEqual([]);
  });

  test('requests and usage are filtered by tags, and usage is summed by key and by tag value', async () => {
    const [one, other] = [
      await stack.issueKey({ tags: { of: 'use', env: 'prod' } }),
      await stack.issueKey({ tags: { of: 'use', env: 'test' } }),
    ];
    const [third, untagged] = [await stack.issueKey({ tags: { of: 'use', env: 'prod' } }), await stack.issueKey()];
    for (const [key, times] of [
      [one, 3],
      [other, 2],
      [third, 1],
      [untagged, 4],
    ] as const)
      for (let sent = 0; sent < times; sent++) await ask(stack, key);
    const requested = async (query: string) =>
      (await get<RequestsAnswer>(stack, `/requests?${query}`)).requests.map(({ keyId }) => keyId);
    expect(await requested('tag=of:use')).toEqual([third, other, other, one, one, one].map(idOf));
    expect(await requested('tag=of:use&tag=env:prod&limit=2')).toEqual([third, one].map(idOf));
    const { next } = await get<RequestsAnswer>(stack, '/requests?tag=of:use&tag=env:prod&limit=2');
    expect(await requested(`tag=of:use&tag=env:prod&limit=2&after=${next}`)).toEqual([one, one].map(idOf));
    // Usage includes a revoked key, which belonged to the same customer.
    await stack.admin('DELETE', `/keys/${idOf(third)}`);
    expect(await requested('tag=of:use&tag=env:prod')).toEqual([third, one, one, one].map(idOf));
    const usage = async <T>(query: string) => (await get<{ usage: T[] }>(stack, `/usage?${query}`)).usage;
    const byKey = await usage<UsageOfKey>('tag=of:use&by=key');
    expect(byKey.map(({ id, tags, admitted }) => [id, tags?.env, admitted]).sort()).toEqual(
      [
        [idOf(one), 'prod', 3],
        [idOf(other), 'test', 2],
        [idOf(third), 'prod', 1],
      ].sort(),
    );
    expect(await usage('tag=of:use&tag=env:test')).toMatchObject([
      { id: idOf(other), admitted: 2, day: expect.any(String) },
    ]);
    expect(await usage<UsageSum>('tag=of:use&by=tag:env')).toEqual([
      { value: 'prod', keys: 2, admitted: 4, refused: 0 },
      { value: 'test', keys: 1, admitted: 2, refused: 0 },
    ]);
    const all = await usage<UsageSum>('by=tag:env');
    expect(all.find(({ value }) => value === undefined)).toMatchObject({ admitted: expect.any(Number) });
    expect(await usage('by=tag:env&from=2026-01-01&to=2026-01-02')).toEqual([]);
  });

  test('tags are kept when a key is rotated, and are in backups', async () => {
    const key = await stack.issueKey({ tags: ACME });
    const { json } = await stack.admin('POST', `/keys/${idOf(key)}/rotate`, { graceSeconds: 0 });
    expect(json).toMatchObject({ tags: ACME });
    const { at, keys } = await get<{ at: string; keys: { id: string }[] }>(stack, '/backup');
    const kept = keys.filter(({ id }) => id === idOf(key));
    for (const target of [await startStack(), await startStack(withRedis)]) {
      await target.admin('POST', '/restore', { at, keys: kept });
      expect(await tagsOf(target, key)).toEqual(ACME);
    }
  });
});

const stack = await startStack();
const shared = await startStack(withRedis);

const NAME = 'at most 64 letters, digits, _, . and -, and begins with a letter or digit';
const VALUE = '1 to 64 characters, without control characters, leading or trailing spaces, or “, name=”';
const long = 'x'.repeat(65);

test.for([
  [{ customer: 'a, env=b' }, `tags.customer must have ${VALUE}`],
  [{ customer: 'a,env:b' }, `tags.customer must have ${VALUE}`],
  [{ customer: '' }, `tags.customer must have ${VALUE}`],
  [{ customer: ' acme' }, `tags.customer must have ${VALUE}`],
  [{ customer: 'a\nb' }, `tags.customer must have ${VALUE}`],
  [{ customer: long }, `tags.customer must have ${VALUE}`],
  [{ customer: 7 }, 'tags.customer must be a string'],
  [{ 'a:b': 'x' }, `tags.a:b is not a tag name: a tag name has ${NAME}`],
  [JSON.parse('{"__proto__": "x"}'), `tags.__proto__ is not a tag name: a tag name has ${NAME}`],
  [{ '': 'x' }, `tags."" is not a tag name: a tag name has ${NAME}`],
  [{ [long]: 'x' }, `tags.${long} is not a tag name: a tag name has ${NAME}`],
  [['customer'], 'tags must be an object of strings'],
  ['customer=acme', 'tags must be an object of strings'],
  [Object.fromEntries(Array.from({ length: 11 }, (_, at) => [`tag${at}`, 'x'])), 'tags must have at most 10 entries'],
] as const)('%j are refused as tags, both for a new key and in a change', async ([tags, fault]) => {
  const key = await stack.issueKey({ tags: ACME });
  const refused = { code: 'invalid_request', message: `The body is not valid: ${fault}.`, status: 400 };
  expect((await stack.admin('POST', '/keys', { name: 'x', plan: 'free', tags })).json).toEqual(refused);
  expect((await change(stack, key, { tags })).json).toEqual(refused);
  expect(await tagsOf(stack, key)).toEqual(ACME);
});

const NINE = Object.fromEntries(Array.from({ length: 9 }, (_, at) => [`tag${at}`, 'x']));

test.for([
  [{ tagChanges: {} }, 'The request contains no changes.'],
  [{ name: 'x', tagChanges: {} }, 'The request contains no changes.'],
  [{ tagChanges: null }, 'The body is not valid: tagChanges must be an object of strings and nulls.'],
  [{ tagChanges: { customer: 7 } }, 'The body is not valid: tagChanges.customer must be a string or null.'],
  [{ tagChanges: { customer: '' } }, `The body is not valid: tagChanges.customer must have ${VALUE}.`],
  [{ tagChanges: { 'a:b': null } }, `The body is not valid: tagChanges.a:b is not a tag name: a tag name has ${NAME}.`],
  [
    JSON.parse('{"tagChanges": {"__proto__": null}}'),
    `The body is not valid: tagChanges.__proto__ is not a tag name: a tag name has ${NAME}.`,
  ],
  [{ tagChanges: { a: 'x' }, tags: { b: 'x' } }, 'The body is not valid: tagChanges cannot be used with tags.'],
  [{ tagChanges: { a: 'x' }, tags: null }, 'The body is not valid: tagChanges cannot be used with tags.'],
  [{ tagChanges: NINE }, 'tags must have at most 10 entries.'],
] as const)('%j is refused as a change: %s', async ([changes, message]) => {
  const key = await stack.issueKey({ tags: ACME });
  expect((await change(stack, key, changes)).json).toEqual({ code: 'invalid_request', message, status: 400 });
  expect(await tagsOf(stack, key)).toEqual(ACME);
  expect((await change(stack, key, { tagChanges: { ...NINE, env: null } })).status).toBe(200);
});

test('ten tags with names and values of 64 characters are accepted', async () => {
  const tags = Object.fromEntries(
    Array.from({ length: 10 }, (_, at) => [`${at}`.padEnd(64, 'n'), `${at}`.padEnd(64, 'ä')]),
  );
  expect(await tagsOf(shared, await shared.issueKey({ tags }))).toEqual(tags);
});

test('tags are stored apart from the hash that decisions read, and deleted when the key is revoked', async () => {
  const key = await shared.issueKey();
  const [hash, tags] = [hashOf(idOf(key)), `gateway:tags:{${idOf(key)}}`];
  await ask(shared, key);
  const before = Object.keys(await redis.hgetall(hash));
  await change(shared, key, { tags: ACME });
  expect(Object.keys(await redis.hgetall(hash))).toEqual(before);
  expect(await redis.hgetall(tags)).toEqual({ tags: 'customer=acme, env=prod', ok_tags: 'customer=acme, env=prod' });
  await shared.admin('DELETE', `/keys/${idOf(key)}`);
  expect(await redis.exists(hash, tags)).toBe(0);
});

// No test here asks the doctor while all keys are valid, because it would keep that result for a minute.
test.concurrent.for([
  ['valid', 'customer=globex,env=prod', { customer: 'globex', env: 'prod' }],
  ['more than ten', Array.from({ length: 11 }, (_, at) => `t${at}=x`).join(','), ACME],
  ['without values', 'customer', ACME],
  ['with a repeated name', 'customer=a,customer=b', ACME],
  ['with another separator', 'customer=acme;env=\u0007', ACME],
] as const)(
  'tags written to Redis by hand, %s: valid ones are in force, and invalid ones are logged as errors',
  async ([, typed, inForce], { expect }) => {
    const key = await shared.issueKey({ tags: ACME });
    await redis.hset(`gateway:tags:{${idOf(key)}}`, 'tags', typed);
    expect(await tagsOf(shared, key)).toEqual(inForce);
    const reported = { via: 'by hand', action: 'key.change', changes: [{ field: 'tags', to: typed }] };
    await expect.poll(() => newestOf(shared, key)).toMatchObject(reported);
    const isBad = inForce === ACME;
    if (isBad) {
      const { findings } = await get<DoctorAnswer>(shared, '/doctor');
      const found = `${idOf(key)}: tags is ${JSON.stringify(typed.slice(0, 64))}, which is not valid; customer=acme, env=prod stays in force`;
      const advice = `HSET gateway:tags:{${idOf(key)}} tags … or ctl keys set ${idOf(key)} --tag …`;
      expect(findings.filter((one) => one.found === found)).toMatchObject([{ advice }]);
    }
    expect(alarmsOf(shared, idOf(key))).toHaveLength(isBad ? 1 : 0);
    expect(await statusOf(shared, key)).toBe(200);
    expect((await change(shared, key, { name: 'still changed' })).status).toBe(200);
    expect((await change(shared, key, { tags: { fixed: 'yes' } })).json).toMatchObject({ tags: { fixed: 'yes' } });
  },
);

test("if a key's tags are not a hash, the doctor reports it, and the key still works", async () => {
  const key = await shared.issueKey({ tags: ACME });
  const tags = `gateway:tags:{${idOf(key)}}`;
  await redis.del(tags);
  await redis.set(tags, 'customer=acme');
  expect(await tagsOf(shared, key)).toBeUndefined();
  const { findings } = await get<DoctorAnswer>(shared, '/doctor');
  expect(findings.map(({ found }) => found)).toContainEqual(expect.stringContaining(`${idOf(key)}: tags is `));
  expect(await statusOf(shared, key)).toBe(200);
  expect((await change(shared, key, { name: 'renamed' })).status).toBe(200);
  expect((await shared.admin('DELETE', `/keys/${idOf(key)}`)).status).toBe(204);
  expect(await redis.exists(tags)).toBe(0);
});

test('a key written to Redis by hand with invalid tags works, and is backed up without them', async () => {
  const key = await shared.issueKey();
  const [hash, tags] = [hashOf(idOf(key)), `gateway:tags:{${idOf(key)}}`];
  const kept = Object.keys(await redis.hgetall(hash)).filter((field) => field.startsWith('ok_'));
  await redis
    .multi()
    .hdel(hash, ...kept)
    .hset(tags, 'tags', 'acme')
    .exec();
  const reason = expect.stringContaining('tags is not valid: "acme"');
  await expect.poll(() => newestOf(shared, key)).toMatchObject({ via: 'by hand', action: 'key.create', reason });
  expect(await statusOf(shared, key)).toBe(200);
  const { keys } = await get<{ keys: { id: string; fields: object }[] }>(shared, '/backup');
  expect(keys.find(({ id }) => id === idOf(key))?.fields).not.toHaveProperty('tags');
});

test('requests with a tagged key are found among many others', async () => {
  const stack = await startStack();
  const [tagged, other] = [await stack.issueKey({ tags: ACME }), await stack.issueKey({ minute: 9_000 })];
  await ask(stack, tagged);
  await inTurn(Array.from({ length: 450 }), 8, () => ask(stack, other));
  const { requests, next } = await get<RequestsAnswer>(stack, '/requests?tag=customer:acme');
  expect([requests.map(({ keyId }) => keyId), next]).toEqual([[idOf(tagged)], undefined]);
});

/** Runs the command line. @returns its output */
const out = async (...words: string[]) => {
  const ended = await ctl(stack, ...words);
  expect([ended.code, ended.err]).toEqual([0, '']);
  return ended.out;
};

test('tags can be set on a new key, added, replaced, removed and shown', async () => {
  const issued = await out(...'keys create --plan free --name a --tag customer=acme --tag env=a=b'.split(' '));
  expect(issued).toMatch(/ tags\n.* customer=acme, env=a=b\n/);
  const id = idOf(/as_\w+/.exec(issued)?.[0] ?? '');
  const changed = await out(
    ...`keys set ${id} --name b --tag env=test --untag customer --tag`.split(' '),
    'team=Two words',
  );
  expect(changed).toMatch(/^name +b$/m);
  expect(changed).toMatch(/^tags +env=test, team=Two words$/m);
  expect(await out('keys', 'show', id)).toMatch(/^tags +env=test, team=Two words$/m);
  await out('keys', 'set', id, '--plan', 'pro');
  expect(JSON.parse(await out('--json', 'keys', 'show', id))).toMatchObject({
    tags: { env: 'test', team: 'Two words' },
  });
  expect(await out('keys', 'set', id, '--untag', 'env', '--untag', 'team')).not.toContain('tags');
});

test('commands that set tags at the same time keep the tags of all', async () => {
  const key = await stack.issueKey({ tags: ACME });
  const names = Array.from({ length: thoroughly(4, 2) }, (_, at) => `tag${at}`);
  const started = names.map((name) =>
    ctlProcess(operatorOf(stack), ['keys', 'set', idOf(key), '--tag', `${name}=x`, '--untag', 'gone']),
  );
  const ended = await Promise.all(started.map(({ ended }) => ended));
  expect(ended.map(({ code, err }) => [code, err])).toEqual(names.map(() => [0, '']));
  expect(Object.keys((await tagsOf(stack, key)) ?? {}).sort()).toEqual(['customer', 'env', ...names]);
});

test('ctl lists keys, requests and usage by tags, sums usage, and writes tags to CSV', async () => {
  const keys: string[] = [];
  for (const env of ['prod', 'test', 'prod'])
    keys.push(await stack.issueKey({ name: `of ${env}`, tags: { of: 'use', env } }));
  keys.push(await stack.issueKey());
  for (const [at, key] of keys.entries()) for (let sent = 0; sent <= at; sent++) await ask(stack, key, `${at}-${sent}`);
  const [prod, test, other] = keys.map(idOf) as [string, string, string];
  for (const [command, found] of [
    ['keys list --tag of=use --tag env=prod', { keys: [{ id: other }, { id: prod }] }],
    ['keys top --tag env=test', { keys: [{ id: test }] }],
    ['requests --tag env=test', { requests: [{ requestId: '1-1' }, { requestId: '1-0' }] }],
  ] as const)
    expect(JSON.parse(await out('--json', ...command.split(' ')))).toMatchObject(found);
  expect(await out('usage', '--tag', 'of=use', '--by', 'tag:env')).toMatch(
    /^env +keys +admitted +refused\nprod +2 +4 +0\ntest +1 +2 +0\n$/,
  );
  expect(await out('usage', '--by', 'tag:env')).toMatch(/^- +1 +4 +0$/m);
  expect(await out('usage', '--tag', 'of=use', '--by', 'key', '--csv')).toBe(
    [
      'id,plan,admitted,refused,name,tags',
      `${other},free,3,0,of prod,"env=prod, of=use"`,
      `${test},free,2,0,of test,"env=test, of=use"`,
      `${prod},free,1,0,of prod,"env=prod, of=use"`,
      '',
    ].join('\r\n'),
  );
  const days = await out('usage', '--tag', 'env=test', '--csv');
  expect(days).toMatch(
    /^day,id,plan,admitted,refused,name,tags\r\n\d{4}-\d\d-\d\d,\w{12},free,2,0,of test,"env=test, of=use"\r\n$/,
  );
});
