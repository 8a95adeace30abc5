import { expect, test } from 'vitest';
import { createApiKey } from '../../gateway/limiter/credential.ts';
import { searchText } from '../../gateway/operators/clients.ts';
import { activityOf } from '../support/activity.ts';
import { idOf } from '../support/api-key.ts';
import { answer, ctl, ctlOnTerminal, ctlProcess, ctlReading, operatorOf } from '../support/ctl.ts';
import { serveHttp } from '../support/http-server.ts';
import { ask, issueId, viewOf } from '../support/operators.ts';
import { startStack } from '../support/stack.ts';
import { thoroughly } from '../support/thorough.ts';

/** ctl finds a key by anything that a customer can quote, and accepts an id or a name in every command. */

const stack = await startStack();
const stateOf = async (id: string) => (await viewOf(stack, id)).state ?? 'gone';

test('ctl finds a key by anything that a customer can quote', async () => {
  const key = await stack.issueKey({ name: 'acme zoo' });
  await stack.issueKey({ name: 'acme farm' });
  await ask(stack, key, 'request-of-acme');
  const [byKey, byRequest, byName, none] = await Promise.all([
    ctlProcess(operatorOf(stack), ['keys', 'find'], `${key}\n`).ended,
    ctl(stack, 'keys', 'find', 'request-of-acme'),
    ctl(stack, 'keys', 'find', 'ACME'),
    ctl(stack, 'keys', 'find', 'nobody', '--json'),
  ]);
  for (const found of [byKey, byRequest]) {
    expect(found).toMatchObject({ code: 0, err: '' });
    expect(found.out).toMatch(new RegExp(`^id +${idOf(key)}\nname +acme zoo\n`));
  }
  expect(byName.out).toMatch(/ acme farm +free +active +name\n.* acme zoo +free +active +name\n$/);
  expect([none.code, none.out, JSON.parse(none.err)]).toEqual([
    3,
    '',
    { code: 'not_found', status: 404, message: expect.stringContaining('No key has this id or name') },
  ]);
});

test('the secret of a pasted key is never sent', async () => {
  const asked: string[] = [];
  const adminUrl = await serveHttp((request, response) => {
    request.on('data', (chunk) => asked.push(String(chunk)));
    request.on('end', () => {
      asked.push(request.url ?? '', JSON.stringify(request.rawHeaders));
      response.end('{"keys":[]}');
    });
  });
  const { apiKey, credential } = createApiKey();
  const secret = apiKey.slice(16);
  const ended = await Promise.all([
    ctlReading({ adminUrl }, apiKey, 'keys', 'find'),
    ...[apiKey, `Bearer ${apiKey}`, secret].map((pasted) => ctl({ adminUrl }, 'keys', 'find', pasted)),
  ]);
  expect(ended.map(({ code }) => code)).toEqual([3, 3, 3, 2]);
  expect(ended[1]?.err).toContain('Note: the secret was removed and not sent.');
  expect(ended[3]?.err).toContain('Nothing was sent.');
  expect(asked.filter((text) => text.startsWith('/keys/find'))).toEqual(
    Array.from({ length: 3 }, () => `/keys/find?text=${credential.id}`),
  );
  expect(JSON.stringify([asked, ended])).not.toContain(secret.slice(0, 8));
});

test('every command for a key accepts its name and prints the id of that key', async () => {
  const NAME = 'acme web shop';
  const id = await issueId(stack, { name: 'Acme Web Shop' });
  const run = async (command: string, ...more: string[]) => {
    const words = command.split(' ').map((word) => (word === 'NAME' ? NAME : word));
    const { code, out, err } = await ctl(stack, '--json', ...words, ...more);
    expect([command, code, err]).toEqual([command, 0, `Note: Acme Web Shop is ${id}.\n`]);
    return JSON.parse(out);
  };
  for (const [command, shown] of [
    ['keys show NAME', { state: 'active', buckets: { minute: { limit: 60 }, day: { limit: 1_000 } } }],
    ['keys set NAME --plan business --minute 7', { plan: 'business', minute: 7 }],
    ['keys disable NAME', { state: 'disabled' }],
    ['keys enable NAME', { state: 'active' }],
    ['keys expire NAME 2100-01-01T00:00:00Z', { expiresAt: '2100-01-01T00:00:00.000Z' }],
    [
      'keys rotate NAME --grace 1h --yes',
      { key: expect.any(String), secrets: [{ expiresAt: expect.any(String) }, { name: 'first' }] },
    ],
    ['bans set NAME --for 1h --reason x', { state: 'banned', banReason: 'x' }],
    ['bans lift NAME', { state: 'active' }],
    ['keys reset NAME --reason fixed', { state: 'active', buckets: { minute: { used: 0 } } }],
  ] as const)
    expect(await run(command)).toMatchObject({ id, ...shown });
  expect(await run('keys explain NAME')).toMatchObject({ key: { id } });
  const added = await run('keys secrets add NAME --name b --scope read --expires never');
  expect(added).toEqual({ id: expect.any(String), key: expect.any(String) });
  const secret = (added as { id: string }).id;
  expect(await run('keys secrets set NAME', secret, '--name', 'c')).toMatchObject({ name: 'c' });
  expect(await run('keys secrets list NAME')).toMatchObject({
    secrets: [{}, { name: 'first', scope: ['read', 'write'] }, { name: 'c', scope: ['read'] }],
  });
  expect(await run('keys secrets revoke NAME', secret, '--yes')).toMatchObject({ id });
  const { activity } = (await run('activity --target NAME')) as { activity: object[] };
  expect(activity.length).toBeGreaterThan(5);
  expect(activity).toContainEqual(expect.objectContaining({ action: 'key.reset', reason: 'fixed', via: 'cli' }));
  expect(await run('keys revoke NAME --yes')).toEqual({ id, revoked: true });
});

test('text that looks like an id is treated as a name if no key has that id', async () => {
  const shown = async (word: string) => JSON.parse((await ctl(stack, '--json', 'keys', 'show', word)).out);
  const id = await issueId(stack, { name: 'umbrellacorp' });
  expect(await shown('umbrellacorp')).toMatchObject({ id });
  const other = await issueId(stack, { name: id });
  expect(await shown(id)).toMatchObject({ id });
  expect(await stateOf(other)).toBe('active');
});

test('an irreversible command never affects a key that has the id of a revoked key as its name', async () => {
  const revoked = await issueId(stack);
  const other = await issueId(stack, { name: revoked });
  const [secret] = (await viewOf(stack, other)).secrets;
  expect((await ctl(stack, 'keys', 'revoke', revoked, '--yes')).code).toBe(0);
  for (const words of [
    ['revoke', revoked],
    ['rotate', '--grace', '0', revoked],
    ['secrets', 'revoke', revoked, secret?.id ?? ''],
  ])
    expect(await ctl(stack, 'keys', ...words, '--yes')).toMatchObject({
      code: 3,
      out: '',
      err: `Note: no key has the id ${revoked}, but it is the name of the key ${other}.\nThere is no such key.\n`,
    });
  expect(await viewOf(stack, other)).toMatchObject({ state: 'active', secrets: [{ id: secret?.id }] });
});

test('if several keys have the same name, they are listed, and nothing is changed', async () => {
  const ids = [await issueId(stack, { name: 'twin' }), await issueId(stack, { name: 'Twin', plan: 'pro' })];
  await stack.admin('PUT', `/keys/${ids[0]}/ban`, { seconds: 600, reason: 'a test' });
  const before = (await activityOf(stack)).length;
  const [plain, json] = await Promise.all([
    ctl(stack, 'keys', 'revoke', 'twin', '--yes'),
    ctl(stack, '--json', 'keys', 'disable', 'twin'),
  ]);
  expect([plain.code, plain.out]).toEqual([2, '']);
  expect(plain.err).toMatch(/^2 keys have the name “twin”\. Use the id of one:\n/);
  for (const id of ids) expect(plain.err).toContain(id);
  expect(plain.err).toMatch(new RegExp(`${ids[0]} .*banned until .* \\(in \\d+ min\\)`));
  expect([json.code, json.out, JSON.parse(json.err)]).toEqual([
    2,
    '',
    { code: 'usage', message: expect.stringContaining(ids[0] as string) },
  ]);
  expect(await Promise.all(ids.map(stateOf))).toEqual(['banned', 'active']);
  expect(await activityOf(stack)).toHaveLength(before);
});

const TYPED = [
  ['2\n', 0, ['active', 'disabled']],
  ['\u0003', 2, ['active', 'active']],
  ['3\n', 2, ['active', 'active']],
  ['\n', 2, ['active', 'active']],
] as const;

test.for(TYPED.slice(0, thoroughly(TYPED.length, 2)))(
  'on a terminal, ctl asks which key is meant: %j',
  async ([typed, code, states]) => {
    const name = `double${Math.random()}`;
    const older = await issueId(stack, { name });
    // The newest key is listed first.
    const ids = [await issueId(stack, { name }), older];
    const started = ctlOnTerminal(stack, ['keys', 'disable', name]);
    expect(await answer(started, 'Number of the key: ', typed)).toBe(code);
    const [question = ''] = started.out().split('Number of the key: ');
    for (const id of ids) expect(question).toContain(id);
    expect(await Promise.all(ids.map(stateOf))).toEqual(states);
  },
);

test('secrets and tokens are found by their names, as keys are', async () => {
  const id = await issueId(stack, { name: 'initrode' });
  const addSecret = async (name: string) =>
    (await stack.admin('POST', `/keys/${id}/secrets`, { name })).json as { readonly id: string };
  const secret = await addSecret('Billing service');
  const run = async (...words: string[]) => {
    const { code, out, err } = await ctl(stack, '--json', ...words, '--yes');
    expect([words, code, err]).toEqual([words, 0, expect.stringMatching(/^(Note: [ \w]+ is \w+\.\n)+$/)]);
    return JSON.parse(out);
  };
  const set = await run('keys', 'secrets', 'set', 'initrode', 'billing service', '--name', 'shop');
  expect(set).toMatchObject({ id: secret.id, name: 'shop' });
  await run('keys', 'rotate', id, '--grace', '0', '--secret', 'SHOP');
  expect((await viewOf(stack, id)).secrets).toEqual([
    expect.objectContaining({ name: 'first' }),
    expect.objectContaining({ name: 'shop', id: expect.not.stringMatching(secret.id) }),
  ]);
  expect(await run('keys', 'secrets', 'revoke', 'initrode', 'shop')).toMatchObject({ id, revoked: true });
  expect((await viewOf(stack, id)).secrets).toHaveLength(1);

  const made = await stack.admin('POST', '/tokens', { name: 'Ann Lee', role: 'viewer' });
  const token = made.json as { readonly id: string };
  expect(await run('tokens', 'revoke', 'ann lee')).toEqual({ id: token.id, revoked: true });

  // Text in the form of an id is not treated as a name, because a token with that id may just have been revoked.
  await stack.admin('POST', '/tokens', { name: token.id, role: 'viewer' });
  const twins = [await addSecret('twin'), await addSecret('Twin')];
  const before = (await activityOf(stack)).length;
  for (const [words, code, why] of [
    [['tokens', 'revoke', 'ann'], 3, 'No token has the id or name “ann”.'],
    [['tokens', 'revoke', token.id], 3, `Note: no token has the id ${token.id}, but it is the name of the token `],
    [
      ['keys', 'secrets', 'revoke', id, 'twi'],
      3,
      'No secret has the id or name “twi”. These names contain it: twin, Twin.',
    ],
    [['keys', 'secrets', 'revoke', id, 'twin'], 2, '2 secrets have the name “twin”. Use the id of one:\n'],
  ] as const) {
    const ended = await ctl(stack, ...words, '--yes');
    expect(ended).toMatchObject({ code, out: '', err: expect.stringContaining(why) });
    if (code === 2) for (const twin of twins) expect(ended.err).toContain(twin.id);
  }
  expect(await activityOf(stack)).toHaveLength(before);
});

test('an irreversible command without --yes names what it is about, or reports that there is no such thing', async () => {
  const id = await issueId(stack, { name: 'Hooli' });
  const [secret] = (await viewOf(stack, id)).secrets;
  const addToken = async (name: string) =>
    ((await stack.admin('POST', '/tokens', { name, role: 'viewer' })).json as { readonly id: string }).id;
  const [ann] = [await addToken('Ann Lee'), await addToken('two of them'), await addToken('Two of them')];
  const why = 'This cannot be undone; without a terminal, pass --yes.\n';
  const before = (await activityOf(stack)).length;
  for (const [command, about, code, err] of [
    ['keys revoke', ['hooli'], 5, `Note: Hooli is ${id}.\nPermanently revoke Hooli (${id})? ${why}`],
    ['keys revoke', [id], 5, `Permanently revoke Hooli (${id})? ${why}`],
    ['keys rotate --grace 0', [id], 5, `Rotate Hooli (${id})? Its secret expires at once. ${why}`],
    ['keys secrets revoke', [id, secret?.id], 5, `revoke the secret first (${secret?.id}) of Hooli (${id})? ${why}`],
    ['tokens revoke', ['ann lee'], 5, `Permanently revoke the token Ann Lee (${ann})? ${why}`],
    ['tokens revoke', [ann], 5, `Permanently revoke the token Ann Lee (${ann})? ${why}`],
    ['keys revoke', ['nope'], 3, 'No key has the id or name “nope”.\n'],
    ['keys rotate --grace 0', ['nope'], 3, 'No key has the id or name “nope”.\n'],
    ['keys rotate --grace 0 --secret nope', [id], 3, 'No secret has the id or name “nope”.\n'],
    ['keys secrets revoke', [id, 'nope'], 3, 'No secret has the id or name “nope”.\n'],
    ['tokens revoke', ['nope'], 3, 'No token has the id or name “nope”.\n'],
    ['tokens revoke', ['two of them'], 2, '2 tokens have the name “two of them”. Use the id of one:\n'],
  ] as const) {
    const ended = await ctl(stack, ...command.split(' '), ...about.map(String));
    expect([command, ended]).toEqual([command, { code, out: '', err: expect.stringContaining(err) }]);
  }
  expect(await activityOf(stack)).toHaveLength(before);
});

test('ctl keys find prompts on a terminal', async () => {
  const id = await issueId(stack, { name: 'asked for' });
  const started = ctlOnTerminal(stack, ['keys', 'find']);
  expect(await answer(started, 'A name, an id, a request id or a key:', 'asked\n')).toBe(0);
  expect(started.out()).toContain(id);
});

test('a partial name is refused, matching keys are listed, and nothing is changed', async () => {
  const id = await issueId(stack, { name: 'initech mobile' });
  await issueId(stack, { name: 'initech web' });
  for (const words of [
    ['keys', 'disable'],
    ['activity', '--target'],
    ['requests', '--key'],
  ])
    expect(await ctl(stack, ...words, 'initech')).toEqual({
      code: 3,
      out: '',
      err: 'No key has the id or name “initech”. These names contain it: initech web, initech mobile. Use the full name.\n',
    });
  expect(await stateOf(id)).toBe('active');
  expect(await ctl(stack, 'keys', 'show', 'nobody at all')).toMatchObject({ code: 3 });
  expect(await ctl(stack, 'keys', 'show', '000000000000')).toMatchObject({ code: 3, err: 'There is no such key.\n' });
});

/** Tests what ctl and the console search for when an operator pastes text. */

const { apiKey: pastedKey, credential } = createApiKey();
const ID = credential.id;
const PASTED_SECRET = pastedKey.slice('as_'.length + ID.length + 1);

test.for([
  ['a whole key', pastedKey, ID, true],
  ['a key with spaces around it', ` ${pastedKey}\n`, ID, true],
  ['a header', `Authorization: Bearer ${pastedKey}`, ID, true],
  ['a curl line', `curl -H 'Authorization: Bearer ${pastedKey}' http://127.0.0.1:8080/v1/pets`, ID, true],
  ['a key that was cut off', pastedKey.slice(0, 30), ID, true],
  ['a key with more characters after it', `${pastedKey}abc`, ID, true],
  ['a secret without its prefix', PASTED_SECRET, '', true],
  ['a secret in a sentence', `my key: ${PASTED_SECRET}`, '', true],
  ['a shortened key from a log', `as_${ID}_…`, ID, false],
  ['a log line', `{"level":30,"requestId":"r-1","keyId":"${ID}","plan":"pro"}`, ID, false],
  ['a name', ' acme ', 'acme', false],
  ['a name that begins like a key', 'as_a name', 'as_a name', false],
  ['a name in Chinese', '北京 动物园', '北京 动物园', false],
  ['an id', ID, ID, false],
  ['a UUID', '1d9d2e71-70ef-42a0-853b-af79a5ee6eab', '1d9d2e71-70ef-42a0-853b-af79a5ee6eab', false],
  ['a trace id', '0af7651916cd43dd8448eb211c80319c', '0af7651916cd43dd8448eb211c80319c', false],
] as const)('the search text for %s contains no secret', ([, pasted, text, hadSecret]) => {
  expect(searchText(pasted)).toEqual({ text, hadSecret });
});
