import { expect, test } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { ctl, ctlWith, operatorOf } from '../support/ctl.ts';
import { send } from '../support/http.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { startStack } from '../support/stack.ts';

test('ctl activity shows who did what to a key, and why', async () => {
  const stack = await startStack();
  const id = idOf(await stack.issueKey({ name: 'acme' }));
  expect((await ctl(stack, 'keys', 'set', id, '--plan', 'pro', '--reason', 'they have paid')).code).toBe(0);
  expect((await ctl(stack, 'keys', 'disable', id, '--reason', '=1+1')).code).toBe(0);
  await ctl(stack, 'plans', 'set', 'free', '--minute', '61', '--author', 'ada', '--reason', 'launch', '--yes');

  const { code, out } = await ctl(stack, 'activity', '--target', id, '--action', 'key.change');
  const [head, newest, oldest] = out.split('\n').map((line) => line.split(/ {2,}/).slice(1));
  expect([code, head]).toEqual([0, ['who', 'did', 'to', 'via', 'changes', 'reason']]);
  expect(newest).toEqual([expect.any(String), 'key.change', `${id} (acme)`, 'cli', 'disabled true', '=1+1']);
  expect(oldest?.slice(1)).toEqual(['key.change', `${id} (acme)`, 'cli', 'plan free -> pro', 'they have paid']);
  expect(newest?.[0]).not.toBe('unknown');

  const asJson = await ctl(stack, '--json', 'activity', '--limit', '1');
  expect(JSON.parse(asJson.out)).toMatchObject({
    activity: [{ actor: 'ada', action: 'plan.change', reason: 'launch' }],
  });

  const csv = await ctl(stack, 'activity', '--csv');
  const lines = csv.out.split('\r\n');
  expect(lines[0]).toBe('at,actor,action,target,via,changes,reason,requestId,token,id,targetName');
  expect(lines).toHaveLength(6);
  // A spreadsheet must not read a reason as a formula.
  expect(lines[2]).toContain(`,disabled true,'=1+1,`);
});

test('ctl activity finds its target as other commands do, and lists the matches of a part of a name', async () => {
  const stack = await startStack();
  const gone = idOf(await stack.issueKey({ name: 'gone corp' }));
  await stack.issueKey({ name: 'noisy shop' });
  await stack.admin('DELETE', `/keys/${gone}`);
  await stack.admin('PATCH', '/plans/free', { minute: 61 });
  await stack.admin('POST', '/tokens', { name: 'ann', role: 'viewer' });
  const linesOf = async (target: string) => {
    const { code, out } = await ctl(stack, 'activity', '--target', target);
    return [code, out.trim().split('\n').length - 1];
  };
  expect(await linesOf('Gone Corp')).toEqual([0, 2]);
  expect(await linesOf('FREE')).toEqual([0, 1]);
  expect(await linesOf('Ann')).toEqual([0, 1]);
  expect(await ctl(stack, 'activity', '--target', 'noisy')).toMatchObject({
    code: 3,
    out: '',
    err: 'No key has the id or name “noisy”. These names contain it: noisy shop. Use the whole name.\n',
  });
});

test('ctl reports a token that is wrong or was revoked', async () => {
  const stack = await startStack();
  expect(await ctlWith({ ...operatorOf(stack), ADMIN_TOKEN: 'of-another-gateway' }, 'plans', 'show')).toMatchObject({
    code: 1,
    err: 'The token is wrong or has been revoked.\n',
  });
  const { text } = await send(`${stack.adminUrl}/plans`);
  expect(text).toContain('The token of this service is required.');
});

test('ctl activity exports all entries, page by page', async () => {
  const { url, redis } = await emptyDatabase();
  const stack = await startStack({ REDIS_URL: url, REDIS_TIMEOUT_MS: '5000' });
  await stack.issueKey();
  const [[, entry = []] = []] = await redis.xrange('gateway:activity', '-', '+');
  const more = redis.pipeline();
  for (let made = 1; made < 1_101; made++) more.xadd('gateway:activity', '*', ...entry);
  await more.exec();
  const { out } = await ctl(stack, 'activity', '--csv');
  expect(out.trim().split('\r\n')).toHaveLength(1 + 1_101);
  expect((await ctl(stack, 'activity')).out.trim().split('\n')).toHaveLength(1 + 50);
});

test('ctl tokens creates, lists and revokes tokens, whose name is the actor', async () => {
  const stack = await startStack();
  const made = await ctl(stack, 'tokens', 'create', '--name', 'ann', '--role', 'operator');
  const [, id = '', token = ''] = /^Token (\w+) of ann, operator[\s\S]*\n(op_\S+)\n$/.exec(made.out) ?? [];
  expect(token).toContain(`op_${id}_`);
  expect((await ctl(stack, 'tokens', 'list')).out).toMatch(new RegExp(`^${id}  ann   operator  \\d{4}-`, 'm'));

  const asAnn = { ...operatorOf(stack), ADMIN_TOKEN: token };
  expect((await ctlWith(asAnn, 'keys', 'create', '--plan', 'free', '--name', 'a')).code).toBe(0);
  expect((await ctl(stack, 'activity', '--actor', 'ann')).out).toContain('key.create');
  const beyond = await ctlWith(asAnn, 'tokens', 'revoke', id, '--yes');
  expect(beyond).toMatchObject({ code: 1, err: 'This needs the role admin; the token has the role operator.\n' });

  expect((await ctl(stack, 'tokens', 'revoke', id)).code).toBe(5);
  expect(await ctl(stack, 'tokens', 'revoke', id, '--yes')).toMatchObject({
    code: 0,
    out: `Revoked the token ${id}.\n`,
  });
  expect((await ctlWith(asAnn, 'plans', 'show')).code).toBe(1);
  expect((await ctl(stack, 'tokens', 'revoke', id, '--yes')).code).toBe(3);
});

test.for([
  [['activity', '--limit', '0'], 'It must be a whole number of at least 1.'],
  [['activity', '--action', 'key.steal'], 'Allowed choices are key.create'],
  [['tokens', 'create', '--name', 'a', '--role', 'root'], 'Allowed choices are viewer, operator, admin.'],
  [['tokens', 'create', '--role', 'viewer'], "required option '--name <name>'"],
] as const)('ctl %j is refused with a message', async ([words, message]) => {
  const stack = await startStack();
  expect(await ctl(stack, ...words)).toMatchObject({ code: 2, out: '', err: expect.stringContaining(message) });
});
