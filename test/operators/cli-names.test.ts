import { expect, test } from 'vitest';
import { activityOf } from '../support/activity.ts';
import { idOf } from '../support/api-key.ts';
import { CLI, ctl, operatorOf } from '../support/ctl.ts';
import { startProcess } from '../support/process.ts';
import { startStack } from '../support/stack.ts';

/** Where the command line takes a key, it takes its id or its name. */

const stack = await startStack();
const stateOf = async (id: string) =>
  ((await stack.admin('GET', `/keys/${id}`)).json as { state?: string }).state ?? 'gone';

test('every command for a key accepts its name and shows which key that is', async () => {
  const id = idOf(await stack.issueKey({ name: 'Acme Web Shop' }));
  const NAME = 'acme web shop';
  const run = async (...words: string[]) => {
    const { code, out, err } = await ctl(stack, '--json', ...words.map((word) => (word === 'NAME' ? NAME : word)));
    expect([words, code, err]).toEqual([words, 0, `Note: Acme Web Shop is ${id}.\n`]);
    return JSON.parse(out);
  };
  expect(await run('keys', 'show', 'NAME')).toMatchObject({ id });
  expect(await run('keys', 'set', 'NAME', '--minute', '7')).toMatchObject({ id, minute: 7 });
  expect(await run('keys', 'disable', 'NAME')).toMatchObject({ id, state: 'disabled' });
  expect(await run('keys', 'enable', 'NAME')).toMatchObject({ id, state: 'active' });
  expect(await run('keys', 'expire', 'NAME', '2100-01-01T00:00:00Z')).toMatchObject({ id });
  expect(await run('keys', 'rotate', 'NAME', '--grace', '1h', '--yes')).toMatchObject({ id, key: expect.any(String) });
  expect(await run('bans', 'set', 'NAME', '--for', '1h', '--reason', 'x')).toMatchObject({ id, state: 'banned' });
  expect(await run('bans', 'lift', 'NAME')).toMatchObject({ id, state: 'active' });
  expect(await run('keys', 'reset', 'NAME')).toMatchObject({ id, state: 'active' });
  expect(await run('keys', 'explain', 'NAME')).toMatchObject({ key: { id } });
  const secret = ((await run('keys', 'secrets', 'add', 'NAME', '--name', 'b')) as { id: string }).id;
  expect(await run('keys', 'secrets', 'set', 'NAME', secret, '--name', 'c')).toMatchObject({ name: 'c' });
  expect(await run('keys', 'secrets', 'list', 'NAME')).toMatchObject({ secrets: expect.any(Array) });
  expect(await run('keys', 'secrets', 'revoke', 'NAME', secret, '--yes')).toMatchObject({ id });
  const { activity } = (await run('activity', '--target', 'NAME')) as { activity: { target: string }[] };
  expect(activity.length).toBeGreaterThan(5);
  expect(await run('keys', 'revoke', 'NAME', '--yes')).toEqual({ id, revoked: true });
});

test('a name with the shape of an id is a name if no key has that id', async () => {
  const id = idOf(await stack.issueKey({ name: 'umbrellacorp' }));
  expect(JSON.parse((await ctl(stack, '--json', 'keys', 'show', 'umbrellacorp')).out)).toMatchObject({ id });
  const other = idOf(await stack.issueKey({ name: id }));
  expect(JSON.parse((await ctl(stack, '--json', 'keys', 'show', id)).out)).toMatchObject({ id });
  expect(await stateOf(other)).toBe('active');
});

test('what cannot be undone is never done to a key whose name is the id of a revoked one', async () => {
  const revoked = idOf(await stack.issueKey());
  const other = idOf(await stack.issueKey({ name: revoked }));
  const { secrets } = (await stack.admin('GET', `/keys/${other}`)).json as { secrets: { id: string }[] };
  expect((await ctl(stack, 'keys', 'revoke', revoked, '--yes')).code).toBe(0);
  for (const words of [['revoke'], ['rotate', '--grace', '0'], ['secrets', 'revoke']]) {
    const secret = words[0] === 'secrets' ? [secrets[0]?.id ?? ''] : [];
    expect(await ctl(stack, 'keys', ...words, revoked, ...secret, '--yes')).toMatchObject({
      code: 3,
      out: '',
      err: `Note: No key has the id ${revoked}. The key ${other} has it as its name.\nThere is no such key.\n`,
    });
  }
  const after = (await stack.admin('GET', `/keys/${other}`)).json;
  expect(after).toMatchObject({ state: 'active', secrets: [{ id: secrets[0]?.id }] });
});

test('several keys with one name are listed, and nothing is changed', async () => {
  const ids = [
    idOf(await stack.issueKey({ name: 'twin', plan: 'free' })),
    idOf(await stack.issueKey({ name: 'Twin', plan: 'pro' })),
  ];
  const before = (await activityOf(stack)).length;
  const [plain, json] = await Promise.all([
    ctl(stack, 'keys', 'revoke', 'twin', '--yes'),
    ctl(stack, '--json', 'keys', 'disable', 'twin'),
  ]);
  expect([plain.code, plain.out]).toEqual([2, '']);
  expect(plain.err).toMatch(/^2 keys have the name “twin”\. Use the id of one:\n/);
  for (const id of ids) expect(plain.err).toContain(id);
  expect([json.code, json.out, JSON.parse(json.err)]).toEqual([
    2,
    '',
    { code: 'usage', message: expect.stringContaining(ids[0] as string) },
  ]);
  expect(await Promise.all(ids.map(stateOf))).toEqual(['active', 'active']);
  expect(await activityOf(stack)).toHaveLength(before);
});

test.for([
  ['2\n', 0, ['active', 'disabled']],
  ['3\n', 2, ['active', 'active']],
  ['\n', 2, ['active', 'active']],
  ['\u0003', 2, ['active', 'active']],
] as const)('on a terminal ctl asks which key is meant: %j', async ([typed, code, states]) => {
  const name = `double${Math.random()}`;
  const older = idOf(await stack.issueKey({ name }));
  // The newest key is listed first.
  const ids = [idOf(await stack.issueKey({ name })), older];
  const started = startProcess(
    'script',
    ['-qec', [process.execPath, CLI, 'keys', 'disable', name].join(' '), '/dev/null'],
    {
      ...operatorOf(stack),
      TERM: 'xterm-256color',
    },
  );
  await expect.poll(() => started.out(), { timeout: 30_000 }).toContain('Number of the key: ');
  const listed = ids.map((id) => started.out().indexOf(id));
  expect(listed.every((at) => at > 0)).toBe(true);
  started.child.stdin?.write(typed);
  expect((await started.ended).code).toBe(code);
  expect(await Promise.all(ids.map(stateOf))).toEqual(states);
});

test('a part of a name is refused with the keys that match it, and nothing is changed', async () => {
  const id = idOf(await stack.issueKey({ name: 'initech mobile' }));
  const { code, out, err } = await ctl(stack, 'keys', 'disable', 'initech');
  expect([code, out, err]).toEqual([
    3,
    '',
    'No key has the id or name “initech”. These names contain it: initech mobile. Use the whole name.\n',
  ]);
  expect(await stateOf(id)).toBe('active');
  expect(await ctl(stack, 'keys', 'show', 'nobody at all')).toMatchObject({ code: 3 });
  expect(await ctl(stack, 'keys', 'show', '000000000000')).toMatchObject({ code: 3, err: 'There is no such key.\n' });
});
